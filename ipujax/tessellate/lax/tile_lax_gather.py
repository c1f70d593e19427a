"""Gathers on tiles."""

from jax import lax

from ipujax.tessellate.lax.described import register_described

gather_p = register_described(lax.gather_p, "popops::MultiSlice")
