"""Directions: whether equations belong to a forward pass, to a backward pass or to the update."""

from __future__ import annotations

from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["forward", "backward", "update"]

Directions: TypeAlias = "Direction | tuple[EquationDirections, ...] | None"
"""The directions of a jaxpr's equations: one for all of them, or one for each."""

EquationDirections: TypeAlias = "Direction | tuple[Directions, ...] | None"
"""The direction of one equation, or the directions of each of its bodies."""


def direction_of_equation(directions: Directions, number: int) -> EquationDirections:
    """Returns the direction of one of the equations of a jaxpr."""
    return directions[number] if isinstance(directions, tuple) else directions


def directions_of_body(directions: EquationDirections, number: int) -> Directions:
    """Returns the directions of the equations in one of the bodies of an equation."""
    return directions[number] if isinstance(directions, tuple) else directions


def main_direction(directions: EquationDirections) -> Direction | None:
    """Returns the direction of an equation outside its bodies; "forward" if the bodies differ."""
    return "forward" if isinstance(directions, tuple) else directions
