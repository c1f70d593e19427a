"""Elementwise operators: arithmetic, comparisons, logic and bits."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.helper
from jax.custom_derivatives import SymbolicZero

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import are_constant, has_integers, numpy_or_jax
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Function = Callable[..., Operand]

_UNARY: dict[str, str] = {
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Round": "rint",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
"""The names of the functions, of NumPy and of `jax.numpy`."""

_BINARY: dict[str, str] = {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}

_VARIADIC: dict[str, str] = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _make_numpy_function(function: str) -> Function:
    """Returns a NumPy or JAX function of any number of arguments."""

    def call_numpy_or_jax(*arrays: Operand) -> Operand:
        return getattr(numpy_or_jax(*arrays), function)(*arrays)

    return call_numpy_or_jax


def _make_checked_binary(function: str) -> Function:
    def check_and_compute(x: Operand, y: Operand) -> Operand:
        _check_same_dtypes(x, y)
        return getattr(numpy_or_jax(x, y), function)(x, y)

    return check_and_compute


def _check_same_dtypes(x: Operand, y: Operand) -> None:
    """Checks that two operands have the same dtype: models of PopART are not checked before."""
    if x.dtype == y.dtype:
        return
    first, second = (jax.dtypes.canonicalize_dtype(array.dtype) for array in (x, y))
    if first == second:
        return
    kinds = (onnx.helper.np_dtype_to_tensor_dtype(dtype) for dtype in (first, second))
    names = " and ".join(map(onnx.TensorProto.DataType.Name, kinds))
    shapes = f"{np.asarray(x.shape)} and {np.asarray(y.shape)}"
    raise check.value_error(
        f"incompatible types {names} (shapes {shapes})", "cast one of the arrays"
    )


def _make_variadic(function: str) -> Function:
    """Returns a function that combines any number of arrays by a binary function."""

    def reduce_arrays(*arrays: Operand) -> Operand:
        return functools.reduce(getattr(numpy_or_jax(*arrays), function), arrays)

    return reduce_arrays


# Arithmetic broadcasts since opset 7; before_opset_7.py has the earlier definitions.
for _table, _made, _since in (
    (_UNARY, _make_numpy_function, 1),
    (_BINARY, _make_checked_binary, 7),
    (_VARIADIC, _make_variadic, 1),
):
    for _name, _function in _table.items():
        operator(_name, _since)(_made(_function))


@operator("Identity")
def identity(x: Operand) -> Operand:
    return x


@jax.custom_jvp
def magnitude(x: Array) -> Array:
    """Returns absolute values with derivative zero at zero, as in PyTorch and PopART."""
    return jnp.abs(x)


magnitude.defjvps(lambda dx, result, x: dx * jnp.sign(x))


@operator("Abs")
def absolute(x: Operand) -> Operand:
    return np.abs(x) if are_constant(x) else magnitude(x)


@operator("Mean")
def mean(*arrays: Operand) -> Operand:
    return functools.reduce(numpy_or_jax(*arrays).add, arrays) / len(arrays)


@operator("Mul", 7)
def mul(x: Operand, y: Operand) -> Operand:
    """Multiplies; a single float32 number is cast to the float16 of the other factor."""
    x, y = _match_half_precision(x, y), _match_half_precision(y, x)
    _check_same_dtypes(x, y)
    return numpy_or_jax(x, y).multiply(x, y)


def _match_half_precision(number: Operand, other_factor: Operand) -> Operand:
    is_mixed = (number.dtype, other_factor.dtype) == (np.float32, np.float16)
    return number.astype(other_factor.dtype) if is_mixed and number.size == 1 else number


@operator("Erf")
def erf(x: Array) -> Array:
    return jax.scipy.special.erf(jnp.asarray(x)).astype(x.dtype)


@operator("Div", 7)
def div(x: Operand, y: Operand) -> Operand:
    """Divides; integers are rounded towards zero, as in C."""
    _check_same_dtypes(x, y)
    if not are_constant(x, y):
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    if not has_integers(x):
        return np.divide(x, y)
    quotient, remainder = np.divmod(x, y)
    return quotient + ((remainder != 0) & ((x < 0) != (y < 0)))


@operator("Mod", 10)
def mod(x: Operand, y: Operand, fmod: int = 0) -> Operand:
    """Computes the remainder, with the sign of `x` if `fmod` is set, else that of `y`."""
    _check_same_dtypes(x, y)
    numpy = numpy_or_jax(x, y)
    if fmod:
        return numpy.fmod(x, y)
    remainder = numpy.mod(x, y)
    return (
        remainder
        if has_integers(x)
        else numpy.where(remainder == 0, numpy.copysign(0, y), remainder)
    )


@operator("Pow", 7)
def power(x: Operand, y: Operand) -> Operand:
    """Computes a power in the dtype of `x`, whatever the dtype of the exponent."""
    if are_constant(x, y):
        return _fold_power(x, y).astype(x.dtype)
    if are_constant(y) and np.ndim(y) == 0 and float(y).is_integer():
        base = (
            x.astype(jnp.float32) if has_integers(x) and y < 0 else x
        )  # integers: rounded towards zero
        return jnp.power(base, int(y)).astype(x.dtype)
    is_smooth = not (are_constant(y) or has_integers(x) or has_integers(y))
    return (_smooth_power if is_smooth else jnp.power)(x, y).astype(x.dtype)


def _fold_power(x: Operand, y: Operand) -> Operand:
    if has_integers(x) and has_integers(y) and np.all(y >= 0):
        return np.power(x, y)
    return np.power(x.astype(np.float64), y.astype(np.float64))


@jax.custom_jvp
def _smooth_power(x: Array, y: Array) -> Array:
    """Computes powers with the finite derivatives that PyTorch and PopART give at zero.

    The derivative by the exponent is NaN where the base is negative.
    """
    return jnp.power(x, y)


@functools.partial(_smooth_power.defjvp, symbolic_zeros=True)
def _(primals: tuple[Array, Array], tangents: tuple[Operand, Operand]) -> tuple[Array, Array]:
    (x, y), (dx, dy) = primals, tangents
    result = jnp.power(x, y)
    total = jnp.zeros_like(result)
    if not isinstance(dx, SymbolicZero):
        total += jnp.where(y == 0, 0, y * jnp.power(x, y - 1)) * dx
    if not isinstance(dy, SymbolicZero):  # else NaN times zero would spoil the base's derivative
        total += jnp.where((x == 0) & (y >= 0), 0, result * jnp.log(x)) * dy
    return result, total


@operator("BitShift", 11)
def bitshift(x: Array, y: Array, direction: str) -> Array:
    """Shifts bits; a shift by more bits than there are, or a negative one, keeps the sign."""
    x, y = jnp.broadcast_arrays(x, y)
    if direction not in ("LEFT", "RIGHT"):
        raise check.value_error(f"direction is {direction!r}", "give 'LEFT' or 'RIGHT'")
    return jnp.left_shift(x, y) if direction == "LEFT" else jnp.right_shift(x, y)


@operator("IsInf", 10)
def isinf(x: Array, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    detects_sign = jnp.where(jnp.signbit(x), bool(detect_negative), bool(detect_positive))
    return jnp.isinf(x) & detects_sign


@operator("Clip", 6)
def clip(x: Operand, min: Operand = None, max: Operand = None) -> Operand:
    """Clips to bounds, which are attributes before version 11 and inputs since."""
    numpy = numpy_or_jax(x, min, max)
    x = x if min is None else numpy.maximum(x, numpy.asarray(min, x.dtype))
    return x if max is None else numpy.minimum(x, numpy.asarray(max, x.dtype))


@operator("Where", 9)
def where(condition: Operand, x: Operand, y: Operand) -> Operand:
    return numpy_or_jax(condition, x, y).where(condition, x, y)
