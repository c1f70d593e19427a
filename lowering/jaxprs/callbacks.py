"""The Python functions that compiled code calls on the host: finds and replaces JAX's callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowering.jaxprs.equations import walk_equations
from lowering.jaxprs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, user_line
from lowering.jaxprs.rewrite import EquationFinder, EquationRewriter, rewrite_equations

# JAX prints by itself; what fails there is the format that the user gave.
_PRINT = "debug_print"


def contains_callbacks(jaxpr: Jaxpr) -> bool:
    """Returns whether an equation of a jaxpr, at any depth, calls Python."""
    return any(map(is_callback, walk_equations(jaxpr)))


def is_callback(eqn: JaxprEqn) -> bool:
    """Returns whether an equation itself calls Python."""
    return _has_callback(eqn) or eqn.primitive.name == _PRINT


def replace_callbacks(
    closed: ClosedJaxpr, find_replacement: Callable[[Any, str], Any]
) -> ClosedJaxpr:
    """Replaces the Python function of every callback in a jaxpr.

    Args:
      closed: any jaxpr.
      find_replacement: takes the function that is called and the user's line of the call, and
        returns the function to call instead.
    """

    def replace_callback(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        function = find_replacement(eqn.params["callback"], user_line(eqn))
        rewriter.keep_equation(eqn.replace(params={**eqn.params, "callback": function}))

    return rewrite_equations(closed, EquationFinder(_has_callback), replace_callback)


def _has_callback(eqn: JaxprEqn) -> bool:
    return "callback" in eqn.params
