"""The primitives of the user's own operations, whose code is compiled elsewhere.

There are two primitives. `user_op_p` is work of an IPU: a part of a kernel like any other
operation. `user_callback_p` is work of the host: a step of its own between two kernels, with
copies around it; inside control flow and pipelines it is done from within the kernel. How they
are run is in `ipujax.operators.custom.run_custom_op`.
"""

from __future__ import annotations

import dataclasses as dc
import re
from collections.abc import Callable

from jax import lax

from lowering.ground import LoweringError
from lowering.jaxprs import (
    CALL_EFFECT,
    Aval,
    Effect,
    Jaxpr,
    JaxprEqn,
    Primitive,
    ShapedArray,
    current_user_line,
    shape_of,
    walk_equations,
)
from lowering.ops.define import define_primitive, jvp_of_constant, move_mapped_axes_to_front
from lowering.ops.types import Arrays, Dims, Results, Tangents

_SEPARATORS = re.compile(r"[\s/]+")


@dc.dataclass(frozen=True, slots=True)
class UserOp:
    """A call of a user's compiled function.

    Attributes:
      name: the user's name for it.
      target: the name by which XLA knows the function.
      attributes: the text that is handed to it.
      results: shape and dtype name of each result.
      examples: for each vmap around it, the outermost first, the number of examples and which
        operands have one each; the function is called once for each of them.
      where: the user's line, for messages only: calls on two lines may share their code.
    """

    name: str
    target: str
    attributes: str
    results: tuple[tuple[tuple[int, ...], str], ...]
    examples: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    where: str = dc.field(default="", compare=False, repr=False)


def call_for_each_example(function: Callable[..., Arrays], operands: Arrays, op: UserOp) -> Arrays:
    """Calls a function of one example for all examples, in their order.

    Args:
      function: arrays -> one array per result, or nothing.
      operands: arrays with leading axes for the examples that they have.
      op: the call.
    """
    if not op.examples:
        return function(*operands)
    (count, are_mapped), *inner_examples = op.examples
    inner_op = dc.replace(op, examples=tuple(inner_examples))

    def run_one_example(rows: Arrays) -> Arrays:
        row = iter(rows)
        mixed = [
            next(row) if is_mapped else x for x, is_mapped in zip(operands, are_mapped, strict=True)
        ]
        return call_for_each_example(function, mixed, inner_op)

    stacked = [x for x, is_own in zip(operands, are_mapped, strict=True) if is_own]
    return lax.scan(lambda _, rows: (None, run_one_example(rows)), None, stacked, length=count)[1]


def _user_op_avals(*_: Aval, op: UserOp) -> list[Aval]:
    lead = tuple(count for count, _ in op.examples)
    return [ShapedArray((*lead, *shape), dtype) for shape, dtype in op.results]


def _user_op_effects(*_: Aval, op: UserOp) -> set[Effect]:
    # A call without results has other effects: it must not be dropped.
    return set() if op.results else {CALL_EFFECT}


def _vmap_user_op(primitive: Primitive, values: Arrays, dims: Dims, *, op: UserOp) -> Results:
    are_mapped = tuple(dim is not None for dim in dims)
    operands = move_mapped_axes_to_front(values, dims)
    count = next(
        shape_of(x)[0] for x, is_mapped in zip(operands, are_mapped, strict=True) if is_mapped
    )
    batched = dc.replace(op, examples=((count, are_mapped), *op.examples))
    results = primitive.bind(*operands, op=batched)
    return results, [0] * len(results)


def _refuse_second_derivative(
    primitive: Primitive, xs: Arrays, tangents: Tangents, *, op: UserOp
) -> Results:
    if op.results:
        raise LoweringError(
            f"`{op.name}` is the gradient of a custom operation, and was itself differentiated",
            where=current_user_line(),
            fix="differentiate once, or put the gradient into a custom operation of its own "
            "that has one",
        )
    return jvp_of_constant(primitive, xs, tangents, op=op)


def _define_user_op(name: str) -> Primitive:
    return define_primitive(
        name,
        _user_op_avals,
        has_several_results=True,
        effects=_user_op_effects,
        jvp=_refuse_second_derivative,
        vmap=_vmap_user_op,
    )


user_op_p, user_callback_p = _define_user_op("ipu_user_op"), _define_user_op("ipu_user_callback")
PRIMITIVES = (user_op_p, user_callback_p)


def name_of_host_operation(eqn: JaxprEqn) -> str | None:
    """Returns the name of an operation of the host; None for any other equation."""
    return eqn.params["op"].name if eqn.primitive is user_callback_p else None


def name_of_user_op(eqn: JaxprEqn) -> str | None:
    """Returns the name of a user's operation in reports and programs; None for others.

    The name is like `ipu_user_op:gelu`: names of primitives have neither spaces nor slashes.
    """
    if eqn.primitive not in PRIMITIVES:
        return None
    return f"{eqn.primitive.name}:{_SEPARATORS.sub('_', eqn.params['op'].name)}"


def user_ops_of(jaxpr: Jaxpr) -> list[UserOp]:
    """Returns the operation of every call in a jaxpr, at any depth, in order."""
    return [eqn.params["op"] for eqn in walk_equations(jaxpr) if eqn.primitive in PRIMITIVES]
