"""The table of ONNX's operators: a function for each meaning that an operator has had."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipujax.doors.graphs import Call, Graph, Node, Operators
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import narrowed

Function = Callable[..., Any]

Static = Sequence[str] | Callable[[Node], Sequence[str]]
"""Names of inputs that must be known, or what gives them for a node."""


class VersionedOperators(Operators):
    """Operators whose meaning depends on the version of their domain.

    Where all that an operator is given is known, as NumPy arrays, so is its result, with 64 bits
    where ONNX has them; arrays of JAX are what the model computes, or is given.
    """

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[str, list[int]] = {}
        self._static: dict[str, Static] = {}
        self._parameters: dict[str, tuple[str, ...]] = {}
        self._folded: dict[str, bool] = {}
        self._acting: set[str] = set()

    def since(
        self,
        name: str,
        version: int = 1,
        *,
        static: Static = (),
        folded: bool = True,
        acts: bool = False,
    ) -> Callable[[Function], Function]:
        """Decorates the function of an operator from a version of its domain on.

        Inputs are its positional arguments, None where the node leaves one out; attributes are
        given by their names. It returns a tuple where the operator can have several results.

        Args:
          name: the operator's, with its domain before it if that is not ONNX's own.
          version: the first in which it means this.
          static: names of those parameters that are inputs whose values decide shapes, for each
            node if that depends on it: they are NumPy arrays.
          folded: whether its result is known where its arguments are.
          acts: whether it does something besides, and is there for that even if nothing reads its
            results; nothing of it is known then.
        """

        def decorated(function: Function) -> Function:
            key = f"{name}-{version}"
            self.register(key)(function)
            self._versions.setdefault(name, []).append(version)
            parameters = tuple(p for p in inspect.signature(function).parameters if p != "call")
            if not callable(static) and (other := set(static) - set(parameters)):
                raise ValueError(f"{function} has no parameters {other}")
            self._static[key], self._parameters[key] = static, parameters
            self._folded[key] = folded and not acts
            if acts:
                self._acting.add(key)
            return function

        return decorated

    def resolve(self, name: str, version: int) -> str:
        """The operator's name in this table for a version of its domain; itself if it has none."""
        known = [v for v in self._versions.get(name, ()) if v <= version]
        return f"{name}-{max(known)}" if known else name

    def function_of(self, name: str, version: int) -> Function:
        """The function of an operator in a version of its domain."""
        return self._functions[self.resolve(name, version)][0]

    def names(self) -> tuple[str, ...]:
        """Of all operators, without versions."""
        return tuple(sorted(self._versions))

    def static_inputs(self, node: Node) -> dict[int, str]:
        """Positions and names of the node's inputs that must be known."""
        static = self._static.get(node.operator, ())
        names = static(node) if callable(static) else static
        parameters = self._parameters.get(node.operator, ())
        return {i: name for i, name in enumerate(parameters) if name in names}

    def acts(self, node: Node, graph: Graph) -> bool:
        """Whether a node of a graph does something besides, itself or in a graph inside it."""
        names = [value for value in node.kwargs.values() if isinstance(value, str)]
        inner = [graph.graphs[name] for name in names if name in graph.graphs]
        return node.operator in self._acting or any(self.acts(n, g) for g in inner for n in g.nodes)

    def apply(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """As `Operators.apply`; gives what the node asks for of the results."""
        operator = call.node.operator
        static = self.static_inputs(call.node)
        for position, name in static.items():
            if position < len(args) and isinstance(args[position], jax.Array):
                raise check.refuse(
                    f"the values of {name!r} decide a shape, and only running the model tells them",
                    "give them by from_onnx(..., constants={...}) if they come from an input",
                )
        values = jax.tree.leaves((args, {k: v for k, v in kwargs.items() if k == "captured"}))
        if self._folded[operator] and not any(isinstance(v, jax.Array) for v in values):
            with jax.ensure_compile_time_eval(), jax.enable_x64(True), np.errstate(all="ignore"):
                value = jax.tree.map(np.asarray, super().apply(call, args, kwargs))
        else:
            args = [a if i in static else narrowed(a) for i, a in enumerate(args)]
            value = super().apply(call, args, kwargs)
        count = len(call.node.results)
        if not isinstance(value, tuple):
            return value
        return value[0] if count == 1 else value[:count]


ONNX = VersionedOperators()
"""All operators that are known."""

operator = ONNX.since
