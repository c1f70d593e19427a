"""Evaluation of a graph with JAX, node after node."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.graph import Graph, Node, Ref
from ipujax.doors.graphs.operators import Call, Operand, Operators
from ipujax.ground import FrontendError, IPUError, PyTree, call_on_behalf

Scopes = Callable[[Node], Iterable[str]]
"""A function that returns the names of the JAX scopes around a node's operations."""


def module_scope(node: Node) -> tuple[str, ...]:
    """Returns a node's module path as scope names, for example `blocks`, `0`, `conv`."""
    return tuple(filter(None, node.scope.split("/" if "/" in node.scope else ".")))


@dc.dataclass(frozen=True, eq=False)
class Evaluation:
    """The settings with which graphs are evaluated.

    Attributes:
      operators: the table that computes the nodes.
      scopes: returns the scope names of a node; by default its module path.
    """

    operators: Operators
    scopes: Scopes = module_scope

    def __call__(
        self, graph: Graph, values: Mapping[str, object], key: jax.Array | None = None
    ) -> dict[str, Operand]:
        """Evaluates a graph and returns the final value of each of its names.

        `graph.outputs` refers to the outputs (see `substitute_refs`). The name of an input holds
        its new value where an operator works in place.

        Args:
          graph: a graph whose operators are all in the table.
          values: the values of all inputs by name.
          key: the random key, from which each node derives its own.

        Raises:
          FrontendError: (a `ValueError`) an operator cannot be computed for its arguments.
        """
        value_of_name = dict(values)
        callables_of_graph = {
            name: functools.partial(self._evaluate_inner_graph, g)
            for name, g in graph.graphs.items()
        }
        calls = (
            Call(node, number, callables_of_graph, key) for number, node in enumerate(graph.nodes)
        )
        for scopes, calls_in_scope in itertools.groupby(
            calls, lambda call: tuple(self.scopes(call.node))
        ):
            with contextlib.ExitStack() as stack:
                for scope in scopes:
                    stack.enter_context(jax.named_scope(scope))
                for call in calls_in_scope:
                    self._run_node(call, value_of_name)
        return value_of_name

    def _run_node(self, call: Call, value_of_name: dict[str, object]) -> None:
        """Computes a node and binds its results to their names."""
        node = call.node
        args, kwargs = (
            substitute_refs(node.args, value_of_name),
            substitute_refs(dict(node.kwargs), value_of_name),
        )
        try:
            apply = functools.partial(self.operators.apply, call, args, kwargs)
            value = call_on_behalf(node.frames, apply)
            values = (value,) if len(node.results) == 1 else value
            for name, aval, result in zip(node.results, node.avals, values, strict=True):
                value_of_name[name] = result if aval is None else _cast_to_aval(result, aval)
        except IPUError:
            raise
        except Exception as error:
            raise FrontendError(
                f"{node} cannot be computed: {type(error).__name__}: {error}",
                where=node.where,
                fix="see whether the library itself can compute it; if so, write this part with "
                "other operators",
            ) from error

    def _evaluate_inner_graph(
        self, graph: Graph, *args: object, key: jax.Array | None = None
    ) -> tuple[Operand, ...]:
        return substitute_refs(
            graph.outputs, self(graph, dict(zip(graph.inputs, args, strict=True)), key)
        )


def substitute_refs(tree: PyTree, value_of_name: Mapping[str, object]) -> Operand:
    """Returns a structure with each `Ref` replaced by the value of its name."""
    if isinstance(tree, Ref):
        return value_of_name[tree.name]
    if isinstance(tree, list | tuple):
        return type(tree)([substitute_refs(item, value_of_name) for item in tree])
    if isinstance(tree, dict):
        return {name: substitute_refs(item, value_of_name) for name, item in tree.items()}
    return tree


def _cast_to_aval(value: Any, aval: Any) -> Operand:
    """Returns a result with the traced dtype, after a check of its shape."""
    if isinstance(aval, list | tuple):
        return [v if a is None else _cast_to_aval(v, a) for v, a in zip(value, aval, strict=True)]
    result_array = jnp.asarray(value, aval.dtype)
    if result_array.shape != aval.shape:
        raise ValueError(f"the result has shape {result_array.shape} in the place of {aval.shape}")
    return result_array
