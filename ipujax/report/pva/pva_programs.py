"""The views of programs: parts of the program tree and steps, and visitors of both."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ipujax.report.pva.view import View
from ipujax.report.report_checks import check
from lowering import machine

ProgramType = enum.Enum(
    "ProgramType",
    "OnTileExecute DoExchange GlobalExchange StreamCopyBegin StreamCopyMid StreamCopyEnd Sync "
    "SyncAns Sans Sequence Repeat RepeatWhile Switch OnEveryTileSwitch Call Unknown",
    module=__name__,
)
"""The types of programs; those that no report has are there for scripts that compare."""

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
"""The type of a node of the program tree or of a step, by its kind."""


@check.guard
class ProgramVisitor:
    """The base of visitors; `program.accept(visitor)` calls `visitor.visit<type>(program)`.

    Types that a visitor has no method for are passed over. Only the program itself is visited;
    visit `program.children` where they matter.
    """


@check.guard
@dc.dataclass(frozen=True, kw_only=True)
class Program(View):
    """A part of the program, or what a step of its execution runs.

    Equal programs are one and the same part of the report.

    Attributes:
      name: the name of the operation, kernel, queue or step.
      type: its type, a `Program.Type`.
      kind: ipujax's name of that type.
      cycles: the cycles of one run.
      count: how often it runs each time its parent does.
      ipu: the IPU that it runs on, or None.
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
        """The parts of the program, in the order in which they run."""
        return tuple(map(view_of_program, self._nodes))

    def accept(self, visitor: object) -> None:
        """Calls the visitor's method for this type of program, if it has one."""
        visit = getattr(visitor, f"visit{self.type.name}", None)
        if visit is not None:
            visit(self)


def view_of_program(source: machine.ProgramNode | machine.Step) -> Program:
    """Returns the view of a part of the program tree, or of what a step runs."""
    shared_fields = ("name", "kind", "cycles", "ipu", "origin")
    fields = {name: getattr(source, name) for name in shared_fields}
    if isinstance(source, machine.ProgramNode):
        fields |= {"count": source.count, "_nodes": source.children}
    return Program(_source=source, type=_TYPES[source.kind], **fields)


def walk_programs(root: machine.ProgramNode) -> Iterator[Program]:
    """Yields a node and all nodes below it, each once, parents first."""
    visited: set[machine.ProgramNode] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in visited:
            visited.add(node)
            stack.extend(reversed(node.children))
            yield view_of_program(node)
