"""The queues that a saved program needs: what it says of them, and whether those given fit."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.checks.structures import shown
from ipujax.errors import ExecutableError, FeedError
from ipujax.host.queues import Queue
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.saved.values import Json, decode_aval, decode_tree, encode_aval, encode_tree
from lowering import dtype_name, ir, jaxpr, shape_of, signature_of

_KINDS: dict[str, type[Queue]] = {"infeed": IPUInfeedQueue, "outfeed": IPUOutfeedQueue}


@dc.dataclass(frozen=True)
class Need:
    """A queue that a program needs.

    Attributes:
      name: that the program has for it.
      kind: `infeed` or `outfeed`.
      structure: the pytree structure of an element.
      avals: shape and dtype of each of its leaves.
    """

    name: str
    kind: str
    structure: Any
    avals: tuple[jaxpr.Aval, ...]

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}` of {_described(self.structure, self.avals)}"

    def encoded(self) -> Json:
        """As JSON."""
        tree = encode_tree(self.structure, f"{self.kind} `{self.name}`: an element")
        return [self.name, self.kind, tree, [encode_aval(aval) for aval in self.avals]]

    @classmethod
    def decoded(cls, data: Json) -> Need:
        """What `encoded` gave."""
        name, kind, tree, avals = data
        return cls(name, kind, decode_tree(tree), tuple(map(decode_aval, avals)))


def needs_of(program: ir.Program, queues: Sequence[Queue]) -> list[Need]:
    """What a program needs, in the order of these queues of its."""
    nodes = (node for node in ir.walk(program.body) if isinstance(node, ir.StreamOut))
    sent: dict[Any, ir.StreamOut] = {node.queue: node for node in nodes}
    needs: list[Need] = []
    for queue in queues:
        if isinstance(queue, IPUInfeedQueue):
            structure, avals = queue.structure, queue.avals
        else:
            node = sent[queue]
            structure, avals = node.structure, [_element(program, node, v) for v in node.reads]
        needs.append(Need(queue.name, queue.kind, structure, tuple(avals)))
    return needs


def _element(program: ir.Program, node: ir.StreamOut, value: ir.ValueId) -> jaxpr.Aval:
    """One element of a leaf that a node sends."""
    aval = program.avals[value]
    shape = shape_of(aval)
    return aval if node.count is None else jaxpr.ShapedArray(shape[1:], aval.dtype)


def chosen(
    needs: Sequence[Need], given: Mapping[str, Queue], program: str, ordinal: int, replicas: int
) -> list[Queue]:
    """The queues that a program will use, in the order of its needs; they are told so.

    Args:
      needs: the program's.
      given: by the program's names.
      program: its name.
      ordinal: of the device that it runs on.
      replicas: copies of the graph.

    Raises:
      ExecutableError: one is missing, of no use, or of the wrong kind, device or elements.
    """
    wanted = {need.name for need in needs}
    missing = [need.name for need in needs if need.name not in given]
    if missing or wanted < set(given):
        extra = [name for name in given if name not in wanted]
        what = f"{_names(missing)} not given" if missing else f"does not know {_names(extra)}"
        raise _unfit(program, needs, what)
    queues = [given[need.name] for need in needs]
    for number, (need, queue) in enumerate(zip(needs, queues, strict=True)):
        wrong = _wrong(need, queue, ordinal)
        if any(queue is other for other in queues[:number]):
            wrong = "is given for two queues"
        if wrong:
            raise _unfit(program, needs, f"what is given for `{need.name}` {wrong}")
    for need, queue in zip(needs, queues, strict=True):
        if isinstance(queue, IPUOutfeedQueue):
            queue.announce(need.structure, need.avals)
            queue.expect(replicas)
    return queues


def _wrong(need: Need, queue: Any, ordinal: int) -> str:
    """Why a queue does not fit; '' if it does."""
    if not isinstance(queue, _KINDS[need.kind]):
        return f"is a {type(queue).__name__}"
    try:
        queue.check_device(ordinal)
    except FeedError as error:
        return f"does not fit the device: {error}"
    if not isinstance(queue, IPUInfeedQueue):
        return ""
    fits = queue.structure == need.structure
    if fits and signature_of(queue.avals) == signature_of(need.avals):
        return ""
    return f"has elements {_described(queue.structure, queue.avals)}"


def _unfit(program: str, needs: Sequence[Need], what: str) -> ExecutableError:
    known = "".join(f"\n    {need}" for need in needs) or " none"
    return ExecutableError(
        f"the queues of `{program}`: {what}; it needs:{known}",
        fix="load_executable(path, queues={name: queue, ...}) with all of these and no others",
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _described(structure: Any, avals: Sequence[jaxpr.Aval]) -> str:
    """An element, with dtypes and shapes in the place of its leaves."""
    return shown(structure, (f"{dtype_name(a)}{list(shape_of(a))}" for a in avals))
