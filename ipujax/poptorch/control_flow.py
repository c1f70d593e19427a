"""Loops and conditions on the device: `for_loop` and `cond`.

A body is traced once, where it is, between operators that stand for its beginning and its end.
`folded` then makes a graph of its own of what is between them.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch

from ipujax.doors.graphs import Call, Graph, Node, Ref, names_in
from ipujax.errors import PopTorchError
from ipujax.poptorch.checks import check
from ipujax.poptorch.operators import (
    isRunningOnIpu,
    operator,
    operator_name,
    traced,
    traced_operator,
)
from lowering import InternalError

Tensors = list[torch.Tensor]


@check.guard
def for_loop(count: int, body: Callable[..., Any], inputs: Tensors) -> Tensors:
    """Calls a function over and over, on the device, with what it gave before.

    Args:
      count: how often.
      body: as many tensors as there are inputs -> as many, of the same shapes and dtypes. Other
        tensors of the model may be used in it.
      inputs: a list of the tensors to begin with; nothing is done to these.

    Returns:
      What the last call gave.

    Raises:
      Error: (a `ValueError`) inputs that are no list of tensors, or a body that gives others.
    """
    check.integer(count, "the count of poptorch.for_loop", at_least=0)
    check.function(body, "the body of poptorch.for_loop")
    _check_inputs(inputs, "poptorch.for_loop expects input tensors (inputs)")
    if not isRunningOnIpu():
        values = [tensor.clone() for tensor in inputs]
        for _ in range(count):
            values = _listed(body(*values), "the body of poptorch.for_loop")
        return values
    *values, token = traced("body_begin", inputs)
    outputs = _listed(body(*values), "the body of poptorch.for_loop")
    before, after = _forms(inputs), _forms(outputs)
    if before != after:
        raise check.refuse(
            f"the body of poptorch.for_loop is given {before}, and gives {after}",
            "return tensors of the shapes and dtypes of its arguments, as many and in their order",
        )
    return traced("loop_end", outputs, token, count)


@check.guard
def cond(
    condition: torch.Tensor,
    then_body: Callable[..., Any],
    then_inps: Tensors,
    else_body: Callable[..., Any],
    else_inps: Tensors,
) -> Tensors:
    """Calls one of two functions, as a value on the device says.

    Args:
      condition: one bool.
      then_body: called if it is true.
      then_inps: a list of its arguments; it may use other tensors of the model, too.
      else_body: called otherwise; gives as many tensors as the other, of its shapes and dtypes.
      else_inps: a list of its arguments.

    Returns:
      What was given.

    Raises:
      Error: (a `ValueError`) arguments that are no lists of tensors, or bodies that give different
        things.
    """
    for body, name in ((then_body, "then_body"), (else_body, "else_body")):
        check.function(body, f"the {name} of poptorch.cond")
    for values in (then_inps, else_inps):
        _check_inputs(values, "poptorch.cond expects then_inps and else_inps tensors")
    if not isRunningOnIpu():
        body, values = (then_body, then_inps) if condition else (else_body, else_inps)
        return _listed(body(*values), "a body of poptorch.cond")
    *values, token = traced("body_begin", then_inps)
    yes = _listed(then_body(*values), "the then_body of poptorch.cond")
    token = traced("then_end", yes, token)
    *values, token = traced("else_begin", else_inps, token)
    no = _listed(else_body(*values), "the else_body of poptorch.cond")
    if _forms(yes) != _forms(no):
        raise check.refuse(
            f"the bodies of poptorch.cond give different things: {_forms(yes)} and {_forms(no)}",
            "let both return as many tensors, of the same shapes and dtypes",
        )
    return traced("else_end", no, token, condition)


def _check_inputs(inputs: Any, expected: str) -> None:
    if not isinstance(inputs, list):
        raise check.refuse_type(f"{expected} to be a list of tensors. (Object is not list)")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise check.refuse_type(
                f"{expected} to be a list of tensors. (Object contained in list at index {index} "
                "is not torch.tensor)"
            )


def _listed(outputs: Any, what: str) -> Tensors:
    tensors = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    if not isinstance(tensors, list | tuple) or not all(
        isinstance(tensor, torch.Tensor) for tensor in tensors
    ):
        raise check.refuse_type(f"{what} returned {outputs!r}", "return a tensor, or several")
    return list(tensors)


def _forms(tensors: Tensors) -> list[tuple[torch.Size, torch.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _copies(values: Sequence[Any], *_: Any) -> list[Any]:
    """Tensors like values, and a token, which says what belongs together."""
    return [*(torch.empty_like(value) for value in values), torch.empty(())]


def _left_over(*_: Any) -> Any:
    raise InternalError("the beginning or the end of a body was not folded")


for _schema, _form in (
    ("body_begin(Tensor[] inputs) -> Tensor[]", _copies),
    ("then_end(Tensor[] outputs, Tensor token) -> Tensor", lambda outputs, token: torch.empty(())),
    ("else_begin(Tensor[] inputs, Tensor token) -> Tensor[]", _copies),
    ("loop_end(Tensor[] outputs, Tensor token, int count) -> Tensor[]",
     lambda outputs, token, count: _copies(outputs)[:-1]),
    ("else_end(Tensor[] outputs, Tensor token, Tensor condition) -> Tensor[]",
     lambda outputs, token, condition: _copies(outputs)[:-1]),
):  # fmt: skip
    traced_operator(_schema, _form)(_left_over)

_BEGINS = {operator_name(name) for name in ("body_begin", "else_begin")}
_LOOP_END, _THEN_END, _ELSE_END = (
    operator_name(name) for name in ("loop_end", "then_end", "else_end")
)
_LISTED, _FOR_LOOP, _COND = (operator_name(name) for name in ("listed", "for_loop", "cond"))


@dc.dataclass(eq=False)
class _Body:
    """A body that is being read, or the model around all of them.

    Attributes:
      begin: the operator that it begins with; None for the model.
      graphs: of those bodies in it that have ended.
      nodes: of it, so far.
      first: of a condition in it, the first body and its arguments, once that has ended.
    """

    begin: Node | None
    graphs: dict[str, Graph]
    nodes: list[Node] = dc.field(default_factory=list[Node])
    first: tuple[Any, ...] = ()


def folded(graph: Graph, *, training: bool) -> Graph:
    """The graph with loops and conditions as operators that have graphs of their own.

    Args:
      graph: with the operators that stand for the beginning and the end of bodies.
      training: whether it is to be differentiated.

    Raises:
      PopTorchError: (a `ValueError`) there are loops or conditions in training, or something of a
        body is used outside of it.
    """
    bodies = [_Body(None, dict(graph.graphs))]
    for node in graph.nodes:
        if node.operator in _BEGINS:
            bodies.append(_Body(node, dict(graph.graphs)))
        elif node.operator in (_LOOP_END, _THEN_END, _ELSE_END):
            if training:
                raise _only_in_inference(node)
            _end(bodies.pop(), node, bodies[-1])
        else:
            bodies[-1].nodes.append(node)
    (model,) = bodies
    found = dc.replace(graph, nodes=tuple(model.nodes), graphs=model.graphs)
    _check_reads(found, {name for node in graph.nodes for name in node.results})
    return found


def _end(body: _Body, end: Node, around: _Body) -> None:
    """Puts a body that has ended, as an operator, into what is around it."""
    begin = body.begin
    if begin is None:
        raise InternalError("a body ends that has not begun")
    given = tuple(begin.args[0])
    (listed,) = begin.results
    own = tuple(f"{listed}.{i}" for i in range(len(given)))
    nodes = (Node(_LISTED, (tuple(map(Ref, own)),), results=(listed,), avals=(None,)), *body.nodes)
    outputs = tuple(end.args[0])
    others = _read_from_outside(nodes, outputs, own)
    name = f"{listed}.body"
    around.graphs[name] = Graph((*own, *others), nodes, outputs, body.graphs)
    args = (*given, *map(Ref, others))
    if end.operator == _THEN_END:
        around.first = (name, args)
        return
    if end.operator == _LOOP_END:
        call = _FOR_LOOP, (end.args[2], name, args, len(given))
    else:
        call = _COND, (end.args[2], *around.first, name, args)
    around.nodes.append(dc.replace(end, operator=call[0], args=call[1]))


def _read_from_outside(
    nodes: Sequence[Node], outputs: tuple[Any, ...], inputs: Sequence[str]
) -> list[str]:
    """The names that a body reads and does not make."""
    known, others = set(inputs), dict[str, None]()
    for reads, makes in (*((n.reads, n.results) for n in nodes), (names_in(outputs), ())):
        others.update(dict.fromkeys(name for name in reads if name not in known))
        known.update(makes)
    return list(others)


def _check_reads(graph: Graph, made: set[str]) -> None:
    """Refuses what reads a value that only a body has."""
    known = set(graph.inputs)
    for node in graph.nodes:
        if lost := sorted((node.reads & made) - known):
            raise PopTorchError(
                f"{node.operator} uses a tensor ({lost[0]}) of a body of poptorch.for_loop or "
                "poptorch.cond outside of it",
                where=node.where,
                fix="return it from the body",
            )
        known.update(node.results)


def _only_in_inference(end: Node) -> PopTorchError:
    name = "for_loop" if end.operator == _LOOP_END else "cond"
    return PopTorchError(
        f"poptorch.{name}() is only supported in inference",
        where=end.where,
        fix="use a loop of Python, or torch.where, in a model that trains",
    )


@operator(_LISTED)
def listed(values: Sequence[jax.Array]) -> list[jax.Array]:
    """What a body is given, and the token behind it."""
    return [*values, jax.numpy.zeros(())]


@operator(_FOR_LOOP)
def looped(
    call: Call, count: int, body: str, args: Sequence[jax.Array], carried: int
) -> Sequence[jax.Array]:
    """A body over and over; it changes the first of its arguments."""
    others = args[carried:]

    def step(number: Any, values: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        key = None if call.inner_key is None else jax.random.fold_in(call.inner_key, number)
        return tuple(call.graphs[body](*values, *others, key=key))

    return jax.lax.fori_loop(0, count, step, tuple(args[:carried]))


@operator(_COND)
def chosen(
    call: Call, choice: jax.Array, yes: str, yes_args: Any, no: str, no_args: Any
) -> Sequence[jax.Array]:
    """One of two bodies."""

    def of(body: str) -> Callable[..., Any]:
        return lambda *args: tuple(call.graphs[body](*args, key=call.inner_key))

    return jax.lax.cond(
        choice.reshape(()).astype(bool),
        lambda yes_args, _: of(yes)(*yes_args),
        lambda _, no_args: of(no)(*no_args),
        tuple(yes_args),
        tuple(no_args),
    )
