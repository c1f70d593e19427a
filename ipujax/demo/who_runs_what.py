"""Prints a table of a training Program: the operations of each IPU, and the copies between them."""

from __future__ import annotations

import collections
import math
import shutil
import textwrap

from lowering import HOST, ir, jaxpr, marks, ops, shape_of

_SHOWN = 6
_PARTS = ("queues", "forward", "backward", "update")
_INDENT = 18  # of what a part runs


class _Kinds:
    """A count of operations by kind, with the number of elements that they read."""

    def __init__(self) -> None:
        self.count: collections.Counter[str] = collections.Counter()
        self.read: collections.Counter[str] = collections.Counter()

    def count_operation(self, name: str, size: int = 0) -> None:
        self.count[name] += 1
        self.read[name] += size

    def __str__(self) -> str:
        """Returns the kinds as text, largest readers first; the smaller ones are only counted."""
        names = [name for name, _ in self.read.most_common()]
        listed_kinds = [f"{n} x{self.count[n]}" if self.count[n] > 1 else n for n in names[:_SHOWN]]
        num_unlisted = len(names) - len(listed_kinds)
        words = listed_kinds + [f"{num_unlisted} more kinds"] * bool(num_unlisted) or ["-"]
        lines = textwrap.wrap(
            ", ".join(word.replace(" ", "~") for word in words),  # each stays on a line
            max(shutil.get_terminal_size((100, 24)).columns - _INDENT, 1),
            break_long_words=False,
            break_on_hyphens=False,
        )
        return f"\n{' ' * _INDENT}".join(lines).replace("~", " ")


def who_runs_what(program: ir.Program) -> str:
    """Lists the operations of each IPU by part of a training step, and the copies between IPUs."""
    work: dict[int, dict[str, _Kinds]] = collections.defaultdict(
        lambda: collections.defaultdict(_Kinds)
    )
    moved: collections.Counter[tuple[int, int]] = collections.Counter()
    for node in ir.walk_nodes(program.body):
        match node:
            case ir.Execute():
                for eqn in node.kernel.jaxpr.jaxpr.eqns:
                    size = sum(math.prod(shape_of(atom.aval)) for atom in eqn.invars)
                    work[node.ipu][_training_part(jaxpr.name_stack(eqn))].count_operation(
                        ops.word_of_equation(eqn), size
                    )
            case ir.Copy() if HOST not in (node.source, node.target):
                moved[node.source, node.target] += sum(
                    _value_bytes(program, v) for v in node.values
                )
            case ir.StreamIn():
                work[node.ipu]["queues"].count_operation(f"takes from {node.queue.name}")
            case ir.StreamOut():
                work[node.ipu]["queues"].count_operation(f"sends to {node.queue.name}")
            case _:
                continue
    lines = [f"{program.name}: which IPU runs what"]
    for ipu in sorted(work):
        lines += [f"  IPU {ipu} {part:<9} {work[ipu][part]}" for part in _PARTS]
    for (source, target), size in sorted(moved.items()):
        lines.append(f"  IPU {source} -> IPU {target}: {size:,} bytes each step")
    return "\n".join(lines)


def _training_part(stack: str) -> str:
    if marks.read_marks(stack).backward:
        return "backward"
    return "forward" if "jvp(" in stack else "update"  # what was not differentiated


def _value_bytes(program: ir.Program, value: int) -> int:
    aval = program.avals[value]
    return math.prod(aval.shape) * aval.dtype.itemsize
