"""TessellateIPU: arrays on tiles, and primitives mapped over them, by the original's names.

docs/tiles.md says how scripts run unchanged; `ipu.tiles` is what they stand on.
"""

from __future__ import annotations

from ipujax.tessellate import core as core
from ipujax.tessellate import lax as lax
from ipujax.tessellate import linalg as linalg
from ipujax.tessellate import utils as utils
from ipujax.tessellate.core import TileShardedArray as TileShardedArray
from ipujax.tessellate.core import create_ipu_tile_primitive as create_ipu_tile_primitive
from ipujax.tessellate.core import declare_ipu_tile_primitive as declare_ipu_tile_primitive
from ipujax.tessellate.core import ipu_cycle_count as ipu_cycle_count
from ipujax.tessellate.core import ipu_hw_cycle_count as ipu_hw_cycle_count
from ipujax.tessellate.core import tile_constant_replicated as tile_constant_replicated
from ipujax.tessellate.core import tile_constant_sharded as tile_constant_sharded
from ipujax.tessellate.core import tile_data_barrier as tile_data_barrier
from ipujax.tessellate.core import tile_gather as tile_gather
from ipujax.tessellate.core import tile_map as tile_map
from ipujax.tessellate.core import tile_put_replicated as tile_put_replicated
from ipujax.tessellate.core import tile_put_sharded as tile_put_sharded
from ipujax.tessellate.install import install as install
from ipujax.tessellate.utils import IpuDevice as IpuDevice
from ipujax.tessellate.utils import IpuTargetType as IpuTargetType
from ipujax.tessellate.utils import is_ipu_model as is_ipu_model

__version__ = "0.1.0"

__all__ = [
    "IpuDevice",
    "IpuTargetType",
    "TileShardedArray",
    "core",
    "create_ipu_tile_primitive",
    "declare_ipu_tile_primitive",
    "install",
    "ipu_cycle_count",
    "ipu_hw_cycle_count",
    "is_ipu_model",
    "lax",
    "linalg",
    "tile_constant_replicated",
    "tile_constant_sharded",
    "tile_data_barrier",
    "tile_gather",
    "tile_map",
    "tile_put_replicated",
    "tile_put_sharded",
    "utils",
]


def __dir__() -> list[str]:
    return __all__
