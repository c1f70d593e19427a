"""The chips' basic numbers, for command line tools that do not load the compiler.

The model's own numbers, with many more, are in `lowering`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """One kind of IPU.

    Attributes:
      version: its name in options.
      name: its maker's name for it.
      tiles: how many tiles programs can use.
      bytes_per_tile: the memory of one tile.
      clock_hz: cycles per second.
      remote_buffers: whether it comes with memory outside the chip.
    """

    version: str
    name: str
    tiles: int
    bytes_per_tile: int
    clock_hz: int
    remote_buffers: bool


# Tiles: PopTorch, popart_compiler/source/Utils.cpp. 638976 bytes: PopART,
# available_memory_proportion_test.py; the loader keeps some of them, see `ipu.targets`. 1330 MHz:
# Poplar tutorial 6.
IPU2 = Chip("ipu2", "GC200 (Colossus Mk2)", 1472, 638_976, 1_330_000_000, remote_buffers=True)

# The chip of the machine that `gc-info -l` lists.
MACHINE = IPU2
