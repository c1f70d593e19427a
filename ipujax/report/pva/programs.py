"""Programs: the parts of the tree, what steps run, and visitors for both."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ipujax.report.checks import check
from ipujax.report.pva.view import View
from lowering import machine

ProgramType = enum.Enum(
    "ProgramType",
    "OnTileExecute DoExchange GlobalExchange StreamCopyBegin StreamCopyMid StreamCopyEnd Sync "
    "SyncAns Sans Sequence Repeat RepeatWhile Switch OnEveryTileSwitch Call Unknown",
    module=__name__,
)
"""What a program can be; those that no report has are there for scripts that compare."""

_SEQUENCES = ("sequence", "pipeline", "task", "execute")
_STREAMS = ("load", "store", "stream_in", "stream_out", "host_call", "host", "remote")
_TYPES = {
    **dict.fromkeys(_SEQUENCES, ProgramType.Sequence),
    **dict.fromkeys(_STREAMS, ProgramType.StreamCopyMid),
    **dict.fromkeys(("operation", "compute"), ProgramType.OnTileExecute),
    **dict.fromkeys(("copy", "inter_ipu"), ProgramType.GlobalExchange),
    "repeat": ProgramType.Repeat,
    "while": ProgramType.RepeatWhile,
    "switch": ProgramType.Switch,
    "exchange": ProgramType.DoExchange,
    "sync": ProgramType.Sync,
}
"""Of nodes of the program tree and of steps, by their kinds."""


@check.guard
class ProgramVisitor:
    """Base of visitors: `program.accept(visitor)` calls `visitor.visit<type>(program)`.

    Types that a visitor has no method for are passed over. Only the program itself is visited; go
    on to `program.children` where they matter.
    """


@check.guard
@dc.dataclass(frozen=True, kw_only=True)
class Program(View):
    """A part of the program, or what a step of its execution runs.

    Equal programs are one and the same part of the report.

    Attributes:
      name: of the operation, kernel, queue or step.
      type: what it is, a `Program.Type`.
      kind: what ipujax calls that.
      cycles: of one run.
      count: how often it runs each time its parent does.
      ipu: where it runs, or None.
      origin: the user's `file:line`, or "".
    """

    Type: ClassVar[type[ProgramType]] = ProgramType
    instead: ClassVar[Mapping[str, str]] = {
        "computeset": "the model has operations, not compute sets: use .name, .cycles, .origin",
        "estimatedCyclesByTile": "use .cycles, those of the slowest tile",
        "codeBytesByTile": "use report.compilation.tiles[i].memory.category, code by tile",
        "controlCodeByTile": "use report.compilation.tiles[i].memory.category, code by tile",
        "vars": "use report.compilation.loweredVariables, the tensors and when they are there",
        "debugContext": "use .origin, the user's line",
    }

    _source: object = dc.field(repr=False)
    name: str = dc.field(compare=False)
    type: ProgramType = dc.field(compare=False)
    kind: str = dc.field(compare=False)
    cycles: int = dc.field(compare=False)
    count: int = dc.field(default=1, compare=False)
    ipu: int | None = dc.field(default=None, compare=False)
    origin: str = dc.field(default="", compare=False)
    _nodes: tuple[machine.ProgramNode, ...] = dc.field(default=(), compare=False, repr=False)

    @property
    def children(self) -> tuple[Program, ...]:
        """Its parts, in the order in which they run."""
        return tuple(map(program_of, self._nodes))

    def accept(self, visitor: object) -> None:
        """Calls the visitor's method for this type of program, if it has one."""
        visit = getattr(visitor, f"visit{self.type.name}", None)
        if visit is not None:
            visit(self)


def program_of(source: machine.ProgramNode | machine.Step) -> Program:
    """A part of the tree, or what a step runs."""
    shared = ("name", "kind", "cycles", "ipu", "origin")
    fields = {name: getattr(source, name) for name in shared}
    if isinstance(source, machine.ProgramNode):
        fields |= {"count": source.count, "_nodes": source.children}
    return Program(_source=source, type=_TYPES[source.kind], **fields)


def below(root: machine.ProgramNode) -> Iterator[Program]:
    """A node and all that are below it, each once, parents first."""
    known: set[machine.ProgramNode] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node not in known:
            known.add(node)
            waiting.extend(reversed(node.children))
            yield program_of(node)
