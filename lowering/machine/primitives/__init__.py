"""The cost of each primitive, JAX's and our own, on one IPU: one module per kind."""

from lowering.machine.primitives.complex_numbers import COMPLEX as COMPLEX
from lowering.machine.primitives.composite import cost_of_chain as cost_of_chain
from lowering.machine.primitives.composite import sum_costs as sum_costs
from lowering.machine.primitives.cost_rules import RULES as RULES
from lowering.machine.primitives.cost_rules import cost_of_operation as cost_of_operation
from lowering.machine.primitives.eigen import count_jacobi_sweeps as count_jacobi_sweeps
from lowering.machine.primitives.elementwise_cost import ELEMENTWISE as ELEMENTWISE
from lowering.machine.primitives.elementwise_cost import cycles_per_element as cycles_per_element
from lowering.machine.primitives.fusion import MOST_FUSED as MOST_FUSED
from lowering.machine.primitives.fusion import elementwise_chain_cost as elementwise_chain_cost
from lowering.machine.primitives.indexing_cost import Lookup as Lookup
from lowering.machine.primitives.indexing_cost import LookupWorker as LookupWorker
from lowering.machine.primitives.indexing_cost import plan_lookup as plan_lookup
from lowering.machine.primitives.rates import BINARY as BINARY
from lowering.machine.primitives.rates import UNARY as UNARY
from lowering.machine.primitives.special import COMPOSED as COMPOSED
from lowering.machine.primitives.special import INTEGER as INTEGER
from lowering.machine.primitives.special import SPECIAL as SPECIAL
from lowering.machine.primitives.special import add_counts as add_counts
from lowering.machine.primitives.view_rules import VIEWS as VIEWS
