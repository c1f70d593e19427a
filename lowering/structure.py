"""What can be said of a jaxpr by its structure: whether two are equal, and who could see it run."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.jaxpr import Atom, ClosedJaxpr, Jaxpr, Literal, dtype_name, shape_of, sub_jaxprs


def structure_key(closed: ClosedJaxpr) -> tuple[Any, ...]:
    """Equal for jaxprs that compute the same, whatever their names and source lines are.

    Parameters that are neither jaxprs nor hashable count as equal only if they are one object.
    """
    jaxpr = closed.jaxpr
    numbers: dict[Any, int] = {}

    def name(atom: Atom) -> Any:
        if isinstance(atom, Literal):
            value = np.asarray(atom.val)
            return (_type(atom), value.tobytes(), str(value.dtype))
        return numbers.setdefault(atom, len(numbers))

    invars = tuple((name(v), _type(v)) for v in (*jaxpr.constvars, *jaxpr.invars))
    eqns = tuple(
        (
            eqn.primitive.name,
            tuple(map(name, eqn.invars)),
            tuple(sorted((key, _parameter_key(value)) for key, value in eqn.params.items())),
            tuple((name(var), _type(var)) for var in eqn.outvars),
        )
        for eqn in jaxpr.eqns
    )
    return invars, eqns, tuple(map(name, jaxpr.outvars)), tuple(map(id, closed.consts))


def _type(atom: Atom) -> tuple[tuple[int, ...], str]:
    return shape_of(atom.aval), dtype_name(atom.aval)


def _parameter_key(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        return structure_key(value)
    if isinstance(value, Jaxpr):
        return structure_key(ClosedJaxpr(value, ())) if not value.constvars else id(value)
    if isinstance(value, tuple):
        return tuple(map(_parameter_key, value))  # pyright: ignore[reportUnknownArgumentType]
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value).__name__, value  # True is not 1


def may_be_seen(jaxpr: Jaxpr) -> bool:
    """Whether somebody could tell how often a jaxpr runs: effects, callbacks, endless loops."""
    return any(
        bool(eqn.effects)
        or eqn.primitive.name == "while"
        or "callback" in eqn.primitive.name
        or any(map(may_be_seen, sub_jaxprs(eqn)))
        for eqn in jaxpr.eqns
    )


def may_part_ways(jaxpr: Jaxpr, axis: str, inside: bool = False) -> bool:
    """Whether a collective over an axis stands under a condition that need not hold everywhere."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        axes = eqn.params.get("axes", eqn.params.get("axis_name"))
        over = axes if isinstance(axes, (tuple, list)) else (axes,)
        if inside and axis in over and name != "axis_index":
            return True
        branches = inside or name in ("cond", "while")
        if any(may_part_ways(inner, axis, branches) for inner in sub_jaxprs(eqn)):
            return True
    return False
