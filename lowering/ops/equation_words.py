"""The words for what equations compute; see `lowering/ground/operation_words.py`."""

from __future__ import annotations

from lowering.ground import word_of_function, word_of_primitive
from lowering.jaxprs import JaxprEqn, body_of_call
from lowering.ops import user_ops


def word_of_equation(eqn: JaxprEqn) -> str:
    """Returns the word for what an equation computes: a call has the name of its function."""
    body = body_of_call(eqn)
    body_eqns = body.jaxpr.eqns if body is not None else []
    custom = word_of_user_op(body_eqns[0] if len(body_eqns) == 1 else eqn)
    if custom is not None:
        return custom
    function = function_of_call(eqn)
    if function:
        return word_of_function(function) or function.lstrip("_")
    return word_of_primitive(eqn.primitive.name, eqn.params.get("y"))


def word_of_user_op(eqn: JaxprEqn) -> str | None:
    """Returns the name that a user gave to an operation of his own; None for others."""
    name = user_ops.name_of_user_op(eqn)
    return None if name is None else name.rpartition(":")[2].replace("_", " ")


def function_of_call(eqn: JaxprEqn) -> str:
    """Returns the name of the function that an equation calls; "" for other equations."""
    body = body_of_call(eqn)
    if body is None:
        return ""
    return eqn.params.get("name") or body.jaxpr.debug_info.func_src_info.partition(" at ")[0]
