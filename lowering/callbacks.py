"""Python functions that compiled code calls on the host: JAX's callbacks, found and exchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    map_sub_jaxprs,
    sub_jaxprs,
    user_line,
    with_eqns,
)

# JAX prints by itself; what fails there is the format that the user gave.
_PRINT = "debug_print"


def calls_back(jaxpr: Jaxpr) -> bool:
    """Whether Python runs anywhere inside."""
    return any(map(_calls_back, jaxpr.eqns))


def _calls_back(eqn: JaxprEqn) -> bool:
    is_callback = "callback" in eqn.params or eqn.primitive.name == _PRINT
    return is_callback or any(map(calls_back, sub_jaxprs(eqn)))


def exchange_callbacks(closed: ClosedJaxpr, other: Callable[[Any, str], Any]) -> ClosedJaxpr:
    """The jaxpr with other functions in its callbacks.

    Args:
      closed: any jaxpr.
      other: gives the function to call for one that is called, and the user's line of the call.
    """
    if not calls_back(closed.jaxpr):
        return closed

    def changed(eqn: JaxprEqn) -> JaxprEqn:
        if "callback" in eqn.params:
            function = other(eqn.params["callback"], user_line(eqn))
            return eqn.replace(params=dict(eqn.params, callback=function))
        if not _calls_back(eqn):
            return eqn
        return map_sub_jaxprs(eqn, lambda inner: exchange_callbacks(inner, other))

    jaxpr = closed.jaxpr
    eqns = list(map(changed, jaxpr.eqns))
    return ClosedJaxpr(with_eqns(jaxpr, eqns, jaxpr.outvars), closed.consts)
