"""Tables that map another library's operators to JAX functions."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax

from ipujax.doors.graphs.graph import Graph, Node
from ipujax.doors.models import check
from ipujax.ground import InternalError

Operand: TypeAlias = Any
"""An argument or result of an operator.

An array, of NumPy where its value is constant and else of JAX; a number; a list of these; or None
for an argument that is left out. Operators tell them apart where they must.
"""

Function = Callable[..., Operand]


@dc.dataclass(frozen=True, eq=False)
class Call:
    """The node, the inner graphs and the random key of one operator call.

    Attributes:
      node: the node that is computed.
      number: the position of the node in its graph.
      graphs: inner graphs by name: `graph(*arrays, key=None)` returns the tuple of its outputs.
      model_key: the random key of the whole model, or None.
    """

    node: Node
    number: int
    graphs: Mapping[str, Callable[..., tuple[Operand, ...]]]
    model_key: jax.Array | None

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        """The traced shape and dtype of the only result."""
        (aval,) = self.node.avals
        return aval

    @property
    def key(self) -> jax.Array:
        """The random key of this call.

        Raises:
          FrontendError: (a `ValueError`) the model was called without a key.
        """
        key = self.inner_key
        if key is None:
            raise check.value_error(
                f"{self.node} draws random numbers, and there is no key",
                "call model.apply(..., key=jax.random.key(0)), or put the model in evaluation mode",
            )
        return key

    @property
    def inner_key(self) -> jax.Array | None:
        """The key for the graphs that this call computes; None if the model has none."""
        return None if self.model_key is None else jax.random.fold_in(self.model_key, self.number)


class Operators:
    """A table of operators that `register` fills.

    Args:
      base: another table, whose present operators are copied.
    """

    def __init__(self, base: Operators | None = None) -> None:
        self._functions: dict[str, tuple[Function, bool]] = {}
        if base is not None:
            self._functions |= base._functions

    def register(self, *names: str, takes_call: bool = False) -> Callable[[Function], Function]:
        """Returns a decorator that registers a function under operator names.

        The function is called with the node's arguments, in which arrays replace the library's
        tensors.

        Args:
          names: the operators that the function computes.
          takes_call: whether the function takes a `Call` before these arguments.
        """

        def register_function(function: Function) -> Function:
            for name in names:
                if name in self._functions:
                    raise InternalError(f"two functions are registered for {name}")
                self._functions[name] = function, takes_call
            return function

        return register_function

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def apply(self, call: Call, args: Sequence[Operand], kwargs: Mapping[str, Operand]) -> Operand:
        """Computes the operator of a call for some arguments."""
        function, takes_call = self._functions[call.node.operator]
        return function(call, *args, **kwargs) if takes_call else function(*args, **kwargs)

    def missing(self, graph: Graph) -> dict[str, list[Node]]:
        """Returns the nodes of operators that the table lacks, by operator."""
        return {name: nodes for name, nodes in graph.operators().items() if name not in self}
