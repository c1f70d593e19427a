"""The implementation of `ipu.tile_mapping`: how a value is mapped to tiles."""

from __future__ import annotations

import dataclasses as dc
import re

import numpy as np

from ipujax.driver.compile_stages import Executable, Lowered
from ipujax.ground import TileMappingError
from ipujax.report import check
from ipujax.system import Target
from lowering import ir, machine

_NUMBER = re.compile(r"%(\d+)")
_SHOWN = 8


@check.guard
@dc.dataclass(frozen=True, kw_only=True, repr=False)
class TileMapping:
    """The mapping of one value's elements to the tiles of one IPU.

    A linear layout says which elements each tile holds. A layout that a plan asks for only says how
    many bytes each tile holds: the model knows no order within it.

    Attributes:
      value: its number in the program, as in `as_text()`.
      name: shape and dtype, as `float32[16,16]`.
      ipu: an IPU of a replica.
      pieces: the mapping in the machine model.
    """

    value: int
    name: str
    ipu: int
    pieces: machine.TileMapping

    @property
    def layout(self) -> str:
        """The order in which elements are taken.

        "linear" is the tensor's own order; other names are the kind of operation, the operand and
        the plan that asks for that order. Equal names are equal orders.
        """
        return self.pieces.layout

    @property
    def intervals(self) -> list[list[tuple[int, int]]]:
        """The elements `start` to (and without) `stop` that each tile holds.

        For "linear", elements are counted as in `x.ravel()`. For other layouts only their number
        on each tile means anything.
        """
        intervals_of_tile: list[list[tuple[int, int]]] = [[] for _ in range(self.pieces.tiles)]
        for piece in self.pieces.pieces():
            if piece.stop > piece.start:
                intervals_of_tile[piece.tile].append((piece.start, piece.stop))
        return intervals_of_tile

    @property
    def bytes_per_tile(self) -> np.ndarray:
        """The bytes on each tile, int64 [tiles]."""
        return self.pieces.bytes_per_tile()

    def __repr__(self) -> str:
        used = int(np.count_nonzero(self.bytes_per_tile))
        return (
            f"<TileMapping of %{self.value} {self.name} on IPU {self.ipu}: {used} of "
            f"{self.pieces.tiles} tiles, {self.layout}>"
        )

    def __str__(self) -> str:
        """Returns a line for each of the first tiles that hold something."""
        used_tiles = [(tile, pieces) for tile, pieces in enumerate(self.intervals) if pieces]
        lines = [repr(self)[1:-1]]
        is_linear = self.layout == "linear"
        if not is_linear:
            lines.append("  laid out by a plan: how many bytes on each tile, not which elements")
        for tile, pieces in used_tiles[:_SHOWN]:
            parts = "".join(f"[{start}, {stop}), " for start, stop in pieces) if is_linear else ""
            lines.append(f"  tile {tile}: {parts}{self.bytes_per_tile[tile]:,} bytes")
        if len(used_tiles) > _SHOWN:
            lines.append(f"  and {len(used_tiles) - _SHOWN:,} more tiles")
        return "\n".join(lines)


@check.guard
def tile_mapping(
    compiled: Executable | Lowered,
    value: int | str,
    ipu: int | None = None,
    *,
    target: str | Target | None = None,
) -> TileMapping:
    """Returns how the machine model maps a value to tiles: its elements, or how many bytes.

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
    number = _resolve_value_number(lowered, value)
    mappings = lowered.report(target).profile.mappings
    ipus_with_value = sorted(
        mapped_ipu for mapped_value, mapped_ipu in mappings if mapped_value == number
    )
    argument_text = "" if str(value) in (f"%{number}", str(number)) else f" ({value})"
    chosen_ipu = _choose_ipu_of_value(f"%{number}{argument_text}", ipus_with_value, ipu)
    return TileMapping(
        value=number,
        name=lowered.modelled_program.describe_aval(ir.ValueId(number)),
        ipu=chosen_ipu,
        pieces=mappings[number, chosen_ipu],
    )


def _choose_ipu_of_value(value_name: str, ipus_with_value: list[int], ipu: int | None) -> int:
    ipus_text = ", ".join(map(str, ipus_with_value))
    if not ipus_with_value:
        raise TileMappingError(f"value {value_name} is on no IPU: it stays on the host")
    if ipu is None and len(ipus_with_value) > 1:
        raise TileMappingError(
            f"value {value_name} is on IPUs {ipus_text}", fix="say which, with ipu="
        )
    if ipu is not None and ipu not in ipus_with_value:
        raise TileMappingError(f"value {value_name} is on IPU {ipus_text}, not on IPU {ipu!r}")
    return ipus_with_value[0] if ipu is None else ipu


def _resolve_value_number(lowered: Lowered, value: int | str) -> int:
    program, signature = lowered.modelled_program, lowered.signature
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        value_of_path = dict(zip(signature.argument_paths(), program.inputs, strict=False))
        value_of_path.update(zip(signature.result_paths(), program.outputs, strict=False))
        path = value if value in value_of_path else value.replace('"', "'")
        if path in value_of_path:
            return value_of_path[path]
        examples = ", ".join(list(value_of_path)[:_SHOWN]) + ", ..." * (len(value_of_path) > _SHOWN)
        raise TileMappingError(
            f"`{program.name}` has no value {value!r}",
            fix=f"use one of {examples}, or a number of lowered.as_text(), such as '%0'",
        )
    if isinstance(value, bool) or not isinstance(value, (int, str, np.integer)):
        raise TileMappingError(f"a value is a number or a text, not {value!r}")
    number = int(value[1:]) if isinstance(value, str) else int(value)
    if not 0 <= number < len(program.avals):
        valid_range = f"its values are %0 to %{len(program.avals) - 1}"
        raise TileMappingError(f"`{program.name}` has no value %{number}; {valid_range}")
    return number
