"""Directions: whether equations belong to a forward pass, to a backward pass or to the update."""

from __future__ import annotations

from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["forward", "backward", "update"]

Directions: TypeAlias = "Direction | tuple[Each, ...] | None"
"""Of the equations of a jaxpr: one for all of them, or of each."""

Each: TypeAlias = "Direction | tuple[Directions, ...] | None"
"""Of one equation: one for all that it does, or those of each of its bodies."""


def of_equation(directions: Directions, number: int) -> Each:
    """Of one of the equations."""
    return directions[number] if isinstance(directions, tuple) else directions


def of_body(each: Each, number: int) -> Directions:
    """Of the equations of one of the bodies of an equation."""
    return each[number] if isinstance(each, tuple) else each


def own(each: Each) -> Direction | None:
    """Of what an equation does beside its bodies: of one that does several things, "forward"."""
    return "forward" if isinstance(each, tuple) else each
