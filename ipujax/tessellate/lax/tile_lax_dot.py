"""Products on tiles."""

from __future__ import annotations

import enum

from jax import lax

from ipujax.tessellate.lax.described import register_described


class IpuConvVertexType(enum.Enum):
    """PopLibs' vertices for products, as `ipu_vertex_type` names them; the model has only one."""

    ConvPartialHMAC = 0
    ConvPartialVMAC = 1
    ConvPartialSLIC = 2
    ConvPartial1x1 = 3


dot_general_p = register_described(lax.dot_general_p, "poplin::ConvPartial1x1Out")
