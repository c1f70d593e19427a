"""The chips that the machine model knows: GC2, GC200 and Bow, and the type that describes one.

Every number carries its source. `[H]` was measured on hardware, `[M]` is a figure that Graphcore's
own cost models used, `[D]` is derived from others. Sources are repositories at a commit:
poplibs@7eac0f26, popart@d2f20d78, poptorch@c2a8b177, tutorials@ba0fe60e, tessellate-ipu@3ab241f3,
ipu-stack@ce7c7e94 (osmarks), lbm-graphcore@df670f6b (thorbenlouw), graphcore-ipu-research@9aa9188c
(Saghetti0), examples@3cc8f81f; "Bow release" is what Graphcore published of the Bow IPU. See
docs/hardware.md, Chips.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, Literal

from lowering.ground import TargetError

Number = Literal["float16", "float32"]
Rates = tuple[tuple[tuple[Number, Number], int], ...]
"""A count for each pair (input, partials) of a product."""

_PRODUCTS = (("float16", "float16"), ("float16", "float32"), ("float32", "float32"))


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links between IPUs.

    Attributes:
      bytes_per_second: bandwidth of one link in each direction, as programs see it.
      to_neighbour: links between the two IPUs of a card (or a pair of a machine).
      across: links of a pair that routes to other pairs may cross.
      along: links from a pair to the next, in each direction.
      gateway_bytes_per_second: bandwidth of a machine's gateway to others, in each direction.
      ipus_of_gateway: IPUs of a machine, which share its gateway.
      sync_seconds: latency of the sync signal, one way per hop.
    """

    bytes_per_second: float
    to_neighbour: int
    across: int
    along: int
    # [D] two ports of 100 Gbit/s for the four IPUs of an IPU-M2000 (published teardowns); what they
    # take beside the bytes was not found.
    gateway_bytes_per_second: float = 25e9
    ipus_of_gateway: int = 4
    sync_seconds: float = 15e-9  # [M] poplibs: poplibs_test/Util.cpp setGlobalSyncLatency

    def __post_init__(self) -> None:
        counts = "to_neighbour", "across", "along", "ipus_of_gateway"
        _check_counts(self, counts, least=1)
        _check_rates(self, ("bytes_per_second", "gateway_bytes_per_second"))
        _check_rates(self, ("sync_seconds",), may_be_zero=True)


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One kind of IPU; `dataclasses.replace(IPU2, ...)` describes another.

    Raises:
      TargetError: (a `ValueError`) a field that no chip can have, by its name.

    Attributes:
      name: its name in reports.
      tiles_per_ipu: tiles that programs can use.
      bytes_per_tile: memory of one tile.
      reserved_bytes: the part of it that the loader keeps.
      code_bytes_per_tile: the part of it from which instructions can be fetched.
      clock_hz: tile cycles per second.
      workers: threads that share a tile's pipeline in turn; one issues every sixth cycle.
      macs_per_cycle: multiply-accumulates of a tile per cycle, by (input, partials).
      amp_units: units that work on output channels side by side, by (input, partials).
      conv_load_bytes: bytes of weights that the convolution units load per cycle.
      exchange_bytes: bytes that a tile sends, and receives, per cycle.
      shares_exchange_bus: whether a pair of tiles that receive the same data do so twice as fast.
      exchange_cycles: fixed cost of an exchange phase.
      sync_cycles: a sync among the tiles of one IPU.
      links: the links to other IPUs.
      host_bytes_per_second: between the host and one IPU.
      remote_bytes_per_second: between streaming memory and one IPU; 0: there is none.
    """

    name: str
    tiles_per_ipu: int
    bytes_per_tile: int
    reserved_bytes: int
    code_bytes_per_tile: int
    clock_hz: float
    workers: int = 6  # poplibs: PerformanceEstimation.hpp numWorkerContexts
    macs_per_cycle: Rates
    amp_units: Rates
    conv_load_bytes: int = 8  # poplibs: ConvModel.cpp:292; 16 with use128BitConvUnitLoad
    exchange_bytes: int = 4  # poplibs: ConvModel.cpp getExchangeBytesPerCycle
    shares_exchange_bus: bool = True  # poplibs: ConvModel.cpp getTilesPerSharedExchangeBus
    exchange_cycles: int = 100  # [M] ipu-stack: cost.rs
    sync_cycles: int = 100  # [M] tutorials: tut4 trace; [H] 64 to 150
    links: Links
    host_bytes_per_second: float
    remote_bytes_per_second: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise _invalid_field(self, "name", "a text")
        sizes = ("tiles_per_ipu", "bytes_per_tile", "code_bytes_per_tile")
        _check_counts(self, (*sizes, "workers", "conv_load_bytes", "exchange_bytes"), least=1)
        _check_counts(self, ("reserved_bytes", "exchange_cycles", "sync_cycles"), least=0)
        if self.reserved_bytes >= self.bytes_per_tile:
            requirement = f"less than bytes_per_tile, which is {self.bytes_per_tile!r}"
            raise _invalid_field(self, "reserved_bytes", requirement)
        _check_rates(self, ("clock_hz", "host_bytes_per_second"))
        _check_rates(self, ("remote_bytes_per_second",), may_be_zero=True)
        _check_products(self, ("macs_per_cycle", "amp_units"))
        if not isinstance(self.links, Links):
            raise _invalid_field(self, "links", "an ipu.targets.Links")

    @property
    def as_seen_by_tiles(self) -> Target:
        """The same for all chips that differ in what work on one IPU's tiles does not depend on.

        That work is counted in cycles, and reaches no other IPU, host or streaming memory.
        """
        return _as_seen_by_tiles(self)

    @property
    def usable_bytes_per_tile(self) -> int:
        """The bytes of a tile's memory that a program may fill."""
        return self.bytes_per_tile - self.reserved_bytes

    def seconds(self, cycles: float) -> float:
        """Returns the seconds that a number of tile cycles takes."""
        return cycles / self.clock_hz

    def cycles(self, seconds: float) -> float:
        """Returns the tile cycles in a time."""
        return seconds * self.clock_hz


@functools.lru_cache(maxsize=64)
def _as_seen_by_tiles(target: Target) -> Target:
    links = Links(bytes_per_second=1.0, to_neighbour=1, across=1, along=1)
    off_tiles: dict[str, Any] = dict(host_bytes_per_second=1.0, remote_bytes_per_second=0.0)
    return dc.replace(target, name="tiles", clock_hz=1.0, links=links, **off_tiles)


def _invalid_field(chip_part: object, name: str, requirement: str) -> TargetError:
    field = f"{type(chip_part).__name__}.{name}"
    return TargetError(f"{field} is {getattr(chip_part, name)!r}, but must be {requirement}")


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _check_counts(chip_part: object, names: Iterable[str], *, least: int) -> None:
    for name in names:
        if not _is_count(getattr(chip_part, name), least):
            raise _invalid_field(chip_part, name, f"a whole number of at least {least}")


def _check_rates(chip_part: object, names: Iterable[str], *, may_be_zero: bool = False) -> None:
    for name in names:
        value = getattr(chip_part, name)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < 0 or not (value or may_be_zero):
            raise _invalid_field(
                chip_part, name, f"a number {'of at least' if may_be_zero else 'above'} 0"
            )


def _check_products(chip_part: object, names: Iterable[str]) -> None:
    """Checks that each pair of number formats of the units has a positive count."""
    for name in names:
        value: Any = getattr(chip_part, name)
        try:
            hash(value)  # chips are keys
            counts: dict[Any, Any] = dict(value)
        except (TypeError, ValueError):
            counts = {}
        if not all(_is_count(counts.get(pair), 1) for pair in _PRODUCTS):
            pairs = ", ".join(f"({pair!r}, count)" for pair in _PRODUCTS)
            raise _invalid_field(chip_part, name, f"a tuple ({pairs}) with counts of at least 1")


# poplibs: poplibs_test/Util.cpp addGlobalExchangeConstraints: 128 Gibit/s x 0.85 per link [M].
_GC2_LINKS = Links(bytes_per_second=128 * 2**30 / 8 * 0.85, to_neighbour=4, across=2, along=2)

# [H] manual of the command line tools, gc-iputraffictest: 423.3 Gbit/s between two IPUs of an
# IPU-M2000, both ways together. [D] That is two links of 128 Gbit/s of which packets leave 0.827,
# as 0.85 on GC2; a rail is taken to have two as well (docs/hardware.md, Links).
_MK2_LINKS = Links(bytes_per_second=423.3e9 / 8 / 2 / 2, to_neighbour=2, across=2, along=2)

IPU1 = Target(
    name="ipu1",
    tiles_per_ipu=1216,  # poptorch: Utils.cpp:68 (1280 on the chip)
    bytes_per_tile=262_144,  # graphcore-ipu-research: ipu1_consts.c TMEM_SIZE
    reserved_bytes=0,  # no figure was found
    code_bytes_per_tile=131_072,  # graphcore-ipu-research: region 0
    clock_hz=1.6e9,  # [H] lbm-graphcore: 126,351,372 cycles in 78,969.6 us
    # poplibs cycle estimators: 8 units x 4 (fp16) or 1 (fp32); gives 124.5 and 31.1 TFLOP/s.
    macs_per_cycle=(
        (("float16", "float16"), 32),
        (("float16", "float32"), 32),
        (("float32", "float32"), 8),
    ),
    amp_units=(
        (("float16", "float16"), 8),
        (("float16", "float32"), 8),
        (("float32", "float32"), 8),
    ),
    links=_GC2_LINKS,
    host_bytes_per_second=32e9,  # PCIe gen 4 x16, each direction; unverified for the C2 card
    remote_bytes_per_second=0.0,
)

IPU2 = Target(
    name="ipu2",
    tiles_per_ipu=1472,  # poptorch: Utils.cpp:68
    bytes_per_tile=638_976,  # popart: available_memory_proportion_test.py
    reserved_bytes=1_104,  # [H] ipu-stack: memory.rs, 0xe7bb0
    code_bytes_per_tile=212_992,  # ipu-stack: memory.rs, 0x4c000 to 0x80000
    clock_hz=1.33e9,  # [H] examples: tutorials/poplar/tut6, 25,444,984 cycles in 19,131.6 us
    # poplibs: poplinCycleEstimators.cpp: 16 units x 4, 8 x 4, 16 x 1. [H] tessellate-ipu: 4.00
    # cycles per row of 16 x 16 halves.
    macs_per_cycle=(
        (("float16", "float16"), 64),
        (("float16", "float32"), 32),
        (("float32", "float32"), 16),
    ),
    amp_units=(
        (("float16", "float16"), 16),
        (("float16", "float32"), 8),
        (("float32", "float32"), 16),
    ),
    links=_MK2_LINKS,
    host_bytes_per_second=32e9,  # Bow release: PCIe gen 4 x16, 64 GB/s both ways together
    remote_bytes_per_second=20e9 / 4,  # 20 GB/s for a machine of four; unverified
)

IPU21 = dc.replace(
    IPU2,
    name="ipu21",
    clock_hz=1.85e9,  # [H] tessellate-ipu: notebooks/IPU Peak Flops.ipynb
)

TARGETS = {target.name: target for target in (IPU1, IPU2, IPU21)}
"""The chips by the names that `IPUConfig.ipu_model.version` takes."""
