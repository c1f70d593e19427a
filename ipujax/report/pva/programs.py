"""Programs: the parts of the tree, what steps run, and visitors for both."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from ipujax.report.pva.view import View

if TYPE_CHECKING:
    from lowering import machine


class ProgramType(enum.Enum):
    """What a program can be; those that no report has are there for scripts that compare."""

    OnTileExecute = enum.auto()
    DoExchange = enum.auto()
    GlobalExchange = enum.auto()
    StreamCopyBegin = enum.auto()
    StreamCopyMid = enum.auto()
    StreamCopyEnd = enum.auto()
    Sync = enum.auto()
    SyncAns = enum.auto()
    Sans = enum.auto()
    Sequence = enum.auto()
    Repeat = enum.auto()
    RepeatWhile = enum.auto()
    Switch = enum.auto()
    OnEveryTileSwitch = enum.auto()
    Call = enum.auto()
    Unknown = enum.auto()


_OF_NODES = {
    "sequence": ProgramType.Sequence,
    "pipeline": ProgramType.Sequence,
    "task": ProgramType.Sequence,
    "execute": ProgramType.Sequence,
    "repeat": ProgramType.Repeat,
    "while": ProgramType.RepeatWhile,
    "switch": ProgramType.Switch,
    "operation": ProgramType.OnTileExecute,
    "copy": ProgramType.GlobalExchange,
    "load": ProgramType.StreamCopyMid,
    "store": ProgramType.StreamCopyMid,
    "stream_in": ProgramType.StreamCopyMid,
    "stream_out": ProgramType.StreamCopyMid,
    "host_call": ProgramType.StreamCopyMid,
}
_OF_STEPS = {
    "compute": ProgramType.OnTileExecute,
    "exchange": ProgramType.DoExchange,
    "sync": ProgramType.Sync,
    "inter_ipu": ProgramType.GlobalExchange,
    "host": ProgramType.StreamCopyMid,
    "remote": ProgramType.StreamCopyMid,
}


class ProgramVisitor:
    """Base of visitors: `program.accept(visitor)` calls `visitor.visit<type>(program)`.

    Types that a visitor has no method for are passed over. Only the program itself is visited; go
    on to `program.children` where they matter.
    """


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
        return tuple(map(of_node, self._nodes))

    def accept(self, visitor: object) -> None:
        """Calls the visitor's method for this type of program, if it has one."""
        visit = getattr(visitor, f"visit{self.type.name}", None)
        if visit is not None:
            visit(self)


def of_node(node: machine.ProgramNode) -> Program:
    """A part of the tree."""
    return Program(
        _source=node,
        name=node.name,
        type=_OF_NODES[node.kind],
        kind=node.kind,
        cycles=node.cycles,
        count=node.count,
        ipu=node.ipu,
        origin=node.origin,
        _nodes=node.children,
    )


def of_step(step: machine.Step) -> Program:
    """What a step runs."""
    return Program(
        _source=step,
        name=step.name,
        type=_OF_STEPS[step.kind],
        kind=step.kind,
        cycles=step.cycles,
        ipu=step.ipu,
        origin=step.origin,
    )


def below(root: machine.ProgramNode) -> Iterator[Program]:
    """A node and all that are below it, each once, parents first."""
    known: set[machine.ProgramNode] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node not in known:
            known.add(node)
            waiting.extend(reversed(node.children))
            yield of_node(node)
