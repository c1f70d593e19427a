"""Elementwise operators: of known arrays, which NumPy computes, and derivatives at kinks."""

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.onnx.operators import elementwise, graphcore
from ipujax.frontends import from_onnx
from tests.ipujax.frontends.onnx_models import of_node

X = np.asarray([[-2.5, -1, -0.5], [0, 0.75, 3]], np.float32)
Y = np.asarray([1.5, -2, 0.5], np.float32)
INTS = np.asarray([-7, 7, 7, 0], np.int32), np.asarray([2, -2, 3, 5], np.int32)
BYTES = np.asarray([0, 3, 9], np.uint8), np.asarray([1, 2, 3], np.uint8)
CASES = {
    **{name: (X,) for name in ("Abs", "Ceil", "Exp", "Floor", "IsNaN", "Neg", "Round", "Sign")},
    **{name: (X / 4,) for name in ("Acos", "Asin", "Atanh", "Sin", "Tan", "Tanh")},
    **{name: (abs(X) + 1,) for name in ("Acosh", "Log", "Reciprocal", "Sqrt")},
    **{name: (X, Y) for name in ("Add", "Div", "Less", "Mod", "Mul", "Sub")},
    **{name: (X, Y) for name in ("Equal", "Max", "Mean", "Min", "Sum")},
    **{name: (X > 0, Y > 0) for name in ("And", "Or", "Xor")},
    **{name: BYTES for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Clip": (X, Y[2], X[1, 1]),
    "Not": (X > 0,),
    "Pow": (abs(X), Y),
    "Where": (X > 0, X, Y),
}
OF_INTEGERS = {
    **{name: INTS for name in ("Add", "Div", "Max", "Min", "Mod", "Sub")},
    "Pow": (INTS[0], np.asarray([2, 0, 3, 1], np.int32)),
}


@pytest.mark.parametrize(
    ("name", "arrays"), [*CASES.items(), *OF_INTEGERS.items()], ids=lambda v: str(v)[:12]
)
def test_known_arrays(name, arrays):
    attributes = {"fmod": 1} if name == "Mod" and arrays[0].dtype == np.float32 else {}
    made = of_node(name, *arrays, opset=21, **attributes)
    (wanted,), _ = from_onnx(made).apply({}, *arrays)
    given = {f"x{i}": array for i, array in enumerate(arrays)}
    (result,), _ = from_onnx(made, constants=given).apply({})
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, rtol=2e-6)


def test_zero_to_a_negative_power_is_known_without_a_warning():
    made = of_node("Pow", X[1], Y, opset=21)
    (result,), _ = from_onnx(made, constants={"x0": X[1], "x1": Y}).apply({})
    np.testing.assert_allclose(result, [0, 0.75**-2, 3**0.5], rtol=1e-6)
    made = of_node("Reciprocal", X[1], opset=21)
    (result,), _ = from_onnx(made, constants={"x0": X[1]}).apply({})
    assert result[0] == np.inf


def test_derivative_of_magnitudes_at_zero():
    by_x = jax.grad(lambda x: jnp.sum(elementwise.absolute(x)))(jnp.asarray(X))
    np.testing.assert_array_equal(by_x, np.sign(X))


def test_derivative_of_angles_at_the_origin():
    y, x = jnp.asarray([0.0, 1, -0.0, 0]), jnp.asarray([0.0, 1, -0.0, 2])
    np.testing.assert_allclose(graphcore.atan2(y, x), np.arctan2(y, x), rtol=3e-7)
    by = jax.grad(lambda y, x: jnp.sum(graphcore.atan2(y, x)), (0, 1))(y, x)
    np.testing.assert_allclose(by, [[0, 0.5, 0, 0.5], [0, -0.5, 0, 0]])


def test_derivatives_of_powers():
    x, y = jnp.asarray([-2.0, 0, 0, 0, 3]), jnp.asarray([3.0, 0, 2, -1, 2])
    power = elementwise.power
    by_x, by_y = jax.grad(lambda x, y: jnp.sum(power(x, y)), (0, 1))(x, y)
    np.testing.assert_allclose(by_x, [12, 0, 0, -np.inf, 6])
    np.testing.assert_allclose(by_y, [np.nan, 0, 0, -np.inf, 9 * np.log(3)], rtol=1e-6)
    tangent = jax.jvp(lambda x: power(x, y), (x,), (jnp.ones_like(x),))[1]
    np.testing.assert_allclose(tangent, by_x)


def test_types_that_do_not_fit():
    half = X.astype(np.float16)
    assert elementwise.mul(jnp.asarray(half), Y[:1]).dtype == np.float16
    with pytest.raises(
        ValueError, match=r"incompatible types FLOAT16 and FLOAT \(shapes \[2 3\] and \[2 3\]\)"
    ):
        elementwise.mul(jnp.asarray(half), jnp.asarray(X))
    with pytest.raises(ValueError, match="incompatible types INT32 and FLOAT"):
        elementwise.div(INTS[0], X)
