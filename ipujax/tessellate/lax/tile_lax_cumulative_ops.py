"""Cumulative functions on tiles."""

from jax import lax

from ipujax.tessellate.lax.described import register_described

cumsum_p = register_described(lax.cumsum_p, "CumulativeSum")
cummax_p = register_described(lax.cummax_p, "CumulativeMax")
cummin_p = register_described(lax.cummin_p, "CumulativeMin")
cumprod_p = register_described(lax.cumprod_p, "CumulativeProduct")
