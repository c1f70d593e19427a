"""Scatters on tiles."""

from jax import lax

from ipujax.tessellate.lax.described import register_described

scatter_p = register_described(lax.scatter_p, "popops::MultiUpdate")
scatter_add_p = register_described(lax.scatter_add_p, "popops::MultiUpdateAdd")
scatter_max_p = register_described(lax.scatter_max_p, "popops::MultiUpdateMax")
scatter_min_p = register_described(lax.scatter_min_p, "popops::MultiUpdateMin")
scatter_mul_p = register_described(lax.scatter_mul_p, "popops::MultiUpdateMul")
