"""A table of a training Program: which IPU runs which operations, and what moves between them."""

from __future__ import annotations

import collections
import math
import shutil
import textwrap

from lowering import HOST, ir, jaxpr, marks, shape_of

_SHOWN = 6
_PARTS = ("queues", "forward", "backward", "update")
_INDENT = 18  # of what a part runs


class _Kinds:
    """Kinds of operations: how many of each, and how much they read."""

    def __init__(self) -> None:
        self.count: collections.Counter[str] = collections.Counter()
        self.read: collections.Counter[str] = collections.Counter()

    def add(self, name: str, size: int = 0) -> None:
        self.count[name] += 1
        self.read[name] += size

    def __str__(self) -> str:
        """The kinds that read most, first; the smaller ones are counted."""
        names = [name for name, _ in self.read.most_common()]
        shown = [f"{n} x{self.count[n]}" if self.count[n] > 1 else n for n in names[:_SHOWN]]
        rest = len(names) - len(shown)
        words = shown + [f"{rest} more kinds"] * bool(rest) or ["-"]
        lines = textwrap.wrap(
            ", ".join(word.replace(" ", "~") for word in words),  # each stays on a line
            max(shutil.get_terminal_size((100, 24)).columns - _INDENT, 1),
            break_long_words=False,
            break_on_hyphens=False,
        )
        return f"\n{' ' * _INDENT}".join(lines).replace("~", " ")


def who_runs_what(program: ir.Program) -> str:
    """The operations of each IPU by their part in a training step, and the copies between IPUs."""
    work: dict[int, dict[str, _Kinds]] = collections.defaultdict(
        lambda: collections.defaultdict(_Kinds)
    )
    moved: collections.Counter[tuple[int, int]] = collections.Counter()
    for node in ir.walk(program.body):
        match node:
            case ir.Execute():
                for eqn in node.kernel.jaxpr.jaxpr.eqns:
                    size = sum(math.prod(shape_of(atom.aval)) for atom in eqn.invars)
                    work[node.ipu][_part(jaxpr.name_stack(eqn))].add(eqn.primitive.name, size)
            case ir.Copy() if HOST not in (node.source, node.target):
                moved[node.source, node.target] += sum(_bytes(program, v) for v in node.values)
            case ir.StreamIn():
                work[node.ipu]["queues"].add(f"takes from {node.queue.name}")
            case ir.StreamOut():
                work[node.ipu]["queues"].add(f"sends to {node.queue.name}")
            case _:
                continue
    lines = [f"{program.name}: which IPU runs what"]
    for ipu in sorted(work):
        lines += [f"  IPU {ipu} {part:<9} {work[ipu][part]}" for part in _PARTS]
    for (source, target), size in sorted(moved.items()):
        lines.append(f"  IPU {source} -> IPU {target}: {size:,} bytes each step")
    return "\n".join(lines)


def _part(stack: str) -> str:
    if marks.read(stack).backward:
        return "backward"
    return "forward" if "jvp(" in stack else "update"  # what was not differentiated


def _bytes(program: ir.Program, value: int) -> int:
    aval = program.avals[value]
    return math.prod(aval.shape) * aval.dtype.itemsize
