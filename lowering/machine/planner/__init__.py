"""The planner of matrix products and convolutions: the cut over tiles, and its cost."""

from __future__ import annotations

from lowering.machine.planner.amp import amp_cycles as amp_cycles
from lowering.machine.planner.cut import distinct_cuts as distinct_cuts
from lowering.machine.planner.cut import find_cut_axes as find_cut_axes
from lowering.machine.planner.mac import dot_cycles as dot_cycles
from lowering.machine.planner.mac import slic_cycles as slic_cycles
from lowering.machine.planner.multi_convolution import MULTI_CONV as MULTI_CONV
from lowering.machine.planner.multi_convolution import multi_conv_cost as multi_conv_cost
from lowering.machine.planner.operation import product_of_operation as product_of_operation
from lowering.machine.planner.product import Product as Product
from lowering.machine.planner.product import matmul_product as matmul_product
from lowering.machine.planner.product_rule import (
    least_equal_proportion as least_equal_proportion,
)
from lowering.machine.planner.product_rule import phases_of_plan as phases_of_plan
from lowering.machine.planner.product_rule import product_cost as product_cost
from lowering.machine.planner.reduction import estimate_reductions as estimate_reductions
from lowering.machine.planner.reduction import find_stage_factors as find_stage_factors
from lowering.machine.planner.reduction import reduction_vertex_cycles as reduction_vertex_cycles
from lowering.machine.planner.search import Plan as Plan
from lowering.machine.planner.search import plan_product as plan_product
from lowering.machine.planner.tiles import Cuts as Cuts
from lowering.machine.planner.tiles import Grains as Grains
from lowering.machine.planner.tiles import find_largest_part as find_largest_part
