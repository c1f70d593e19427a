"""A Program as a drawing: its IPUs, what they run, and what flows between them in a step."""

from __future__ import annotations

import collections
import dataclasses as dc

from ipujax.report.words import counted, size
from lowering import HOST, ir, size_in_bytes, svg

MAX_IPUS = 16
_BOX, _GAP, _HIGH, _TOP = 140, 90, 58, 96
_KINDS = 2


@dc.dataclass
class _Contents:
    """What of a program is drawn.

    Attributes:
      count: how many operations of each kind an IPU has.
      read: the bytes that they read.
      moved: the bytes of all copies from one IPU, or the host, to another.
    """

    count: dict[int, collections.Counter[str]]
    read: dict[int, collections.Counter[str]]
    moved: collections.Counter[tuple[int, int]]

    def kinds(self, ipu: int) -> list[str]:
        """What an IPU runs, that which reads most first."""
        count = self.count[ipu]
        return [f"{name} x{count[name]}" for name, _ in self.read[ipu].most_common()]


def picture(program: ir.Program) -> str:
    """An SVG: the IPUs in a row, with arrows as wide as what is copied is large.

    What is copied in a body that runs several times counts once, as in the Program's text.
    """
    contents = _contents(program)
    ipus = list(range(min(program.ipus, MAX_IPUS)))
    moved = {pair: b for pair, b in sorted(contents.moved.items()) if max(pair) < len(ipus)}
    height = _TOP + _HIGH + max((_depth(*pair) for pair in moved), default=0) + 12
    drawing = svg.Drawing(len(ipus) * (_BOX + _GAP), height, f"program {program.name}")
    drawing.words(0, 14, f"{program.name}: {_extent(program, len(ipus))}")
    for ipu in ipus:
        x, kinds = _left(ipu), contents.kinds(ipu)
        drawing.box(x, _TOP, _BOX, _HIGH, svg.BLUE, opacity=0.25, tip=", ".join(kinds))
        drawing.words(x + 8, _TOP + 18, f"IPU {ipu}")
        for line, kind in enumerate(kinds[:_KINDS]):
            drawing.words(x + 8, _TOP + 34 + 15 * line, kind, faint=True)
    most = max(moved.values(), default=1)
    for (source, target), bytes_ in moved.items():
        _flow(drawing, source, target, size(bytes_), 1 + 3 * bytes_ / max(most, 1))
    return str(drawing)


def _extent(program: ir.Program, shown: int) -> str:
    replicas = f", {program.replicas} replicas" if program.replicas > 1 else ""
    left_out = f"; here the first {shown}" if shown < program.ipus else ""
    return counted(program.ipus, "IPU") + replicas + left_out


def _contents(program: ir.Program) -> _Contents:
    count: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    read: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    found = _Contents(count, read, collections.Counter())
    for node in ir.walk(program.body):
        if isinstance(node, ir.Execute):
            for eqn in node.kernel.jaxpr.jaxpr.eqns:
                name = eqn.primitive.name
                found.count[node.ipu][name] += 1
                found.read[node.ipu][name] += sum(size_in_bytes(v.aval) for v in eqn.invars)
        elif isinstance(node, ir.Copy):
            sent = sum(size_in_bytes(program.avals[value]) for value in node.values)
            found.moved[node.source, node.target] += sent
    return found


def _left(ipu: int) -> int:
    return ipu * (_BOX + _GAP)


def _depth(source: int, target: int) -> int:
    """How far below the boxes an arrow goes that does not lead to the next one."""
    return 0 if HOST in (source, target) or target == source + 1 else 20 + 12 * abs(target - source)


def _flow(drawing: svg.Drawing, source: int, target: int, words: str, width: float) -> None:
    if HOST in (source, target):
        x = _left(max(source, target)) + (35 if source == HOST else 105)
        drawing.line(f"M{x} {_TOP - 36}V{_TOP - 6}", width=width)
        drawing.head(x, *((_TOP - 1, "down") if source == HOST else (_TOP - 41, "up")))
        drawing.words(x, _TOP - 46, words, "middle", faint=True)
    elif target == source + 1:
        x, y = _left(source) + _BOX, _TOP + 24
        drawing.line(f"M{x} {y}h{_GAP - 6}", width=width)
        drawing.head(x + _GAP - 1, y, "right")
        drawing.words(x + _GAP / 2, y - 8, words, "middle", faint=True)
    else:
        start, end, bottom = _left(source) + 45, _left(target) + 100, _TOP + _HIGH
        low = bottom + 4 / 3 * _depth(source, target)
        drawing.line(f"M{start} {bottom}C{start} {low} {end} {low} {end} {bottom + 6}", width=width)
        drawing.head(end, bottom + 1, "up")
        middle = bottom + _depth(source, target)
        drawing.words((start + end) / 2, middle - 4, words, "middle", faint=True)
