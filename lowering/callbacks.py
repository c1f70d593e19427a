"""Python functions that compiled code calls on the host: JAX's callbacks, found and exchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowering.equations import walk
from lowering.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, user_line
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten

# JAX prints by itself; what fails there is the format that the user gave.
_PRINT = "debug_print"


def calls_back(jaxpr: Jaxpr) -> bool:
    """Whether Python runs anywhere inside."""
    return any(map(is_callback, walk(jaxpr)))


def is_callback(eqn: JaxprEqn) -> bool:
    """Whether an equation itself is one."""
    return _has_callback(eqn) or eqn.primitive.name == _PRINT


def exchange_callbacks(closed: ClosedJaxpr, other: Callable[[Any, str], Any]) -> ClosedJaxpr:
    """The jaxpr with other functions in its callbacks.

    Args:
      closed: any jaxpr.
      other: gives the function to call for one that is called, and the user's line of the call.
    """

    def change(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        function = other(eqn.params["callback"], user_line(eqn))
        rewriter.keep(eqn.replace(params={**eqn.params, "callback": function}))

    return rewritten(closed, Anywhere(_has_callback), change)


def _has_callback(eqn: JaxprEqn) -> bool:
    return "callback" in eqn.params
