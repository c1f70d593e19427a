"""Tables of operators: functions of JAX for what another library's operators compute."""

from __future__ import annotations

import dataclasses as dc
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from ipujax.doors.graphs.checks import check
from ipujax.doors.graphs.graph import Graph, Node
from ipujax.errors import InternalError

Function = Callable[..., Any]


@dc.dataclass(frozen=True, eq=False)
class Call:
    """What an operator's function may want to know besides its arguments.

    Attributes:
      node: what is called.
      number: of the node in its graph.
      graphs: inner graphs by name: `graph(*arrays, key=None)` gives the tuple of its outputs.
      model_key: of the whole model's random numbers; None if there is none.
    """

    node: Node
    number: int
    graphs: Mapping[str, Callable[..., Any]]
    model_key: jax.Array | None

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the only result, as the library tells them."""
        (aval,) = self.node.avals
        return aval

    @property
    def key(self) -> jax.Array:
        """The key of this call's random numbers.

        Raises:
          FrontendError: (a `ValueError`) the model was given none.
        """
        key = self.inner_key
        if key is None:
            raise check.refuse(
                f"{self.node} draws random numbers, and there is no key",
                "call model.apply(..., key=jax.random.key(0)), or put the model in evaluation mode",
            )
        return key

    @property
    def inner_key(self) -> jax.Array | None:
        """The key for the graphs that this call computes; None if the model has none."""
        return None if self.model_key is None else jax.random.fold_in(self.model_key, self.number)


class Operators:
    """A table of operators, filled by `register`.

    Args:
      base: another table, whose operators it has, too, as they are now.
    """

    def __init__(self, base: Operators | None = None) -> None:
        self._functions: dict[str, tuple[Function, bool]] = {}
        if base is not None:
            self._functions |= base._functions

    def register(self, *names: str) -> Callable[[Function], Function]:
        """Decorates the function of some operators.

        It is called with the arguments of the node, arrays in the place of the library's tensors;
        and, if its first parameter is named `call`, with a `Call` before them.
        """

        def decorated(function: Function) -> Function:
            wants_call = next(iter(inspect.signature(function).parameters), "") == "call"
            for name in names:
                if name in self._functions:
                    raise InternalError(f"two functions are registered for {name}")
                self._functions[name] = function, wants_call
            return function

        return decorated

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def apply(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the operator of a call gives for these arguments."""
        function, wants_call = self._functions[call.node.operator]
        return function(call, *args, **kwargs) if wants_call else function(*args, **kwargs)

    def missing(self, graph: Graph) -> dict[str, list[Node]]:
        """The nodes of operators that the table does not have, by operator."""
        return {name: nodes for name, nodes in graph.operators().items() if name not in self}
