"""Refs, JAX's mutable arrays: those that a function closes over, and those that a body touches.

A Ref is state outside of the function. In a Program there is none: the pass `discharge_refs` makes
each Ref a value that goes from one write to the next read. Whoever runs the Program reads the Refs
before, and writes them afterwards.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from jax.ref import Ref as Ref

from lowering.jaxpr import AbstractRef, ClosedJaxpr, positional_effects


def is_ref(value: object) -> TypeGuard[Ref]:
    """Whether a value, traced or not, is a Ref."""
    return isinstance(getattr(value, "aval", None), AbstractRef)


def closed_over_refs(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Ref]]:
    """The function with the Refs that it closes over as its last arguments, and those Refs."""
    jaxpr = closed.jaxpr
    pairs = list(zip(jaxpr.constvars, closed.consts, strict=True))
    refs = [(var, value) for var, value in pairs if isinstance(value, Ref)]
    if not refs:
        return closed, []
    kept = [(var, value) for var, value in pairs if not isinstance(value, Ref)]
    jaxpr = jaxpr.replace(
        constvars=[var for var, _ in kept],
        invars=[*jaxpr.invars, *(var for var, _ in refs)],
        debug_info=jaxpr.debug_info._replace(arg_names=None),
    )
    return ClosedJaxpr(jaxpr, [value for _, value in kept]), [ref for _, ref in refs]


def effects_of(body: ClosedJaxpr, first: int = 0) -> set[Any]:
    """The effects of a primitive with this body, whose arguments are its operands from `first`."""
    return {_moved(effect, first) for effect in positional_effects(body.jaxpr)}


def _moved(effect: Any, by: int) -> Any:
    """An effect on an input, counted from another one; other effects stay as they are."""
    number = getattr(effect, "input", None)
    return effect if number is None else type(effect)(number + by)
