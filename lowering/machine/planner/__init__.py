"""The planner of matrix products and convolutions: the cut over tiles, and its cost."""

from __future__ import annotations

from lowering.machine.planner.amp import amp_cycles as amp_cycles
from lowering.machine.planner.multi_convolution import multi_conv_cost as multi_conv_cost
from lowering.machine.planner.operation import product_of_operation as product_of_operation
from lowering.machine.planner.product import Product as Product
from lowering.machine.planner.product import matmul_product as matmul_product
from lowering.machine.planner.product_rule import product_cost as product_cost
from lowering.machine.planner.search import Plan as Plan
from lowering.machine.planner.search import plan_product as plan_product
