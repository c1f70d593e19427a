"""The planner of matrix products and convolutions: how tiles share them, and what it costs."""

from __future__ import annotations

from lowering.machine.planner.amp import amp_cycles as amp_cycles
from lowering.machine.planner.operation import from_operation as from_operation
from lowering.machine.planner.product import Product as Product
from lowering.machine.planner.product import matmul as matmul
from lowering.machine.planner.rule import product_cost as product_cost
from lowering.machine.planner.search import Plan as Plan
from lowering.machine.planner.search import plan as plan
from lowering.machine.planner.side_by_side import multi_conv_cost as multi_conv_cost
