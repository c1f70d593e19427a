"""Primitives of `jax.lax` on tiles; importing this registers them."""

from __future__ import annotations

from jax.lax import abs_p as abs_p
from jax.lax import asin_p as asin_p
from jax.lax import cbrt_p as cbrt_p
from jax.lax import ceil_p as ceil_p
from jax.lax import erf_p as erf_p
from jax.lax import exp_p as exp_p
from jax.lax import expm1_p as expm1_p
from jax.lax import floor_p as floor_p
from jax.lax import is_finite_p as is_finite_p
from jax.lax import log1p_p as log1p_p
from jax.lax import log_p as log_p
from jax.lax import neg_p as neg_p
from jax.lax import population_count_p as population_count_p
from jax.lax import round_p as round_p
from jax.lax import rsqrt_p as rsqrt_p
from jax.lax import select_n_p as select_n_p
from jax.lax import sign_p as sign_p
from jax.lax import sin_p as sin_p
from jax.lax import sqrt_p as sqrt_p
from jax.lax import tan_p as tan_p
from jax.lax import tanh_p as tanh_p

from ipujax.tessellate.lax import tile_lax_binary as tile_lax_binary
from ipujax.tessellate.lax import tile_lax_dot as tile_lax_dot
from ipujax.tessellate.lax import tile_lax_reduce as tile_lax_reduce
from ipujax.tessellate.lax import tile_lax_unary as tile_lax_unary
from ipujax.tessellate.lax import tile_random as tile_random
from ipujax.tessellate.lax.tile_lax_array import bitcast_convert_type_p as bitcast_convert_type_p
from ipujax.tessellate.lax.tile_lax_array import fill as fill
from ipujax.tessellate.lax.tile_lax_array import fill_p as fill_p
from ipujax.tessellate.lax.tile_lax_array import reshape_p as reshape_p
from ipujax.tessellate.lax.tile_lax_array import tile_fill as tile_fill
from ipujax.tessellate.lax.tile_lax_array import tile_sharded_identity as tile_sharded_identity
from ipujax.tessellate.lax.tile_lax_binary import add_inplace_p as add_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import atan2_inplace_p as atan2_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import div_inplace_p as div_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import max_inplace_p as max_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import min_inplace_p as min_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import mul_inplace_p as mul_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import pow_inplace_p as pow_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import rem_inplace_p as rem_inplace_p
from ipujax.tessellate.lax.tile_lax_binary import scaled_add_p as scaled_add_p
from ipujax.tessellate.lax.tile_lax_binary import scaled_sub_p as scaled_sub_p
from ipujax.tessellate.lax.tile_lax_binary import sub_inplace_p as sub_inplace_p
from ipujax.tessellate.lax.tile_lax_cumulative_ops import cummax_p as cummax_p
from ipujax.tessellate.lax.tile_lax_cumulative_ops import cummin_p as cummin_p
from ipujax.tessellate.lax.tile_lax_cumulative_ops import cumprod_p as cumprod_p
from ipujax.tessellate.lax.tile_lax_cumulative_ops import cumsum_p as cumsum_p
from ipujax.tessellate.lax.tile_lax_dot import IpuConvVertexType as IpuConvVertexType
from ipujax.tessellate.lax.tile_lax_gather import gather_p as gather_p
from ipujax.tessellate.lax.tile_lax_scatter import scatter_add_p as scatter_add_p
from ipujax.tessellate.lax.tile_lax_scatter import scatter_max_p as scatter_max_p
from ipujax.tessellate.lax.tile_lax_scatter import scatter_min_p as scatter_min_p
from ipujax.tessellate.lax.tile_lax_scatter import scatter_mul_p as scatter_mul_p
from ipujax.tessellate.lax.tile_lax_scatter import scatter_p as scatter_p
from ipujax.tessellate.lax.tile_lax_small_dot import rotation2d_p as rotation2d_p
from ipujax.tessellate.lax.tile_lax_unary import abs_inplace_p as abs_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import asin_inplace_p as asin_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import cbrt_inplace_p as cbrt_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import ceil_inplace_p as ceil_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import erf_inplace_p as erf_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import exp_inplace_p as exp_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import expm1_inplace_p as expm1_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import floor_inplace_p as floor_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import is_finite_inplace_p as is_finite_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import log1p_inplace_p as log1p_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import log_inplace_p as log_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import neg_inplace_p as neg_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import (
    population_count_inplace_p as population_count_inplace_p,
)
from ipujax.tessellate.lax.tile_lax_unary import round_inplace_p as round_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import rsqrt_inplace_p as rsqrt_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import sign_inplace_p as sign_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import sin_inplace_p as sin_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import sqrt_inplace_p as sqrt_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import tan_inplace_p as tan_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import tanh_inplace_p as tanh_inplace_p
from ipujax.tessellate.lax.tile_lax_unary import tile_copy as tile_copy
from ipujax.tessellate.lax.tile_random import tile_get_hw_seeds as tile_get_hw_seeds
from ipujax.tessellate.lax.tile_random import tile_random_normal as tile_random_normal
from ipujax.tessellate.lax.tile_random import tile_random_uniform as tile_random_uniform
from ipujax.tessellate.lax.tile_random import tile_set_hw_seeds as tile_set_hw_seeds
