"""The table of ONNX operators, with one function for each version of an operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from ipujax.doors.graphs import Call, Graph, Node, Operand, Operators
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import narrow_integers

Function = Callable[..., Operand]

Static = Sequence[str] | Callable[[Node], Sequence[str]]
"""Names of inputs that must be constants, or a function that returns them for a node."""


class VersionedOperators(Operators):
    """A table of operators whose meaning depends on the version of their domain.

    Constants are NumPy arrays, with 64 bits where ONNX has them; values that the model computes or
    takes as inputs are JAX arrays. An operator on constants has constant results.
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
        takes_call: bool = False,
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers an operator's function from a version on.

        The function takes inputs by position, None for one that the node leaves out, and attributes
        by name. It returns a tuple where the operator can have several results.

        Args:
          name: the operator's name, after its domain if that is not ONNX's own.
          version: the first version in which the operator has this meaning.
          static: the names of inputs whose values decide shapes, which must be NumPy arrays; or a
            function that returns them for a node.
          folded: whether its result is a constant if its arguments are constants.
          acts: whether it has a side effect. It is then run even if nothing reads its results, and
            is never folded.
          takes_call: whether the function takes a `Call` before the inputs.
        """

        def register_version(function: Function) -> Function:
            key = f"{name}-{version}"
            self.register(key, takes_call=takes_call)(function)
            self._versions.setdefault(name, []).append(version)
            parameters = tuple(inspect.signature(function).parameters)[int(takes_call) :]
            if not callable(static) and (unknown_names := set(static) - set(parameters)):
                raise ValueError(f"{function} has no parameters {unknown_names}")
            self._static[key], self._parameters[key] = static, parameters
            self._folded[key] = folded and not acts
            if acts:
                self._acting.add(key)
            return function

        return register_version

    def resolve_version(self, name: str, version: int) -> str:
        """Returns an operator's name in this table for a version of its domain, or its own name."""
        older_versions = [v for v in self._versions.get(name, ()) if v <= version]
        return f"{name}-{max(older_versions)}" if older_versions else name

    def function_of(self, name: str, version: int) -> Function:
        """Returns the function of an operator in a version of its domain."""
        return self._functions[self.resolve_version(name, version)][0]

    def list_operator_names(self) -> tuple[str, ...]:
        """Returns the names of all operators, without versions."""
        return tuple(sorted(self._versions))

    def static_inputs(self, node: Node) -> dict[int, str]:
        """Returns positions and names of the node's inputs that must be constants."""
        static = self._static.get(node.operator, ())
        names = static(node) if callable(static) else static
        parameters = self._parameters.get(node.operator, ())
        return {i: name for i, name in enumerate(parameters) if name in names}

    def node_has_effect(self, node: Node, graph: Graph) -> bool:
        """Returns whether a node, or a node of its inner graphs, has a side effect."""
        names = [value for value in node.kwargs.values() if isinstance(value, str)]
        inner_graphs = [graph.graphs[name] for name in names if name in graph.graphs]
        return node.operator in self._acting or any(
            self.node_has_effect(n, g) for g in inner_graphs for n in g.nodes
        )

    def apply(self, call: Call, args: Sequence[Operand], kwargs: Mapping[str, Operand]) -> Operand:
        """Computes an operator and returns as many results as its node has."""
        operator = call.node.operator
        static = self.static_inputs(call.node)
        for position, name in static.items():
            if position < len(args) and isinstance(args[position], jax.Array):
                raise check.value_error(
                    f"the values of {name!r} decide a shape, and are known only at run time",
                    "give them by from_onnx(..., constants={...}) if they come from an input",
                )
        values = jax.tree.leaves((args, {k: v for k, v in kwargs.items() if k == "captured"}))
        if self._folded[operator] and not any(isinstance(v, jax.Array) for v in values):
            with jax.ensure_compile_time_eval(), jax.enable_x64(True), np.errstate(all="ignore"):
                value = jax.tree.map(np.asarray, super().apply(call, args, kwargs))
        else:
            args = [a if i in static else narrow_integers(a) for i, a in enumerate(args)]
            value = super().apply(call, args, kwargs)
        count = len(call.node.results)
        if not isinstance(value, tuple):
            return value
        return value[0] if count == 1 else value[:count]


ONNX = VersionedOperators()
"""The table of all ONNX operators that ipujax knows."""

operator = ONNX.since
