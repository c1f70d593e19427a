"""The rotation of many vectors of two elements on a tile."""

from __future__ import annotations

from typing import Any

import jax

from ipujax.tessellate.core.tile_interpreter import declare_ipu_tile_primitive
from ipujax.tessellate.exceptions import require


@declare_ipu_tile_primitive("Rotation2d")
def rotation2d_p(cs: Any, inrow0: Any, inrow1: Any) -> Any:
    """Rotates (inrow0, inrow1) by the angle whose cosine and sine are `cs`."""
    require(inrow0.shape == inrow1.shape, "the rows differ")
    return {"outrow0": inrow0, "outrow1": inrow1}, None, None, 100


def _rotate(cs: jax.Array, inrow0: jax.Array, inrow1: jax.Array) -> tuple[jax.Array, jax.Array]:
    c, s = cs[0], cs[1]
    return c * inrow0 - s * inrow1, s * inrow0 + c * inrow1


rotation2d_p.def_impl(_rotate)
