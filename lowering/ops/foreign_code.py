"""The effects of a jaxpr outside of compiled code: Python, host tables, foreign libraries."""

from __future__ import annotations

from collections.abc import Iterator

from lowering.jaxprs import Jaxpr, is_callback, user_line, walk_equations
from lowering.ops import host_tables, user_ops
from lowering.ops.first_callback import first_callback_p


def find_actions_outside_compiled_code(jaxpr: Jaxpr) -> Iterator[tuple[str, str]]:
    """Yields what a jaxpr does outside of compiled code, as a verb, and the user's line."""
    for eqn in walk_equations(jaxpr):
        callback_eqn = eqn.params["eqn"] if eqn.primitive is first_callback_p else eqn
        if is_callback(callback_eqn):
            yield "calls Python on the host", user_line(callback_eqn)
        elif eqn.primitive in host_tables.PRIMITIVES:
            yield f"uses the host embedding `{eqn.params['table'].name}`", user_line(eqn)
        elif eqn.primitive in user_ops.PRIMITIVES:
            op = eqn.params["op"]
            yield f"calls the custom operation `{op.name}` of {op.target}", op.where


def list_called_targets(jaxpr: Jaxpr) -> set[str]:
    """Returns the names by which a jaxpr calls compiled code through XLA's FFI."""
    calls = (eqn for eqn in walk_equations(jaxpr) if eqn.primitive.name == "ffi_call")
    return {str(eqn.params["target_name"]) for eqn in calls}
