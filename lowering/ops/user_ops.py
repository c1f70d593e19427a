"""Operations of a user's own, compiled elsewhere: what the compiler sees of them.

There are two primitives. `user_op_p` is work of an IPU: a part of a kernel like any other
operation. `user_callback_p` is work of the host: a step of its own between two kernels, with
copies around it; inside control flow and pipelines it is done from within the kernel. Who can run
them says how; see `ipujax.operators.custom.run`.
"""

from __future__ import annotations

import dataclasses as dc
import re
from collections.abc import Callable

from jax import lax

from lowering.avals import Aval, shape_of
from lowering.equations import walk
from lowering.errors import LoweringError
from lowering.jaxpr import CALL, Effect, Jaxpr, JaxprEqn, Primitive, ShapedArray, current_user_line
from lowering.ops.define import constant, define, mapped_to_front
from lowering.ops.types import Arrays, Dims, Results, Tangents

_SEPARATORS = re.compile(r"[\s/]+")


@dc.dataclass(frozen=True, slots=True)
class UserOp:
    """One call of a compiled function.

    Attributes:
      name: what the user calls it.
      target: what XLA knows the function as.
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


def one_by_one(function: Callable[..., Arrays], operands: Arrays, op: UserOp) -> Arrays:
    """Calls a function of one example for all examples, in their order.

    Args:
      function: arrays -> one array per result, or nothing.
      operands: with leading axes for the examples that they have.
      op: what is called.
    """
    if not op.examples:
        return function(*operands)
    (count, each), *inner = op.examples
    rest = dc.replace(op, examples=tuple(inner))

    def example(rows: Arrays) -> Arrays:
        row = iter(rows)
        mixed = [next(row) if is_own else x for x, is_own in zip(operands, each, strict=True)]
        return one_by_one(function, mixed, rest)

    stacked = [x for x, is_own in zip(operands, each, strict=True) if is_own]
    return lax.scan(lambda _, rows: (None, example(rows)), None, stacked, length=count)[1]


def _avals(*_: Aval, op: UserOp) -> list[Aval]:
    lead = tuple(count for count, _ in op.examples)
    return [ShapedArray((*lead, *shape), dtype) for shape, dtype in op.results]


def _effects(*_: Aval, op: UserOp) -> set[Effect]:
    # A call without results is there for what it does besides: it must not be dropped.
    return set() if op.results else {CALL}


def _vmap(primitive: Primitive, values: Arrays, dims: Dims, *, op: UserOp) -> Results:
    each = tuple(dim is not None for dim in dims)
    moved = mapped_to_front(values, dims)
    count = next(shape_of(x)[0] for x, is_own in zip(moved, each, strict=True) if is_own)
    batched = dc.replace(op, examples=((count, each), *op.examples))
    results = primitive.bind(*moved, op=batched)
    return results, [0] * len(results)


def _jvp(primitive: Primitive, xs: Arrays, tangents: Tangents, *, op: UserOp) -> Results:
    if op.results:
        raise LoweringError(
            f"`{op.name}` is the gradient of a custom operation, and was itself differentiated",
            where=current_user_line(),
            fix="differentiate once, or put the gradient into a custom operation of its own "
            "that has one",
        )
    return constant(primitive, xs, tangents, op=op)


def _define(name: str) -> Primitive:
    return define(name, _avals, several=True, effects=_effects, jvp=_jvp, vmap=_vmap)


user_op_p, user_callback_p = _define("ipu_user_op"), _define("ipu_user_callback")
PRIMITIVES = (user_op_p, user_callback_p)


def name_on_host(eqn: JaxprEqn) -> str | None:
    """The name of an operation of the host; None for any other equation."""
    return eqn.params["op"].name if eqn.primitive is user_callback_p else None


def name_of(eqn: JaxprEqn) -> str | None:
    """What reports and programs call an operation of the user's own; None for other equations.

    As `ipu_user_op:gelu`: primitives and their names have neither spaces nor slashes.
    """
    if eqn.primitive not in PRIMITIVES:
        return None
    return f"{eqn.primitive.name}:{_SEPARATORS.sub('_', eqn.params['op'].name)}"


def user_ops_of(jaxpr: Jaxpr) -> list[UserOp]:
    """The operation of every call in a jaxpr, anywhere inside, in order."""
    return [eqn.params["op"] for eqn in walk(jaxpr) if eqn.primitive in PRIMITIVES]
