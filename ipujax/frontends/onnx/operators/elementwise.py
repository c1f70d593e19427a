"""Operators that compute each element by itself: arithmetic, comparisons, logic, bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.helper
from jax.custom_derivatives import SymbolicZero

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.arrays import known, library, whole
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
Function = Callable[..., Any]

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

_OF_SEVERAL: dict[str, str] = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _of_all(function: str) -> Function:
    """A function of as many arrays as it takes."""

    def apply(*arrays: Any) -> Any:
        return getattr(library(*arrays), function)(*arrays)

    return apply


def _binary(function: str) -> Function:
    def apply(x: Any, y: Any) -> Any:
        _check_types(x, y)
        return getattr(library(x, y), function)(x, y)

    return apply


def _check_types(x: Any, y: Any) -> None:
    """ONNX's own models have one type here, or are refused before; PopART's are not."""
    if x.dtype == y.dtype:
        return
    first, second = (jax.dtypes.canonicalize_dtype(array.dtype) for array in (x, y))
    if first == second:
        return
    kinds = (onnx.helper.np_dtype_to_tensor_dtype(dtype) for dtype in (first, second))
    names = " and ".join(map(onnx.TensorProto.DataType.Name, kinds))
    shapes = f"{np.asarray(x.shape)} and {np.asarray(y.shape)}"
    raise check.refuse(f"incompatible types {names} (shapes {shapes})", "cast one of the arrays")


def _folded(function: str) -> Function:
    """A function of two arrays over any number of them."""

    def apply(*arrays: Any) -> Any:
        return functools.reduce(getattr(library(*arrays), function), arrays)

    return apply


# Shapes of arithmetic broadcast since opset 7; before_opset_7.py has what was before.
for _table, _made, _since in (
    (_UNARY, _of_all, 1),
    (_BINARY, _binary, 7),
    (_OF_SEVERAL, _folded, 1),
):
    for _name, _function in _table.items():
        operator(_name, _since)(_made(_function))


@operator("Identity")
def identity(x: Any) -> Any:
    return x


@jax.custom_jvp
def magnitude(x: Array) -> Array:
    """Absolute values, whose derivative at zero is zero, as in PyTorch and PopART."""
    return jnp.abs(x)


magnitude.defjvps(lambda dx, result, x: dx * jnp.sign(x))


@operator("Abs")
def absolute(x: Any) -> Any:
    return np.abs(x) if known(x) else magnitude(x)


@operator("Mean")
def mean(*arrays: Any) -> Any:
    return functools.reduce(library(*arrays).add, arrays) / len(arrays)


@operator("Mul", 7)
def mul(x: Any, y: Any) -> Any:
    """A single number of single precision takes the half precision of the other factor."""
    x, y = _halved(x, y), _halved(y, x)
    _check_types(x, y)
    return library(x, y).multiply(x, y)


def _halved(number: Any, other: Any) -> Any:
    is_mixed = (number.dtype, other.dtype) == (np.float32, np.float16)
    return number.astype(other.dtype) if is_mixed and number.size == 1 else number


@operator("Erf")
def erf(x: Array) -> Array:
    return jax.scipy.special.erf(jnp.asarray(x)).astype(x.dtype)


@operator("Div", 7)
def div(x: Any, y: Any) -> Any:
    """Integers are rounded towards zero, as in C."""
    _check_types(x, y)
    if not known(x, y):
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    if not whole(x):
        return np.divide(x, y)
    quotient, remainder = np.divmod(x, y)
    return quotient + ((remainder != 0) & ((x < 0) != (y < 0)))


@operator("Mod", 10)
def mod(x: Any, y: Any, fmod: int = 0) -> Any:
    """The remainder has the sign of `x` if `fmod` is set, else that of `y`."""
    _check_types(x, y)
    numpy = library(x, y)
    if fmod:
        return numpy.fmod(x, y)
    remainder = numpy.mod(x, y)
    return remainder if whole(x) else numpy.where(remainder == 0, numpy.copysign(0, y), remainder)


@operator("Pow", 7)
def power(x: Any, y: Any) -> Any:
    """The result has the dtype of `x`, whatever the exponent's is."""
    if known(x, y):
        return _known_power(x, y).astype(x.dtype)
    if known(y) and np.ndim(y) == 0 and float(y).is_integer():
        base = x.astype(jnp.float32) if whole(x) and y < 0 else x  # integers: rounded towards zero
        return jnp.power(base, int(y)).astype(x.dtype)
    is_smooth = not (known(y) or whole(x) or whole(y))
    return (_smooth_power if is_smooth else jnp.power)(x, y).astype(x.dtype)


def _known_power(x: Any, y: Any) -> Any:
    if whole(x) and whole(y) and np.all(y >= 0):
        return np.power(x, y)
    return np.power(x.astype(np.float64), y.astype(np.float64))


@jax.custom_jvp
def _smooth_power(x: Array, y: Array) -> Array:
    """Powers with the derivatives that PyTorch and PopART give where a factor of them is infinite.

    By the exponent there is none where the base is negative: it is NaN there.
    """
    return jnp.power(x, y)


@functools.partial(_smooth_power.defjvp, symbolic_zeros=True)
def _(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (x, y), (dx, dy) = primals, tangents
    result = jnp.power(x, y)
    total = jnp.zeros_like(result)
    if not isinstance(dx, SymbolicZero):
        total += jnp.where(y == 0, 0, y * jnp.power(x, y - 1)) * dx
    if not isinstance(dy, SymbolicZero):  # else NaN times zero would spoil what the base gives
        total += jnp.where((x == 0) & (y >= 0), 0, result * jnp.log(x)) * dy
    return result, total


@operator("BitShift", 11)
def bitshift(x: Array, y: Array, direction: str) -> Array:
    """Shifts by more bits than there are, or by a negative number, leave the sign alone."""
    x, y = jnp.broadcast_arrays(x, y)
    if direction not in ("LEFT", "RIGHT"):
        raise check.refuse(f"direction is {direction!r}", "give 'LEFT' or 'RIGHT'")
    return jnp.left_shift(x, y) if direction == "LEFT" else jnp.right_shift(x, y)


@operator("IsInf", 10)
def isinf(x: Array, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    wanted = jnp.where(jnp.signbit(x), bool(detect_negative), bool(detect_positive))
    return jnp.isinf(x) & wanted


@operator("Clip", 6)
def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Bounds are attributes before version 11, and inputs since."""
    numpy = library(x, min, max)
    x = x if min is None else numpy.maximum(x, numpy.asarray(min, x.dtype))
    return x if max is None else numpy.minimum(x, numpy.asarray(max, x.dtype))


@operator("Where", 9)
def where(condition: Any, x: Any, y: Any) -> Any:
    return library(condition, x, y).where(condition, x, y)
