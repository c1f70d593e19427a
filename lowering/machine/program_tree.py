"""The program as a tree with cycles: data for those who ask where the time goes, and why."""

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
      kind: what it is.
      name: what to call it: a kernel's or operation's name, a queue's, `stage 2 fwd`.
      cycles: of one run, from its start to its end.
      count: how often it runs each time its parent does.
      ipu: where it runs; None for what concerns several or none.
      origin: the user's `file:line`, or "".
      operation: the number of the operation that it is, see `OperationTotal`; None for a whole.
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
