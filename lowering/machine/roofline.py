"""Operations against the peaks of a chip: the attained FLOP/s, and the roofs above them.

The roofline model (Williams, Waterman and Patterson, 2009): FLOPs take at least their number over
the peak of the units that compute them, and bytes at least their number over the bandwidth of the
memory that they pass. What takes longest is the roof of an operation.

FLOPs are those of `docs/machine_model.md`, Operations: 2 for a multiply-accumulate of a product,
1 for an elementwise function of one element.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence
from typing import Literal

from lowering.machine.cost import name_units
from lowering.machine.mapping import VECTOR_BYTES
from lowering.machine.profile import OperationTotal
from lowering.machine.target import Target

LOADED_BYTES = 16
STORED_BYTES = VECTOR_BYTES
"""Bytes that a tile loads and stores per cycle at most: two vectors of interleaved memory and one
(docs/hardware.md, Chips)."""

Resource = Literal["compute", "tile_memory", "exchange", "streaming_memory"]
BANDWIDTHS = ("tile_memory", "exchange", "streaming_memory")
"""The resources whose roofs are bytes per second, by the names of their roofs."""

_BYTES_OF_NUMBER = {"float16": 2, "float32": 4}


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A peak of one IPU.

    Attributes:
      name: a word, such as `amp_float16_float32` or `tile_memory`.
      title: what people call it.
      resource: "compute" for FLOP/s; for bytes per second the memory, as its name.
      per_second: FLOPs or bytes per second, of all tiles together.
      source: what it follows from, and where that is from.
    """

    name: str
    title: str
    resource: Resource
    per_second: float
    source: str


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """An operation on one IPU, with all its runs in a call.

    Attributes:
      number: its number, as in `OperationTotal`.
      ipu: the IPU that runs it.
      label: its name for people.
      flops: floating-point operations.
      cycles: cycles, exchange and syncs included.
      bytes: read and written on tiles.
      exchange_bytes: what the busiest tile receives, times the tiles of an IPU.
      remote_bytes: from and to streaming memory.
      flops_per_second: what it attains.
      units: the name of the roof of the units that compute it.
      bound: the name of its lowest roof.
      roof: FLOP/s under that roof.
    """

    number: int
    ipu: int
    label: str
    flops: float
    cycles: float
    bytes: float
    exchange_bytes: float
    remote_bytes: float
    flops_per_second: float
    units: str
    bound: str
    roof: float

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte that is read or written on tiles; None without bytes."""
        return self.flops / self.bytes if self.bytes else None

    @property
    def share_of_roof(self) -> float:
        """The attained share of its lowest roof, 0 to 1."""
        return self.flops_per_second / self.roof


@dc.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Roofline:
    """The roofs of a chip, and the operations below them.

    Attributes:
      roofs: compute first, the highest first; then bandwidths.
      points: operations with floating-point operations, most cycles first.
    """

    roofs: tuple[Roof, ...]
    points: tuple[RooflinePoint, ...]

    def __str__(self) -> str:
        """Returns two tables for a terminal: roofs, and the operations of most cycles."""
        return "\n".join((*_format_roofs(self.roofs), "", *_format_points(self)))

    def __repr__(self) -> str:
        return f"<Roofline of {len(self.points)} operations below {len(self.roofs)} roofs>"


def list_roofs(target: Target) -> tuple[Roof, ...]:
    """Returns the roofs of one IPU of a chip."""
    per_cycle = target.tiles_per_ipu * target.clock_hz
    chip = f"{target.tiles_per_ipu} tiles at {target.clock_hz / 1e9:g} GHz"
    compute = [
        Roof(
            name=name_units((inputs, sums), inputs),
            title=f"AMP {inputs}, sums in {sums}",
            resource="compute",
            per_second=2 * macs * per_cycle,
            source=f"{macs} multiply-accumulates a tile and cycle (poplibs: "
            f"poplinCycleEstimators.cpp), {chip}",
        )
        for (inputs, sums), macs in target.macs_per_cycle
    ]
    compute += [
        Roof(
            name=name_units(None, number),
            title=f"vector {number}",
            resource="compute",
            per_second=2 * (VECTOR_BYTES // size) * per_cycle,
            source=f"a vector of {VECTOR_BYTES // size} multiply-accumulates a tile and cycle "
            f"(poplibs: ConvModel.cpp), {chip}",
        )
        for number, size in _BYTES_OF_NUMBER.items()
    ]
    compute.sort(key=lambda roof: -roof.per_second)
    return (*compute, *_list_bandwidths(target, per_cycle, chip))


def _list_bandwidths(target: Target, per_cycle: float, chip: str) -> list[Roof]:
    loads_and_stores = LOADED_BYTES + STORED_BYTES
    roofs = [
        Roof(
            name="tile_memory",
            title="tile memory",
            resource="tile_memory",
            per_second=loads_and_stores * per_cycle,
            source=f"{LOADED_BYTES} bytes loaded and {STORED_BYTES} stored a tile and cycle "
            f"(poplibs: ld2xst64pace), {chip}",
        ),
        Roof(
            name="exchange",
            title="exchange",
            resource="exchange",
            per_second=target.exchange_bytes * per_cycle,
            source=f"{target.exchange_bytes} bytes received a tile and cycle (poplibs: "
            f"ConvModel.cpp), {chip}",
        ),
    ]
    if target.remote_bytes_per_second:
        roofs.append(
            Roof(
                name="streaming_memory",
                title="streaming memory",
                resource="streaming_memory",
                per_second=target.remote_bytes_per_second,
                source="an IPU's share of its machine's memory, unverified "
                "(docs/hardware.md, Host and streaming memory)",
            )
        )
    return roofs


def build_roofline(operations: Iterable[OperationTotal], target: Target) -> Roofline | None:
    """Places operations below the roofs of a chip.

    Args:
      operations: those without floating-point operations are left out.
      target: the chip.

    Returns:
      The roofline; None if operations do not say which units compute them, as in reports of
      earlier versions.
    """
    roofs = list_roofs(target)
    rates = {roof.name: roof.per_second for roof in roofs}
    computing = [operation for operation in operations if operation.flops and operation.cycles]
    if not all(operation.units in rates for operation in computing):
        return None
    points = tuple(_place_operation(operation, target, rates) for operation in computing)
    return Roofline(roofs=roofs, points=points)


def _place_operation(
    operation: OperationTotal, target: Target, rates: dict[str, float]
) -> RooflinePoint:
    bytes_of_roof = {
        "tile_memory": operation.bytes,
        "exchange": operation.exchange_bytes * target.tiles_per_ipu,
        "streaming_memory": operation.remote_bytes,
    }
    seconds = {operation.units: operation.flops / rates[operation.units]}
    seconds |= {
        name: bytes_ / rates[name] for name, bytes_ in bytes_of_roof.items() if name in rates
    }
    bound = max(seconds, key=lambda name: seconds[name])
    return RooflinePoint(
        number=operation.number,
        ipu=operation.ipu,
        label=operation.label,
        flops=operation.flops,
        cycles=operation.cycles,
        bytes=operation.bytes,
        exchange_bytes=bytes_of_roof["exchange"],
        remote_bytes=operation.remote_bytes,
        flops_per_second=operation.flops / target.seconds(operation.cycles),
        units=operation.units,
        bound=bound,
        roof=operation.flops / seconds[bound],
    )


_SHOWN = 20
_RATE_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _format_rate(rate: float, unit: str) -> str:
    """Returns a rate with three digits and a prefix: `62.6 TFLOP/s`."""
    scale, prefix = next(((s, p) for s, p in _RATE_UNITS if rate >= 0.9995 * s), (1.0, ""))
    return f"{_format_three_digits(rate / scale)} {prefix}{unit}"


def _format_three_digits(number: float) -> str:
    """Returns a number with three digits that count, as `0.742`, `7.5` or `1,230`."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:.3g}"


def _format_roofs(roofs: Sequence[Roof]) -> list[str]:
    width = max(len(roof.title) for roof in roofs)
    lines: list[str] = []
    for roof in roofs:
        unit = "FLOP/s" if roof.resource == "compute" else "B/s"
        lines.append(
            f"{roof.title:{width}}  {_format_rate(roof.per_second, unit):>12}  {roof.source}"
        )
    return lines


def _format_points(roofline: Roofline) -> list[str]:
    titles = {roof.name: roof.title for roof in roofline.roofs}
    lines = [f"{'FLOP/byte':>9}  {'attained':>12}  {'of roof':>7}  {'lowest roof':28}  operation"]
    for point in roofline.points[:_SHOWN]:
        intensity = "-" if point.intensity is None else _format_three_digits(point.intensity)
        attained = _format_rate(point.flops_per_second, "FLOP/s")
        lines.append(
            f"{intensity:>9}  {attained:>12}  {point.share_of_roof:>7.1%}  "
            f"{titles[point.bound]:28}  {point.label} (IPU {point.ipu})"
        )
    left_out = len(roofline.points) - _SHOWN
    return [*lines, f"and {left_out} more operations"] if left_out > 0 else lines
