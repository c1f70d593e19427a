"""PopART's own operators, against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax.doors.graphs import Call, Node
from ipujax.doors.onnx.operators import ONNX
from ipujax.doors.onnx.operators import graphcore as ops
from ipujax.doors.onnx.operators import graphcore_losses as losses
from ipujax.errors import FrontendError

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
P = np.exp(X) / np.exp(X).sum(1, keepdims=True)
LABELS = np.array([1, 0, 5, 2], np.int32)
PICKED = -np.log(P[np.arange(4), LABELS])


def close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(result), expected, 2e-5, 1e-6)


def applied(name: str, *arrays: Any, **attributes: Any) -> Any:
    """What the operator of a name gives."""
    results = tuple(f"r{i}" for i in range(3)) if name in ("Sort", "GroupNormalization") else ("r",)
    node = Node(ONNX.resolve_version(f"ai.graphcore.{name}", 1), arrays, attributes, results)
    return ONNX.apply(Call(node, 0, {}, None), arrays, attributes)


def test_losses() -> None:
    given: dict[str, Any] = {"lambda": 0.1}
    close(losses.l1(X, "Sum", **given), 0.1 * np.abs(X).sum())  # type: ignore
    close(losses.nll(P, LABELS), PICKED.mean())  # type: ignore
    close(losses.nll(np.log(P), LABELS, "None", inputIsLogProbability=1), PICKED)  # type: ignore
    close(losses.nll(P, LABELS, ignoreIndex=0), PICKED[[0, 2, 3]].mean())  # type: ignore
    close(losses.identity_loss(X), X.mean())  # type: ignore


def test_where_no_label_counts_the_loss_is_zero_and_so_is_its_derivative() -> None:
    def loss(p: Any) -> Any:
        return losses.nll(p, np.full(4, 7), ignoreIndex=7)  # type: ignore

    value, derivative = jax.value_and_grad(loss)(jnp.asarray(P))
    assert float(value) == 0
    close(derivative, np.zeros_like(P))


def test_a_label_that_is_no_class_has_no_probability() -> None:
    labels = np.array([6, -1], np.int32)
    close(losses.nll(P[:2], labels, "None"), [-np.log(1e-7)] * 2)  # type: ignore
    close(losses.nll(P[:2], labels, "None", inputIsLogProbability=1), [0, 0])  # type: ignore


@pytest.mark.exhaustive
def test_what_is_improbable_is_learned() -> None:
    logits = jnp.array([[0.0, 20.0, -1.0]])  # of the label exp(-20) = 2e-9, whose logarithm is cut

    def loss(x: Any) -> Any:
        return losses.nll(jax.nn.softmax(x), np.array([0]))  # type: ignore

    value, derivative = jax.value_and_grad(loss)(logits)
    close(value, -np.log(1e-7))
    close(derivative, jax.nn.softmax(logits) - np.array([[1, 0, 0]]))


def test_numbers_are_rounded_away_from_zero_halfway() -> None:
    x = np.array([0.5, -0.5, 1.5, -2.5, 0.49999997, 8388609.0, -3.2], np.float32)
    close(applied("Round", x), [1, -1, 2, -3, 0, 8388609, -3])


DIFFERENTIABLE: dict[str, tuple[int, dict[str, Any]]] = {  # inputs [2, 4, 3], and attributes
    "Atan2": (2, {}),
    "Expm1": (1, {}),
    "Fmod": (2, {}),
    "Gelu": (1, {}),
    "GeluErf": (1, {}),
    "IdentityLoss": (1, {}),
    "IncrementMod": (1, {"increment": 0.3, "modulus": 10.0}),
    "L1": (1, {"lambda": 0.3, "reduction": "None"}),
    "Log1p": (1, {}),
    "Nop": (1, {}),
    "Remainder": (2, {}),
    "Reshape": (1, {"shape": [6, 4]}),
    "Reverse": (1, {"dimensions": [0, 2]}),
    "Scale": (1, {"scale": 0.3}),
    "ScaledAdd": (2, {"scale0": 0.3, "scale1": -2.0}),
    "Slice": (1, {"starts": [1], "ends": [3], "axes": [1]}),
    "Sort": (1, {"axis": 1, "descending": 1}),
    "Subsample": (1, {"strides": [1, 2, 2]}),
    "Swish": (1, {}),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    count, attributes = DIFFERENTIABLE[name]
    values = 0.4 + np.random.default_rng(2).permutation(24 * count) / 16  # away from each other
    arrays = [jnp.asarray(part.reshape(2, 4, 3), jnp.float32) for part in np.split(values, count)]

    @jax.jit
    def total(*arrays: Any) -> Any:
        found = applied(name, *arrays, **attributes)
        return jnp.sum(jnp.sin(found[0] if isinstance(found, tuple) else found))

    jax.test_util.check_grads(total, arrays, 1, ["rev"], 2e-2, 2e-2, 1e-3)


@pytest.mark.parametrize("name", ["Detach", "NearbyInt", "Round"])
def test_what_has_no_slope_has_no_derivative(name: str) -> None:
    close(jax.grad(lambda x: applied(name, x).sum())(jnp.asarray(X)), np.zeros_like(X))


def test_parts_and_groups_have_derivatives() -> None:
    arrays = [jnp.asarray(X), jnp.asarray(X[:, :3] / 2)]
    index, where = np.array([2], np.uint32), {"axes": [1], "sizes": [3]}

    @jax.jit
    def total(x: Any, part: Any) -> Any:
        added = applied("DynamicAdd", x, index, part, **where)
        updated = applied("DynamicUpdate", added, index - 1, part, **where)
        zeroed = applied("DynamicZero", updated, index - 2, axes=[1], sizes=[1])
        weight, bias = x[0], part[0].repeat(2)
        groups, *_ = applied("GroupNormalization", zeroed, weight, bias, num_groups=2)
        return jnp.sum(jnp.sin(groups) + jnp.sin(applied("DynamicSlice", x, index, **where)).sum())

    jax.test_util.check_grads(total, arrays, 1, ["rev"], 2e-2, 2e-2, 1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32])
def test_counters_keep_their_sign(dtype: Any) -> None:
    x = np.array([5, -5, 10, 1, 2]).astype(dtype)
    found = ops.increment_mod(x, 3.0, 4.0)  # type: ignore
    assert found.dtype == dtype
    close(found, np.fmod(x + dtype(3), dtype(4)))


def test_a_stride_of_zero_is_refused() -> None:
    with pytest.raises(FrontendError, match="Strides invalid"):
        ops.subsample(X, [4, 0])  # type: ignore


@pytest.mark.parametrize(
    ("dimensions", "told"),
    [
        ([0, -1], "invalid dimension '-1'. Only positive dimensions are supported"),
        ([0, 2], "invalid dimension '2' for input tensor of rank 2"),
        ([1, 1], "Dimension 1 appears multiple times"),
    ],
)
def test_dimensions_to_reverse(dimensions: list[int], told: str) -> None:
    with pytest.raises(FrontendError, match=told):
        ops.reverse(X, dimensions)  # type: ignore


def test_groups_of_every_other_channel() -> None:
    x = np.random.default_rng(1).normal(size=(2, 6, 5)).astype(np.float32)
    weight, bias = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    result, mean, inverse = ops.group_normalization(x, weight, bias, 2, 1e-3, strided=True)  # type: ignore
    for sample, group in np.ndindex(2, 2):
        part = x[sample, group::2]
        deviation = np.sqrt(part.var() + 1e-3)
        close(mean[2 * sample + group], part.mean())
        close(inverse[2 * sample + group], 1 / deviation)
        normal = (part - part.mean()) / deviation
        close(result[sample, group::2], normal * weight[group::2, None] + 1)


def test_parts() -> None:
    index, part = np.array([2], np.uint32), np.ones((4, 3), np.float32)
    close(ops.dynamic_slice(X, index, axes=[1], sizes=[3]), X[:, 2:5])  # type: ignore
    expected = X.copy()
    expected[:, 2:5] += 1
    close(ops.dynamic_add(X, index, part, [1], [3]), expected)  # type: ignore
    row = {"axes": [0], "sizes": [1]}
    close(ops.dynamic_slice(X, index, np.zeros(6), **row), X[2])  # type: ignore
    replaced, added = X.copy(), X.copy()
    replaced[2] = X[0]
    added[2] += X[0]
    close(ops.dynamic_update(X, index, X[0], **row), replaced)  # type: ignore
    close(ops.dynamic_add(X, index, X[0], **row), added)  # type: ignore


def test_elements_and_shapes() -> None:
    assert "ai.graphcore.Round" in ONNX.list_operator_names()
    close(ops.scaled_add(X, X, scale0=2.0), 3 * X)  # type: ignore
    close(ops.reshape_to(X, shape=[6, 4]), X.reshape(6, 4))  # type: ignore
    close(ops.sort(X, 1, 1)[0], -np.sort(-X, 1))  # type: ignore
