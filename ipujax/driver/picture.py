"""Draws a Program as SVG: its IPUs, their operations, and the copies between them."""

from __future__ import annotations

import collections
import dataclasses as dc

from ipujax.ground import count_with_noun, format_bytes
from lowering import HOST, ir, ops, size_in_bytes, svg

MAX_IPUS = 16
_BOX, _GAP, _HIGH, _TOP = 140, 90, 58, 96
_KINDS = 2


@dc.dataclass
class _Contents:
    """The operations and copies of a program, counted per IPU for a drawing.

    Attributes:
      count: how many operations of each kind an IPU has.
      read: the bytes that they read.
      moved: the bytes of all copies from one IPU, or the host, to another.
    """

    count: dict[int, collections.Counter[str]]
    read: dict[int, collections.Counter[str]]
    moved: collections.Counter[tuple[int, int]]

    def list_operations(self, ipu: int) -> list[str]:
        """Returns the operations of an IPU with their counts, largest reader first."""
        count = self.count[ipu]
        return [f"{name} x{count[name]}" for name, _ in self.read[ipu].most_common()]


def draw_program(program: ir.Program) -> str:
    """Draws a program as SVG: the IPUs in a row, with arrows as wide as the copies are large.

    What is copied in a body that runs several times counts once, as in the Program's text.
    """
    contents = _count_contents(program)
    ipus = list(range(min(program.ipus, MAX_IPUS)))
    moved = {pair: b for pair, b in sorted(contents.moved.items()) if max(pair) < len(ipus)}
    height = _TOP + _HIGH + max((_arrow_depth(*pair) for pair in moved), default=0) + 12
    drawing = svg.Drawing(len(ipus) * (_BOX + _GAP), height, f"program {program.name}")
    drawing.draw_text(0, 14, f"{program.name}: {_describe_ipus_and_replicas(program, len(ipus))}")
    for ipu in ipus:
        x, kinds = _box_left_edge(ipu), contents.list_operations(ipu)
        drawing.draw_box(x, _TOP, _BOX, _HIGH, svg.BLUE, opacity=0.25, tip=", ".join(kinds))
        drawing.draw_text(x + 8, _TOP + 18, f"IPU {ipu}")
        for line, kind in enumerate(kinds[:_KINDS]):
            drawing.draw_text(x + 8, _TOP + 34 + 15 * line, kind, faint=True)
    most = max(moved.values(), default=1)
    for (source, target), bytes_ in moved.items():
        _draw_arrow(drawing, source, target, format_bytes(bytes_), 1 + 3 * bytes_ / max(most, 1))
    return str(drawing)


def _describe_ipus_and_replicas(program: ir.Program, num_drawn: int) -> str:
    replicas = f", {program.replicas} replicas" if program.replicas > 1 else ""
    left_out = f"; here the first {num_drawn}" if num_drawn < program.ipus else ""
    return count_with_noun(program.ipus, "IPU") + replicas + left_out


def _count_contents(program: ir.Program) -> _Contents:
    count: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    read: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    contents = _Contents(count, read, collections.Counter())
    for node in ir.walk_nodes(program.body):
        if isinstance(node, ir.Execute):
            for eqn in node.kernel.jaxpr.jaxpr.eqns:
                name = ops.word_of_equation(eqn)
                contents.count[node.ipu][name] += 1
                contents.read[node.ipu][name] += sum(size_in_bytes(v.aval) for v in eqn.invars)
        elif isinstance(node, ir.Copy):
            sent = sum(size_in_bytes(program.avals[value]) for value in node.values)
            contents.moved[node.source, node.target] += sent
    return contents


def _box_left_edge(ipu: int) -> int:
    return ipu * (_BOX + _GAP)


def _arrow_depth(source: int, target: int) -> int:
    """Returns how far below the boxes an arrow runs that skips IPUs; 0 for other arrows."""
    return 0 if HOST in (source, target) or target == source + 1 else 20 + 12 * abs(target - source)


def _draw_arrow(drawing: svg.Drawing, source: int, target: int, words: str, width: float) -> None:
    if HOST in (source, target):
        x = _box_left_edge(max(source, target)) + (35 if source == HOST else 105)
        drawing.draw_line(f"M{x} {_TOP - 36}V{_TOP - 6}", width=width)
        drawing.draw_arrow_head(x, *((_TOP - 1, "down") if source == HOST else (_TOP - 41, "up")))
        drawing.draw_text(x, _TOP - 46, words, "middle", faint=True)
    elif target == source + 1:
        x, y = _box_left_edge(source) + _BOX, _TOP + 24
        drawing.draw_line(f"M{x} {y}h{_GAP - 6}", width=width)
        drawing.draw_arrow_head(x + _GAP - 1, y, "right")
        drawing.draw_text(x + _GAP / 2, y - 8, words, "middle", faint=True)
    else:
        start, end, bottom = _box_left_edge(source) + 45, _box_left_edge(target) + 100, _TOP + _HIGH
        low = bottom + 4 / 3 * _arrow_depth(source, target)
        drawing.draw_line(
            f"M{start} {bottom}C{start} {low} {end} {low} {end} {bottom + 6}", width=width
        )
        drawing.draw_arrow_head(end, bottom + 1, "up")
        middle = bottom + _arrow_depth(source, target)
        drawing.draw_text((start + end) / 2, middle - 4, words, "middle", faint=True)
