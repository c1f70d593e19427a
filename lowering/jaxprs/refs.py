"""Refs, JAX's mutable arrays: those that a function closes over or a body touches.

A Ref is state outside of the function. In a Program there is none: the pass `discharge_refs` makes
each Ref a value that goes from one write to the next read. Whoever runs the Program reads the Refs
before, and writes them afterwards.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from jax.ref import Ref as Ref

from lowering.jaxprs.jaxpr import AbstractRef, ClosedJaxpr, positional_effects


def is_ref(value: object) -> TypeGuard[Ref]:
    """Returns whether a value, traced or not, is a Ref."""
    return isinstance(getattr(value, "aval", None), AbstractRef)


def lift_closed_over_refs(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Ref]]:
    """Returns the function with the Refs it closes over as last arguments, and those Refs."""
    jaxpr = closed.jaxpr
    pairs = list(zip(jaxpr.constvars, closed.consts, strict=True))
    refs = [(var, value) for var, value in pairs if isinstance(value, Ref)]
    if not refs:
        return closed, []
    other_constants = [(var, value) for var, value in pairs if not isinstance(value, Ref)]
    jaxpr = jaxpr.replace(
        constvars=[var for var, _ in other_constants],
        invars=[*jaxpr.invars, *(var for var, _ in refs)],
        debug_info=jaxpr.debug_info._replace(arg_names=None),
    )
    return ClosedJaxpr(jaxpr, [value for _, value in other_constants]), [ref for _, ref in refs]


def effects_of(body: ClosedJaxpr, num_operands_before: int = 0) -> set[Any]:
    """Returns a body's effects, counted among the operands of the primitive that runs it."""
    return {_shift_effect(effect, num_operands_before) for effect in positional_effects(body.jaxpr)}


def _shift_effect(effect: Any, offset: int) -> Any:
    """Returns an effect on an input with that input's number shifted; others stay as they are."""
    number = getattr(effect, "input", None)
    return effect if number is None else type(effect)(number + offset)
