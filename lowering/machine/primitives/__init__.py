"""The cost of each primitive, JAX's and our own, on one IPU: one module per kind."""

from lowering.machine.primitives.cost_rules import RULES as RULES
from lowering.machine.primitives.cost_rules import cost_of_operation as cost_of_operation
from lowering.machine.primitives.elementwise_cost import ELEMENTWISE as ELEMENTWISE
from lowering.machine.primitives.fusion import MOST_FUSED as MOST_FUSED
from lowering.machine.primitives.fusion import elementwise_chain_cost as elementwise_chain_cost
from lowering.machine.primitives.view_rules import VIEWS as VIEWS
