"""The queues that a saved program needs, and the check that the given queues fit."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.driver.saved.encoded_values import decode_aval, decode_tree, encode_aval, encode_tree
from ipujax.ground import ExecutableError, FeedError, Json, structure_text
from ipujax.host import IPUInfeedQueue, IPUOutfeedQueue, Queue
from lowering import dtype_name, ir, jaxpr, shape_of, signature_of

_KINDS: dict[str, type[Queue]] = {"infeed": IPUInfeedQueue, "outfeed": IPUOutfeedQueue}


@dc.dataclass(frozen=True)
class Need:
    """A queue that a saved program needs.

    Attributes:
      name: the program's name for it.
      kind: `infeed` or `outfeed`.
      structure: the pytree structure of an element.
      avals: shape and dtype of each of its leaves.
    """

    name: str
    kind: str
    structure: Any
    avals: tuple[jaxpr.Aval, ...]

    def __str__(self) -> str:
        return f"{self.kind} `{self.name}` of {_describe_element(self.structure, self.avals)}"

    def encode_need(self) -> Json:
        """Encodes the need as JSON."""
        tree = encode_tree(self.structure, f"{self.kind} `{self.name}`: an element")
        return [self.name, self.kind, tree, [encode_aval(aval) for aval in self.avals]]

    @classmethod
    def decode_need(cls, data: Json) -> Need:
        """Decodes a need from JSON."""
        name, kind, tree, avals = data
        return cls(name, kind, decode_tree(tree), tuple(map(decode_aval, avals)))


def list_needed_queues(program: ir.Program, queues: Sequence[Queue]) -> list[Need]:
    """Lists the needs of a program for some of its queues, in their order."""
    nodes = (node for node in ir.walk_nodes(program.body) if isinstance(node, ir.StreamOut))
    sent: dict[Any, ir.StreamOut] = {node.queue: node for node in nodes}
    needs: list[Need] = []
    for queue in queues:
        if isinstance(queue, IPUInfeedQueue):
            structure, avals = queue.structure, queue.avals
        else:
            node = sent[queue]
            structure, avals = node.structure, [_element_aval(program, node, v) for v in node.reads]
        needs.append(Need(queue.name, queue.kind, structure, tuple(avals)))
    return needs


def _element_aval(program: ir.Program, node: ir.StreamOut, value: ir.ValueId) -> jaxpr.Aval:
    """Returns the aval of one element of a leaf that a node sends."""
    aval = program.avals[value]
    shape = shape_of(aval)
    return aval if node.count is None else jaxpr.ShapedArray(shape[1:], aval.dtype)


def match_queues(
    needs: Sequence[Need],
    queues_by_name: Mapping[str, Queue],
    program: str,
    ordinal: int,
    replicas: int,
) -> list[Queue]:
    """Returns the given queues in the order of the program's needs, and prepares them for it.

    Args:
      needs: the program's.
      queues_by_name: the given queues by the program's names.
      program: its name.
      ordinal: the ordinal of the device that it runs on.
      replicas: copies of the graph.

    Raises:
      ExecutableError: one is missing, of no use, or of the wrong kind, device or elements.
    """
    needed_names = {need.name for need in needs}
    missing = [need.name for need in needs if need.name not in queues_by_name]
    if missing or needed_names < set(queues_by_name):
        extra = [name for name in queues_by_name if name not in needed_names]
        problem = (
            f"{_join_quoted(missing)} not given"
            if missing
            else f"does not know {_join_quoted(extra)}"
        )
        raise _unfit_queues_error(program, needs, problem)
    queues = [queues_by_name[need.name] for need in needs]
    for number, (need, queue) in enumerate(zip(needs, queues, strict=True)):
        wrong = _describe_mismatch(need, queue, ordinal)
        if any(queue is earlier_queue for earlier_queue in queues[:number]):
            wrong = "is given for two queues"
        if wrong:
            raise _unfit_queues_error(program, needs, f"what is given for `{need.name}` {wrong}")
    for need, queue in zip(needs, queues, strict=True):
        if isinstance(queue, IPUOutfeedQueue):
            queue.record_element_form(need.structure, need.avals)
            queue.expect(replicas)
    return queues


def _describe_mismatch(need: Need, queue: object, ordinal: int) -> str:
    """Describes why a queue does not fit a need; returns '' if it fits."""
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
    return f"has elements {_describe_element(queue.structure, queue.avals)}"


def _unfit_queues_error(program: str, needs: Sequence[Need], problem: str) -> ExecutableError:
    needed_lines = "".join(f"\n    {need}" for need in needs) or " none"
    return ExecutableError(
        f"the queues of `{program}`: {problem}; it needs:{needed_lines}",
        fix="load_executable(path, queues={name: queue, ...}) with all of these and no others",
    )


def _join_quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _describe_element(structure: object, avals: Sequence[jaxpr.Aval]) -> str:
    """Returns the text of an element's structure with a dtype and shape for each leaf."""
    return structure_text(structure, (f"{dtype_name(a)}{list(shape_of(a))}" for a in avals))
