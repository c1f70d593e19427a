"""PopLibs' elementwise operations: a table, and three forms of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.poplar.exceptions import check, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_elementwise, read_title
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line

_Function = Callable[..., Any]
_Forms = tuple[Callable[..., Tensor], Callable[..., None], Callable[..., None]]


def _divide(a: Any, b: Any) -> jax.Array:
    """Returns the quotient; integers are rounded towards zero, as in C++."""
    a, b = jnp.broadcast_arrays(*_same_dtype(a, b))
    return lax.div(a, b)


def _remainder(a: Any, b: Any) -> jax.Array:
    return lax.rem(*jnp.broadcast_arrays(*_same_dtype(a, b)))


def _same_dtype(a: Any, b: Any) -> tuple[jax.Array, jax.Array]:
    dtype = jnp.result_type(a, b)
    return jnp.asarray(a, dtype), jnp.asarray(b, dtype)


def _round(x: Any) -> jax.Array:
    return lax.round(jnp.asarray(x), lax.RoundingMethod.AWAY_FROM_ZERO)


def _is_nan(x: Any) -> jax.Array:
    return jnp.not_equal(x, x)


def _gelu_by_erf(x: Any) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


UNARY: Mapping[str, _Function] = MappingProxyType(
    {
        "abs": jnp.abs, "asin": jnp.arcsin, "bitwiseNot": jnp.invert, "cbrt": jnp.cbrt,
        "ceil": jnp.ceil, "cos": jnp.cos, "countLeadingZeros": lax.clz,
        "erf": jax.scipy.special.erf,
        "exp": jnp.exp, "expm1": jnp.expm1, "floor": jnp.floor, "geluErf": _gelu_by_erf,
        "inv": jnp.reciprocal, "isFinite": jnp.isfinite, "isInf": jnp.isinf, "isNaN": _is_nan,
        "log": jnp.log, "log1p": jnp.log1p, "logicalNot": jnp.logical_not,
        "nearbyInt": jnp.rint, "neg": jnp.negative, "popcount": lax.population_count,
        "relu": jax.nn.relu, "round": _round, "rsqrt": lax.rsqrt, "sigmoid": jax.nn.sigmoid,
        "signum": jnp.sign, "sin": jnp.sin, "sqrt": jnp.sqrt, "square": jnp.square,
        "tan": jnp.tan, "tanh": jnp.tanh, "trunc": jnp.trunc,
    }
)  # fmt: skip
"""Operations of one operand, by PopLibs' names."""

BINARY: Mapping[str, _Function] = MappingProxyType(
    {
        "add": jnp.add, "atan2": jnp.arctan2, "bitwiseAnd": jnp.bitwise_and,
        "bitwiseOr": jnp.bitwise_or, "bitwiseXor": jnp.bitwise_xor,
        "bitwiseXnor": lambda a, b: jnp.invert(jnp.bitwise_xor(a, b)),
        "div": _divide, "eq": jnp.equal, "gt": jnp.greater, "gteq": jnp.greater_equal,
        "invStdDevToVariance": lambda x, epsilon: 1 / jnp.square(x) - epsilon,
        "logicalAnd": jnp.logical_and, "logicalOr": jnp.logical_or, "lt": jnp.less,
        "lteq": jnp.less_equal, "max": jnp.maximum, "min": jnp.minimum, "mul": jnp.multiply,
        "neq": jnp.not_equal, "pow": jnp.power, "rem": _remainder,
        "shiftLeft": jnp.left_shift, "shiftRight": lax.shift_right_logical,
        "shiftRightSignExtend": lax.shift_right_arithmetic, "sub": jnp.subtract,
        "varianceToInvStdDev": lambda x, epsilon: lax.rsqrt(x + epsilon),
    }
)  # fmt: skip
"""Operations of two operands, by PopLibs' names."""

TERNARY: Mapping[str, _Function] = MappingProxyType(
    {
        "clamp": lambda x, low, high: jnp.clip(x, low, high),
        "select": lambda a, b, predicate: jnp.where(predicate, a, b),
    }
)
"""Operations of three operands: `clamp(x, low, high)` and `select(a, b, predicate)`."""

OPERATIONS: Mapping[str, _Function] = MappingProxyType({**UNARY, **BINARY, **TERNARY})


def require_same_types(name: str, operands: tuple[Any, ...]) -> None:
    """Raises an error for tensors of different element types; `select`'s predicate may differ."""
    typed_operands = operands[:2] if name == "select" else operands
    types = {
        operand.type.dtype: operand for operand in typed_operands if isinstance(operand, Tensor)
    }
    if len(types) > 1:
        raise type_error(
            f"{name} of {' and '.join(str(operand) for operand in types.values())}",
            where=user_line(),
            fix="popops.cast one of them",
        )


def _define_forms(name: str) -> _Forms:
    """Returns the three forms of an operation: a new tensor, in place, and with an output."""
    function = OPERATIONS[name]
    count = 1 if name in UNARY else 2 if name in BINARY else 3
    keeps_type = name != "select"  # its first tensor may be the predicate

    def add(
        graph: Graph, arguments: tuple[Any, ...], *, in_place: bool = False, has_out: bool = False
    ) -> Tensor:
        if len(arguments) < count:
            raise check.type_error(f"{name} takes {count} operands, then what it writes to")
        operands, following = arguments[:count], iter(arguments[count:])
        require_same_types(name, operands)
        out = (
            check.require_instance(next(following, None), Tensor, "the output") if has_out else None
        )
        prog = check.require_instance(next(following, None), Sequence, "prog", "a Sequence")
        title = read_title(name, [*following])
        if in_place:
            check.require_instance(operands[0], Tensor, "the first operand")
        return add_elementwise(
            graph, prog, title, function, operands,
            out=out, in_place=in_place, keeps_type=keeps_type,
        )  # fmt: skip

    def new(graph: Graph, *arguments: Any) -> Tensor:
        return add(graph, arguments)

    def in_place(graph: Graph, *arguments: Any) -> None:
        add(graph, arguments, in_place=True)

    def with_output(graph: Graph, *arguments: Any) -> None:
        add(graph, arguments, has_out=True)

    operands = ", ".join("ABC"[:count])
    texts = (
        (new, "", "prog", f"Adds {name} of {operands} to a program, and returns its tensor."),
        (in_place, "InPlace", "prog", f"Adds {name} of {operands}, which is written to A."),
        (with_output, "WithOutput", "out, prog", f"Adds {name} of {operands}, written to `out`."),
    )
    for form, suffix, last, text in texts:
        form.__name__ = form.__qualname__ = f"{name}{suffix}"
        form.__doc__ = f"{text} Call it as {name}{suffix}(graph, {operands}, {last}, name)."
    return check.guard(new), check.guard(in_place), check.guard(with_output)


FORMS: Mapping[str, _Forms] = MappingProxyType({name: _define_forms(name) for name in OPERATIONS})
"""The forms of each operation, as `popops` has them."""
