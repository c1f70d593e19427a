"""A transformation of Programs for one device: the same results from few, large kernels."""

from lowering.fusion.fuse import fuse as fuse
from lowering.fusion.fuse import is_one_kernel as is_one_kernel
from lowering.fusion.merge_iterations import (
    is_merging_iterations_faster as is_merging_iterations_faster,
)
