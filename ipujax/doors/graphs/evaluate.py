"""Evaluates a graph with JAX, node after node."""

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
from ipujax.doors.graphs.operators import Call, Operators
from ipujax.errors import FrontendError, IPUError

Scopes = Callable[[Node], Iterable[str]]
"""Gives the names of the scopes that a node's operations are in."""


def module_scope(node: Node) -> tuple[str, ...]:
    """The module's path, so that reports speak of it: `blocks.0.conv`, or `encoder/layer.0`."""
    return tuple(filter(None, node.scope.split("/" if "/" in node.scope else ".")))


@dc.dataclass(frozen=True, eq=False)
class Evaluation:
    """How graphs are evaluated.

    Attributes:
      operators: the table.
      scopes: of the nodes; by default their modules.
    """

    operators: Operators
    scopes: Scopes = module_scope

    def __call__(
        self, graph: Graph, values: Mapping[str, Any], key: jax.Array | None = None
    ) -> dict[str, Any]:
        """What a graph computes: the values that all its names have in the end.

        Those of `graph.outputs` give the outputs (see `filled`), those of inputs what has become
        of them where an operator works in place.

        Args:
          graph: whose operators the table has.
          values: of all its inputs.
          key: of random numbers; each node has one of its own made of it.

        Raises:
          FrontendError: (a `ValueError`) an operator cannot work with what it is given.
        """
        named = dict(values)
        inner = {name: functools.partial(self._inner, g) for name, g in graph.graphs.items()}
        calls = (Call(node, number, inner, key) for number, node in enumerate(graph.nodes))
        for scopes, together in itertools.groupby(
            calls, lambda call: tuple(self.scopes(call.node))
        ):
            with contextlib.ExitStack() as stack:
                for scope in scopes:
                    stack.enter_context(jax.named_scope(scope))
                for call in together:
                    self._run(call, named)
        return named

    def _run(self, call: Call, named: dict[str, Any]) -> None:
        """Binds the results of a node to their names."""
        node = call.node
        args, kwargs = filled(node.args, named), filled(dict(node.kwargs), named)
        try:
            value = self.operators.apply(call, args, kwargs)
            values = (value,) if len(node.results) == 1 else value
            for name, aval, one in zip(node.results, node.avals, values, strict=True):
                named[name] = one if aval is None else _of_form(one, aval)
        except IPUError:
            raise
        except Exception as error:
            raise FrontendError(
                f"{node} cannot be computed: {type(error).__name__}: {error}",
                where=node.where,
                fix="see whether the library itself can compute it; if so, write this part with "
                "other operators",
            ) from error

    def _inner(self, graph: Graph, *args: Any, key: jax.Array | None = None) -> tuple[Any, ...]:
        return filled(graph.outputs, self(graph, dict(zip(graph.inputs, args, strict=True)), key))


def filled(tree: Any, named: Mapping[str, Any]) -> Any:
    """A structure with values in the place of names: a node's arguments, a graph's outputs."""
    if isinstance(tree, Ref):
        return named[tree.name]
    if isinstance(tree, list | tuple):
        return type(tree)([filled(item, named) for item in tree])
    if isinstance(tree, dict):
        return {name: filled(item, named) for name, item in tree.items()}
    return tree


def _of_form(value: Any, aval: Any) -> Any:
    """A result in the dtype that the library gives it, as an array of that shape."""
    if isinstance(aval, list | tuple):
        return [v if a is None else _of_form(v, a) for v, a in zip(value, aval, strict=True)]
    array = jnp.asarray(value, aval.dtype)
    if array.shape != aval.shape:
        raise ValueError(f"the result has shape {array.shape} in the place of {aval.shape}")
    return array
