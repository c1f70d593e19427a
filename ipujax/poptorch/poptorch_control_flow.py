"""The control flow on the device, `for_loop` and `cond`.

A body is traced once, inline, between operators that mark its beginning and its end.
`fold_control_flow` then moves the nodes between them into a graph of their own.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import torch

from ipujax.doors.graphs import Call, Graph, Node, Ref, names_of_refs
from ipujax.ground import InternalError, PopTorchError
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_operators import (
    define_traced_operator,
    isRunningOnIpu,
    operator,
    qualify_operator_name,
    trace_operator,
)

Tensors = list[torch.Tensor]


@check.guard
def for_loop(count: int, body: Callable[..., object], inputs: Tensors) -> Tensors:
    """Calls a function repeatedly on the device, each time with the results of the last call.

    Args:
      count: how often the body is called.
      body: a function of as many tensors as there are inputs, which returns as many, of the same
        shapes and dtypes. It may use other tensors of the model.
      inputs: a list of the tensors to begin with; nothing is done to these.

    Returns:
      The results of the last call.

    Raises:
      Error: (a `ValueError`) inputs that are no list of tensors, or a body that gives others.
    """
    check.require_integer(count, "the count of poptorch.for_loop", at_least=0)
    check.require_function(body, "the body of poptorch.for_loop")
    _check_tensor_list(inputs, "poptorch.for_loop expects input tensors (inputs)")
    if not isRunningOnIpu():
        values = [tensor.clone() for tensor in inputs]
        for _ in range(count):
            values = _list_tensors(body(*values), "the body of poptorch.for_loop")
        return values
    *values, token = trace_operator("body_begin", inputs)
    outputs = _list_tensors(body(*values), "the body of poptorch.for_loop")
    input_specs, output_specs = _shapes_and_dtypes(inputs), _shapes_and_dtypes(outputs)
    if input_specs != output_specs:
        raise check.value_error(
            f"the body of poptorch.for_loop is given {input_specs}, and gives {output_specs}",
            "return tensors of the shapes and dtypes of its arguments, as many and in their order",
        )
    return trace_operator("loop_end", outputs, token, count)


@check.guard
def cond(
    condition: torch.Tensor,
    then_body: Callable[..., object],
    then_inps: Tensors,
    else_body: Callable[..., object],
    else_inps: Tensors,
) -> Tensors:
    """Calls one of two functions, chosen by a boolean value on the device.

    Args:
      condition: one bool.
      then_body: called if it is true.
      then_inps: a list of its arguments; it may use other tensors of the model, too.
      else_body: called otherwise; gives as many tensors as the other, of its shapes and dtypes.
      else_inps: a list of its arguments.

    Returns:
      The results of the function that was called.

    Raises:
      Error: (a `ValueError`) arguments that are no lists of tensors, or bodies that give different
        things.
    """
    for body, name in ((then_body, "then_body"), (else_body, "else_body")):
        check.require_function(body, f"the {name} of poptorch.cond")
    for values in (then_inps, else_inps):
        _check_tensor_list(values, "poptorch.cond expects then_inps and else_inps tensors")
    if not isRunningOnIpu():
        body, values = (then_body, then_inps) if condition else (else_body, else_inps)
        return _list_tensors(body(*values), "a body of poptorch.cond")
    *values, token = trace_operator("body_begin", then_inps)
    yes = _list_tensors(then_body(*values), "the then_body of poptorch.cond")
    token = trace_operator("then_end", yes, token)
    *values, token = trace_operator("else_begin", else_inps, token)
    no = _list_tensors(else_body(*values), "the else_body of poptorch.cond")
    if _shapes_and_dtypes(yes) != _shapes_and_dtypes(no):
        raise check.value_error(
            f"the bodies of poptorch.cond return different tensors: {_shapes_and_dtypes(yes)} and "
            f"{_shapes_and_dtypes(no)}",
            "let both return as many tensors, of the same shapes and dtypes",
        )
    return trace_operator("else_end", no, token, condition)


def _check_tensor_list(inputs: object, message_start: str) -> None:
    if not isinstance(inputs, list):
        raise check.type_error(f"{message_start} to be a list of tensors. (Object is not list)")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise check.type_error(
                f"{message_start} to be a list of tensors. (Object contained in list at index "
                f"{index} is not torch.tensor)"
            )


def _list_tensors(outputs: object, function_name: str) -> Tensors:
    tensors = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    if not isinstance(tensors, list | tuple) or not all(
        isinstance(tensor, torch.Tensor) for tensor in tensors
    ):
        raise check.type_error(
            f"{function_name} returned {outputs!r}", "return a tensor, or several"
        )
    return list(tensors)


def _shapes_and_dtypes(tensors: Tensors) -> list[tuple[torch.Size, torch.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _empty_copies_with_token(values: Sequence[Any], *_: object) -> list[torch.Tensor]:
    """Makes empty tensors like some values, and a token that ties a body's beginning to its end."""
    return [*(torch.empty_like(value) for value in values), torch.empty(())]


def _raise_unfolded(*_: object) -> NoReturn:
    raise InternalError("the beginning or the end of a body was not folded")


for _schema, _form in (
    ("body_begin(Tensor[] inputs) -> Tensor[]", _empty_copies_with_token),
    ("then_end(Tensor[] outputs, Tensor token) -> Tensor", lambda outputs, token: torch.empty(())),
    ("else_begin(Tensor[] inputs, Tensor token) -> Tensor[]", _empty_copies_with_token),
    ("loop_end(Tensor[] outputs, Tensor token, int count) -> Tensor[]",
     lambda outputs, token, count: _empty_copies_with_token(outputs)[:-1]),
    ("else_end(Tensor[] outputs, Tensor token, Tensor condition) -> Tensor[]",
     lambda outputs, token, condition: _empty_copies_with_token(outputs)[:-1]),
):  # fmt: skip
    define_traced_operator(_schema, _form)(_raise_unfolded)

_BEGINS = {qualify_operator_name(name) for name in ("body_begin", "else_begin")}
_LOOP_END, _THEN_END, _ELSE_END = (
    qualify_operator_name(name) for name in ("loop_end", "then_end", "else_end")
)
_LISTED, _FOR_LOOP, _COND = (qualify_operator_name(name) for name in ("listed", "for_loop", "cond"))


@dc.dataclass(eq=False)
class _Body:
    """A body that is being folded, or the model around all bodies.

    Attributes:
      begin: the operator that it begins with; None for the model.
      graphs: the graphs of inner bodies that have ended, by name.
      nodes: its nodes so far.
      first: the name and the arguments of a condition's first body, once that body has ended.
    """

    begin: Node | None
    graphs: dict[str, Graph]
    nodes: list[Node] = dc.field(default_factory=list[Node])
    first: tuple[Any, ...] = ()


def fold_control_flow(graph: Graph, *, training: bool) -> Graph:
    """Folds the bodies of loops and conditions in a graph into graphs of their own.

    Args:
      graph: a graph with the operators that mark the beginning and the end of bodies.
      training: whether the graph will be differentiated.

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
                raise _only_in_inference_error(node)
            _close_body(bodies.pop(), node, bodies[-1])
        else:
            bodies[-1].nodes.append(node)
    (model,) = bodies
    folded_graph = dc.replace(graph, nodes=tuple(model.nodes), graphs=model.graphs)
    _check_body_values(folded_graph, {name for node in graph.nodes for name in node.results})
    return folded_graph


def _close_body(body: _Body, end: Node, outer_body: _Body) -> None:
    """Adds a body that has ended as one operator to the body around it."""
    begin = body.begin
    if begin is None:
        raise InternalError("the end of a loop body was recorded without its beginning")
    input_refs = tuple(begin.args[0])
    (token_name,) = begin.results
    input_names = tuple(f"{token_name}.{i}" for i in range(len(input_refs)))
    nodes = (
        Node(_LISTED, (tuple(map(Ref, input_names)),), results=(token_name,), avals=(None,)),
        *body.nodes,
    )
    outputs = tuple(end.args[0])
    outer_names = _find_outer_names(nodes, outputs, input_names)
    name = f"{token_name}.body"
    outer_body.graphs[name] = Graph((*input_names, *outer_names), nodes, outputs, body.graphs)
    args = (*input_refs, *map(Ref, outer_names))
    if end.operator == _THEN_END:
        outer_body.first = (name, args)
        return
    if end.operator == _LOOP_END:
        call = _FOR_LOOP, (end.args[2], name, args, len(input_refs))
    else:
        call = _COND, (end.args[2], *outer_body.first, name, args)
    outer_body.nodes.append(dc.replace(end, operator=call[0], args=call[1]))


def _find_outer_names(
    nodes: Sequence[Node], outputs: tuple[object, ...], inputs: Sequence[str]
) -> list[str]:
    """Returns the names that a body reads but does not compute."""
    known_names, outer_names = set(inputs), dict[str, None]()
    for reads, makes in (*((n.reads, n.results) for n in nodes), (names_of_refs(outputs), ())):
        outer_names.update(dict.fromkeys(name for name in reads if name not in known_names))
        known_names.update(makes)
    return list(outer_names)


def _check_body_values(graph: Graph, computed_names: set[str]) -> None:
    """Checks that no node outside of a body reads a value of it."""
    known_names = set(graph.inputs)
    for node in graph.nodes:
        if lost := sorted((node.reads & computed_names) - known_names):
            raise PopTorchError(
                f"{node.operator} uses a tensor ({lost[0]}) of a body of poptorch.for_loop or "
                "poptorch.cond outside of it",
                where=node.where,
                fix="return it from the body",
            )
        known_names.update(node.results)


def _only_in_inference_error(end: Node) -> PopTorchError:
    name = "for_loop" if end.operator == _LOOP_END else "cond"
    return PopTorchError(
        f"poptorch.{name}() is only supported in inference",
        where=end.where,
        fix="use a loop of Python, or torch.where, in a model that trains",
    )


@operator(_LISTED)
def append_token(values: Sequence[jax.Array]) -> list[jax.Array]:
    """Returns the inputs of a body, and its token behind them."""
    return [*values, jax.numpy.zeros(())]


@operator(_FOR_LOOP, takes_call=True)
def run_for_loop(
    call: Call, count: int, body: str, args: Sequence[jax.Array], carried: int
) -> Sequence[jax.Array]:
    """Runs a body repeatedly; its results replace the first of its arguments."""
    constant_args = args[carried:]

    def run_iteration(number: Any, values: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        key = None if call.inner_key is None else jax.random.fold_in(call.inner_key, number)
        return tuple(call.graphs[body](*values, *constant_args, key=key))

    return jax.lax.fori_loop(0, count, run_iteration, tuple(args[:carried]))


@operator(_COND, takes_call=True)
def run_cond(
    call: Call, choice: jax.Array, yes: str, yes_args: Any, no: str, no_args: Any
) -> Sequence[jax.Array]:
    """Runs one of two bodies."""

    def make_body_function(body: str) -> Callable[..., object]:
        return lambda *args: tuple(call.graphs[body](*args, key=call.inner_key))

    return jax.lax.cond(
        choice.reshape(()).astype(bool),
        lambda yes_args, _: make_body_function(yes)(*yes_args),
        lambda _, no_args: make_body_function(no)(*no_args),
        tuple(yes_args),
        tuple(no_args),
    )
