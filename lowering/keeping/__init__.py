"""The choice of the values that a forward pass keeps for the backward pass: the fewest bytes."""

from lowering.keeping.choice import (
    insert_recomputation_before_readers as insert_recomputation_before_readers,
)
from lowering.keeping.choice import is_cheap_to_recompute as is_cheap_to_recompute
from lowering.keeping.choice import select_equations_to_recompute as select_equations_to_recompute
from lowering.keeping.composed import cheap_in_composed_functions as cheap_in_composed_functions
from lowering.keeping.composed import mark_composed_calls as mark_composed_calls
from lowering.keeping.peak import peaks_of_live_bytes as peaks_of_live_bytes
from lowering.keeping.scan_residuals import reduce_stacks_of_scans as reduce_stacks_of_scans
