"""The frames of a call, added to those of the equations in its body."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from lowering.jaxprs.jaxpr import Jaxpr, JaxprEqn, is_user_code

if TYPE_CHECKING:
    from lowering.jaxprs.jaxpr import SourceInfo, Traceback


def source_info_in_call(eqn: JaxprEqn, outer_call: JaxprEqn, body: Jaxpr) -> SourceInfo:
    """Returns the source info that an equation of an outer call has once that is opened."""
    stack = outer_call.source_info.name_stack + eqn.source_info.name_stack
    return add_caller_frames(eqn, outer_call, body).source_info.replace(name_stack=stack)


def add_caller_frames(eqn: JaxprEqn, outer_eqn: JaxprEqn | None, body: Jaxpr) -> JaxprEqn:
    """Adds the frames of the equation around a body to those of an equation in it.

    JAX traces a function once and keeps the frames inside it. Equations that a library made get the
    frames of the outer equation alone.
    """
    outer_traceback = outer_eqn.source_info.traceback if outer_eqn is not None else None
    own_traceback = eqn.source_info.traceback
    if outer_traceback is None or own_traceback == outer_traceback:
        return eqn
    frames = outer_traceback
    if own_traceback is not None:
        frames = _join_frames(own_traceback, outer_traceback, body.debug_info.func_src_info)
    return eqn.replace(source_info=eqn.source_info.replace(traceback=frames))


@functools.lru_cache(maxsize=1 << 14)
def _join_frames(own: Traceback, outer: Traceback, function: str) -> Traceback:
    """Returns the frames of an equation in a body, and of the equation around that."""
    return own + outer if _stems_from_user(own, function) else outer


def _stems_from_user(traceback: Traceback, function: str) -> bool:
    """Returns whether the user's code, called by a library or not, made an equation.

    Args:
      traceback: of one of the equations that tracing a function made.
      function: `name at file:line` of that function.
    """
    name, _, location = function.partition(" at ")
    file = location.rpartition(":")[0]
    for code in traceback.raw_frames()[0]:
        if is_user_code(code):
            return True
        if code.co_filename == file and code.co_name == name:
            return False
    return False
