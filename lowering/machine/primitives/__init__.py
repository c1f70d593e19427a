"""What each primitive of JAX, and each of our own, costs on one IPU: one module per kind."""

from lowering.machine.primitives.elementwise import ELEMENTWISE as ELEMENTWISE
from lowering.machine.primitives.fusion import MOST_FUSED as MOST_FUSED
from lowering.machine.primitives.fusion import fuse_elementwise as fuse_elementwise
from lowering.machine.primitives.layout import VIEWS as VIEWS
from lowering.machine.primitives.registry import RULES as RULES
from lowering.machine.primitives.registry import cost as cost
