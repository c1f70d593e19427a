"""The structure of jaxprs: whether two compute the same, and whether a run can be observed."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from lowering.jaxprs.equations import walk_equations
from lowering.jaxprs.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    params_without_derivative_rules,
)


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
    jaxpr = closed.jaxpr
    numbers: dict[Any, int] = {}

    def key_of_atom(atom: Atom) -> Any:
        if isinstance(atom, Literal):
            value = np.asarray(atom.val)
            return (atom.aval, value.tobytes(), str(value.dtype))
        return numbers.setdefault(atom, len(numbers))

    invars = tuple((key_of_atom(v), v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
    eqns = tuple(
        (
            eqn.primitive,  # not its name: two libraries may call theirs the same
            eqn.ctx,
            tuple(map(key_of_atom, eqn.invars)),
            parameters_key(eqn),
            tuple((key_of_atom(var), var.aval) for var in eqn.outvars),
        )
        for eqn in jaxpr.eqns
    )
    return invars, eqns, tuple(map(key_of_atom, jaxpr.outvars)), tuple(map(_Itself, closed.consts))


def parameters_key(eqn: JaxprEqn) -> tuple[Any, ...]:
    """Returns a key, equal for equations whose parameters say that they compute the same."""
    named = sorted(params_without_derivative_rules(eqn).items(), key=lambda item: item[0])
    return tuple((key, _parameter_key(value)) for key, value in named)


def _parameter_key(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        return structure_key(value)
    if isinstance(value, Jaxpr):
        return structure_key(ClosedJaxpr(value, ())) if not value.constvars else _Itself(value)
    if isinstance(value, tuple):
        return type(value), *map(_parameter_key, value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, (float, complex, np.generic)):
        return type(value), np.asarray(value).tobytes()  # 0.0 is not -0.0
    if callable(value) and not isinstance(value, type):
        return _Itself(value)  # whatever it may be equal to, it is called
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return type(value), value  # True is not 1


def text_of_contexts(closed: ClosedJaxpr) -> str:
    """Returns a text of the equations' contexts, which the text of a jaxpr leaves out."""
    return " ".join(
        dict.fromkeys(f"{eqn.primitive.name}:{eqn.ctx}" for eqn in walk_equations(closed))
    )


def has_observable_runs(jaxpr: Jaxpr) -> bool:
    """Returns whether it matters how often a jaxpr runs: effects, callbacks, endless loops."""
    return any(
        eqn.effects or eqn.primitive.name == "while" or "callback" in eqn.primitive.name
        for eqn in walk_equations(jaxpr)
    )
