"""`ipu.tile_mapping`: how a value is spread over tiles."""

from __future__ import annotations

import dataclasses as dc
import re

import numpy as np

from ipujax.driver.stages import Executable, Lowered
from ipujax.errors import TileMappingError
from ipujax.report.checks import check
from ipujax.targets import Target
from lowering import ir, machine

_NUMBER = re.compile(r"%(\d+)")
_SHOWN = 8


@check.guard
@dc.dataclass(frozen=True, kw_only=True, repr=False)
class TileMapping:
    """Where the elements of one value lie on the tiles of one IPU.

    A linear layout says which elements each tile holds. For one that a plan asks for, only how many
    bytes each tile holds is meant: the model knows no order within it.

    Attributes:
      value: its number in the program, as in `as_text()`.
      name: shape and dtype, as `float32[16,16]`.
      ipu: of a replica.
      pieces: what the machine model knows.
    """

    value: int
    name: str
    ipu: int
    pieces: machine.TileMapping

    @property
    def layout(self) -> str:
        """In which order elements are taken.

        "linear" is the tensor's own order; other names are the kind of operation, the operand and
        the plan that wants the tensor so. Equal names are equal orders.
        """
        return self.pieces.layout

    @property
    def intervals(self) -> list[list[tuple[int, int]]]:
        """For each tile, the elements `start` to (and without) `stop` that it holds.

        For "linear", elements are counted as in `x.ravel()`. For other layouts only their number
        on each tile is meant.
        """
        held: list[list[tuple[int, int]]] = [[] for _ in range(self.pieces.tiles)]
        for piece in self.pieces.pieces():
            if piece.stop > piece.start:
                held[piece.tile].append((piece.start, piece.stop))
        return held

    @property
    def bytes_per_tile(self) -> np.ndarray:
        """int64 [tiles]."""
        return self.pieces.bytes_per_tile()

    def __repr__(self) -> str:
        used = int(np.count_nonzero(self.bytes_per_tile))
        return (
            f"<TileMapping of %{self.value} {self.name} on IPU {self.ipu}: {used} of "
            f"{self.pieces.tiles} tiles, {self.layout}>"
        )

    def __str__(self) -> str:
        """A line for each of the first tiles that hold something."""
        held = [(tile, pieces) for tile, pieces in enumerate(self.intervals) if pieces]
        lines = [repr(self)[1:-1]]
        linear = self.layout == "linear"
        if not linear:
            lines.append("  laid out by a plan: how many bytes on each tile, not which elements")
        for tile, pieces in held[:_SHOWN]:
            parts = "".join(f"[{start}, {stop}), " for start, stop in pieces) if linear else ""
            lines.append(f"  tile {tile}: {parts}{self.bytes_per_tile[tile]:,} bytes")
        if len(held) > _SHOWN:
            lines.append(f"  and {len(held) - _SHOWN:,} more tiles")
        return "\n".join(lines)


@check.guard
def tile_mapping(
    compiled: Executable | Lowered,
    value: int | str,
    ipu: int | None = None,
    *,
    target: str | Target | None = None,
) -> TileMapping:
    """How the machine model spreads a value over tiles: which elements, or how many bytes.

    Args:
      compiled: a program, `ipu.compile(f).lower(*args)`, compiled or not.
      value: its number in the program (3 or "%3", as in `lowered.as_text()`), or the path of an
        argument ("args[0]['weights']", "kwargs['x']") or result ("results", "results[1]").
      ipu: on which IPU of a replica; None for the only one that has it.
      target: the chip, as for `report`.

    Raises:
      TileMappingError: (a `ValueError`) a value that is not there, is on several IPUs (the error
        lists them) or on none.
      TargetError: (a `ValueError`) a target that does not exist.
    """
    lowered = compiled.lowered if isinstance(compiled, Executable) else compiled
    if not isinstance(lowered, Lowered):
        raise TileMappingError(
            f"ipu.tile_mapping takes a program, not {lowered!r}",
            fix="pass ipu.compile(f).lower(*args), or what its compile() gives",
        )
    number = _number(lowered, value)
    mappings = lowered.report(target).profile.mappings
    there = sorted(place for known, place in mappings if known == number)
    typed = "" if str(value) in (f"%{number}", str(number)) else f" ({value})"
    chosen = _choose(f"%{number}{typed}", there, ipu)
    return TileMapping(
        value=number,
        name=lowered.modelled.describe(ir.ValueId(number)),
        ipu=chosen,
        pieces=mappings[number, chosen],
    )


def _choose(what: str, there: list[int], ipu: int | None) -> int:
    listed = ", ".join(map(str, there))
    if not there:
        raise TileMappingError(f"value {what} is on no IPU: it stays on the host")
    if ipu is None and len(there) > 1:
        raise TileMappingError(f"value {what} is on IPUs {listed}", fix="say which, with ipu=")
    if ipu is not None and ipu not in there:
        raise TileMappingError(f"value {what} is on IPU {listed}, not on IPU {ipu!r}")
    return there[0] if ipu is None else ipu


def _number(lowered: Lowered, value: int | str) -> int:
    program, signature = lowered.modelled, lowered.signature
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        named = dict(zip(signature.argument_names(), program.inputs, strict=False))
        named.update(zip(signature.result_names(), program.outputs, strict=False))
        quoted = value if value in named else value.replace('"', "'")
        if quoted in named:
            return named[quoted]
        shown = ", ".join(list(named)[:_SHOWN]) + ", ..." * (len(named) > _SHOWN)
        raise TileMappingError(
            f"`{program.name}` has no value {value!r}",
            fix=f"use one of {shown}, or a number of lowered.as_text(), such as '%0'",
        )
    if isinstance(value, bool) or not isinstance(value, (int, str, np.integer)):
        raise TileMappingError(f"a value is a number or a text, not {value!r}")
    number = int(value[1:]) if isinstance(value, str) else int(value)
    if not 0 <= number < len(program.avals):
        known = f"its values are %0 to %{len(program.avals) - 1}"
        raise TileMappingError(f"`{program.name}` has no value %{number}; {known}")
    return number
