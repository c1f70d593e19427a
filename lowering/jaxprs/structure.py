"""The structure of jaxprs: whether two compute the same, and whether a run can be observed."""

from __future__ import annotations

import dataclasses as dc
from typing import Any, cast

import numpy as np

from lowering.jaxprs.equations import params_without_derivative_rules, walk_equations
from lowering.jaxprs.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    name_stack,
)

_PLAIN = frozenset({bool, int, str, type(None)})
_NUMBERS: tuple[type, ...] = (float, complex, np.generic)


@dc.dataclass(frozen=True, slots=True, eq=False)
class _Itself:
    """A wrapper that is equal for one and the same object alone; keeps it alive."""

    value: Any

    def __eq__(self, other_wrapper: object) -> bool:
        return isinstance(other_wrapper, _Itself) and self.value is other_wrapper.value

    def __hash__(self) -> int:
        return id(self.value)


def structure_key(closed: ClosedJaxpr) -> tuple[Any, ...]:
    """Returns a key, equal for jaxprs that compute the same up to names and source lines.

    Values that cannot be compared are equal only if they are one object: functions, constants, and
    parameters that are neither jaxprs nor hashable.
    """
    return _COMPUTATION.key_of_jaxpr(closed)


def derivative_key(closed: ClosedJaxpr) -> tuple[Any, ...]:
    """Returns a key, equal for jaxprs with equal derivatives up to sources of their equations.

    Unlike `structure_key`, it tells derivative rules apart, and the sources of equations in bodies.
    """
    return _DERIVATIVE.key_of_jaxpr(closed)


def parameters_key(eqn: JaxprEqn) -> tuple[Any, ...]:
    """Returns a key, equal for equations whose parameters say that they compute the same."""
    return _COMPUTATION.key_of_parameters(params_without_derivative_rules(eqn))


@dc.dataclass(frozen=True, slots=True)
class _KeyBuilder:
    """A builder of keys of jaxprs.

    Attributes:
      is_of_derivatives: whether derivative rules and the sources of equations in bodies count.
    """

    is_of_derivatives: bool

    def key_of_jaxpr(self, closed: ClosedJaxpr) -> tuple[Any, ...]:
        """Returns the key of a jaxpr."""
        jaxpr = closed.jaxpr
        numbers: dict[Any, int] = {}

        def key_of_atom(atom: Atom) -> Any:
            if isinstance(atom, Literal):
                value = np.asarray(atom.val)
                return (atom.aval, value.tobytes(), value.dtype)
            return numbers.setdefault(atom, len(numbers))

        invars = tuple((key_of_atom(v), v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
        eqns = tuple(
            (
                eqn.primitive,  # not its name: two libraries may call theirs the same
                eqn.ctx,
                tuple(map(key_of_atom, eqn.invars)),
                self.key_of_parameters(self.parameters_in_key(eqn)),
                tuple((key_of_atom(var), var.aval) for var in eqn.outvars),
            )
            for eqn in jaxpr.eqns
        )
        return (
            invars,
            eqns,
            tuple(map(key_of_atom, jaxpr.outvars)),
            tuple(map(_Itself, closed.consts)),
        )

    def parameters_in_key(self, eqn: JaxprEqn) -> dict[str, Any]:
        """Returns the parameters of an equation that are part of its key."""
        return eqn.params if self.is_of_derivatives else params_without_derivative_rules(eqn)

    def key_of_parameters(self, params: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the key of an equation's parameters."""
        return tuple((key, self.key_of_parameter(params[key])) for key in sorted(params))

    def key_of_parameter(self, value: Any) -> Any:
        """Returns the key of one parameter."""
        if type(value) in _PLAIN:
            return type(value), value  # True is not 1
        if isinstance(value, ClosedJaxpr):
            return self.key_of_body(value)
        if isinstance(value, Jaxpr):
            is_closed = not value.constvars
            return self.key_of_body(ClosedJaxpr(value, ())) if is_closed else _Itself(value)
        if isinstance(value, tuple):
            parts = cast("tuple[Any, ...]", value)
            return type(parts), *map(self.key_of_parameter, parts)
        if isinstance(value, _NUMBERS):
            return type(value), np.asarray(value).tobytes()  # 0.0 is not -0.0
        if callable(value) and not isinstance(value, type):
            return _Itself(value)  # whatever it may be equal to, it is called
        try:
            hash(value)
        except TypeError:
            return _Itself(value)
        return type(value), value

    def key_of_body(self, body: ClosedJaxpr) -> Any:
        """Returns the key of a jaxpr in a parameter."""
        if not self.is_of_derivatives:
            return self.key_of_jaxpr(body)
        sources = ((e.source_info.traceback, name_stack(e)) for e in body.jaxpr.eqns)
        return self.key_of_jaxpr(body), body.jaxpr.debug_info.func_src_info, *sources


_COMPUTATION = _KeyBuilder(is_of_derivatives=False)
_DERIVATIVE = _KeyBuilder(is_of_derivatives=True)


def text_of_equation_contexts(closed: ClosedJaxpr) -> str:
    """Returns a text of the equations' contexts, which the text of a jaxpr leaves out."""
    return " ".join(
        dict.fromkeys(f"{eqn.primitive.name}:{eqn.ctx}" for eqn in walk_equations(closed))
    )
