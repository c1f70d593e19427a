"""The program as a tree with cycles, for reports on where the time goes."""

from __future__ import annotations

import dataclasses as dc
from typing import Literal, TypeAlias

NodeKind: TypeAlias = Literal[
    "sequence",
    "repeat",
    "while",
    "switch",
    "pipeline",
    "task",
    "execute",
    "operation",
    "copy",
    "load",
    "store",
    "stream_in",
    "stream_out",
    "host_call",
]


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgramNode:
    """A part of a program. A part that is there several times is one node with several parents.

    Attributes:
      kind: the kind of part.
      name: a kernel's or operation's name, a queue's, `stage 2 fwd`.
      cycles: cycles of one run, from its start to its end.
      count: how often it runs each time its parent does.
      ipu: the IPU that runs it; None for several or none.
      origin: the user's `file:line`, or "".
      operation: the number of its operation, see `OperationTotal`; None for parts of several.
      children: its parts, in the order in which they run.
    """

    kind: NodeKind
    name: str
    cycles: int
    count: int = 1
    ipu: int | None = None
    origin: str = ""
    operation: int | None = None
    children: tuple[ProgramNode, ...] = ()
