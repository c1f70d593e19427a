"""The sources of equations, that is their lines and name stacks, as those of other equations.

A function of a jaxpr that is traced for one jaxpr holds for all of the same structure, except that
its equations come from others. So the first jaxpr is traced with numbers in the place of its name
stacks, and for each of them what that gave gets the sources of its own equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lowering.jaxprs.equations import walk_equations
from lowering.jaxprs.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    NameStack,
    replace_equations,
    sub_jaxprs,
)

_NUMBER = "equation number "


def number_equations(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a jaxpr whose equations have their numbers as name stacks, and their own lines."""
    jaxpr = closed.jaxpr
    eqns = [
        eqn.replace(
            source_info=eqn.source_info.replace(name_stack=NameStack().extend(f"{_NUMBER}{number}"))
        )
        for number, eqn in enumerate(jaxpr.eqns)
    ]
    return ClosedJaxpr(replace_equations(jaxpr, eqns, jaxpr.outvars), closed.consts)


def has_numbers_in_bodies(closed: ClosedJaxpr) -> bool:
    """Returns whether equations in bodies stem from numbered ones: their sources are not found."""
    bodies = (body for eqn in closed.jaxpr.eqns for body in sub_jaxprs(eqn))
    return any(
        scope.name.startswith(_NUMBER)
        for body in bodies
        for eqn in walk_equations(body)
        for scope in eqn.source_info.name_stack.stack
    )


def insert_sources(
    closed: ClosedJaxpr, numbered: Sequence[JaxprEqn], eqns: Sequence[JaxprEqn]
) -> ClosedJaxpr:
    """Returns what was traced from numbered equations as if it had been traced from others.

    Args:
      closed: the jaxpr that was traced.
      numbered: the equations that had numbers.
      eqns: equations of the same structure, with the sources to insert.
    """
    pairs = [
        (old.source_info.traceback, new.source_info)
        for old, new in zip(numbered, eqns, strict=True)
    ]
    number_of_scope = {f"{_NUMBER}{number}": number for number in range(len(pairs))}
    new_eqns: list[JaxprEqn] = []
    for eqn in closed.jaxpr.eqns:
        source = eqn.source_info
        number, name_stack = _insert_name_stacks(source.name_stack, number_of_scope, eqns)
        if number is not None:
            old_traceback, new_source = pairs[number]
            is_inherited = source.traceback == old_traceback
            traceback = new_source.traceback if is_inherited else source.traceback
            source = source.replace(traceback=traceback, name_stack=name_stack)
            eqn = eqn.replace(source_info=source)
        new_eqns.append(eqn)
    jaxpr = closed.jaxpr
    return ClosedJaxpr(replace_equations(jaxpr, new_eqns, jaxpr.outvars), closed.consts)


def _insert_name_stacks(
    numbered_stack: NameStack, number_of_scope: Mapping[str, int], eqns: Sequence[JaxprEqn]
) -> tuple[int | None, NameStack]:
    """Returns the innermost number in a name stack, and the stack with name stacks for numbers."""
    last: int | None = None
    scopes: list[Any] = []
    for scope in numbered_stack.stack:
        number = number_of_scope.get(scope.name)
        if number is None:
            scopes.append(scope)
        else:
            last = number
            scopes += eqns[number].source_info.name_stack.stack
    return last, NameStack(tuple(scopes))
