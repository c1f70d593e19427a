"""A table of a Program: which IPU runs which operations, and what moves between them."""

from __future__ import annotations

import collections
import math

from lowering import HOST, ir, jaxpr, marks

_SHOWN = 8


def who_runs_what(program: ir.Program) -> str:
    """The operations of each IPU, forward and backward, and the copies between IPUs."""
    work: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    back: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    moved: collections.Counter[tuple[int, int]] = collections.Counter()
    for node in ir.walk(program.body):
        match node:
            case ir.Execute():
                for eqn in node.kernel.jaxpr.jaxpr.eqns:
                    backward = marks.read(jaxpr.name_stack(eqn)).backward
                    (back if backward else work)[node.ipu][eqn.primitive.name] += 1
            case ir.Copy() if HOST not in (node.source, node.target):
                moved[node.source, node.target] += sum(_bytes(program, v) for v in node.values)
            case ir.StreamIn():
                work[node.ipu][f"stream-in {node.queue.name}"] += 1
            case ir.StreamOut():
                work[node.ipu][f"stream-out {node.queue.name}"] += 1
            case _:
                continue
    lines = [f"{program.name}: which IPU runs what"]
    for ipu in sorted(work.keys() | back.keys()):
        lines.append(f"  IPU {ipu} forward:  {_listed(work[ipu])}")
        lines.append(f"        backward: {_listed(back[ipu])}")
    for (source, target), size in sorted(moved.items()):
        lines.append(f"  IPU {source} -> IPU {target}: {size:,} bytes each step")
    return "\n".join(lines)


def _listed(counted: collections.Counter[str]) -> str:
    shown = [f"{name} x{n}" if n > 1 else name for name, n in counted.most_common(_SHOWN)]
    rest = len(counted) - len(shown)
    return ", ".join(shown + [f"{rest} more kinds"] * bool(rest)) or "nothing"


def _bytes(program: ir.Program, value: int) -> int:
    aval = program.avals[value]
    return math.prod(aval.shape) * aval.dtype.itemsize
