"""What can be said of a jaxpr by its structure: whether two are equal, and who could see it run."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from lowering.equations import walk
from lowering.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, computing_params


@dc.dataclass(frozen=True, slots=True, eq=False)
class _Itself:
    """Equal for one and the same object, whatever that thinks of others; keeps it alive."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def structure_key(closed: ClosedJaxpr) -> tuple[Any, ...]:
    """Equal for jaxprs that compute the same, whatever their names and source lines are.

    What cannot be compared counts as equal only if it is one object: functions, constants, and
    parameters that are neither jaxprs nor hashable.
    """
    jaxpr = closed.jaxpr
    numbers: dict[Any, int] = {}

    def name(atom: Atom) -> Any:
        if isinstance(atom, Literal):
            value = np.asarray(atom.val)
            return (atom.aval, value.tobytes(), str(value.dtype))
        return numbers.setdefault(atom, len(numbers))

    invars = tuple((name(v), v.aval) for v in (*jaxpr.constvars, *jaxpr.invars))
    eqns = tuple(
        (
            eqn.primitive,  # not its name: two libraries may call theirs the same
            eqn.ctx,
            tuple(map(name, eqn.invars)),
            parameters_key(eqn),
            tuple((name(var), var.aval) for var in eqn.outvars),
        )
        for eqn in jaxpr.eqns
    )
    return invars, eqns, tuple(map(name, jaxpr.outvars)), tuple(map(_Itself, closed.consts))


def parameters_key(eqn: JaxprEqn) -> tuple[Any, ...]:
    """Equal for equations whose parameters say that they compute the same."""
    named = sorted(computing_params(eqn).items(), key=lambda item: item[0])
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


def write_contexts(closed: ClosedJaxpr) -> str:
    """How the equations are configured: what JAX keeps beside their parameters, and prints not."""
    return " ".join(dict.fromkeys(f"{eqn.primitive.name}:{eqn.ctx}" for eqn in walk(closed)))


def may_be_seen(jaxpr: Jaxpr) -> bool:
    """Whether somebody could tell how often a jaxpr runs: effects, callbacks, endless loops."""
    return any(
        eqn.effects or eqn.primitive.name == "while" or "callback" in eqn.primitive.name
        for eqn in walk(jaxpr)
    )
