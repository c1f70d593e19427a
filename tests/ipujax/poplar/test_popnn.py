"""popnn against JAX: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ipujax import poplar
from ipujax.poplar import popnn, popops, program
from tests.ipujax.poplar.building_graphs import add_tensor, make_graph, run

f32 = np.float32
RANDOM = np.random.default_rng(0)
Type = popnn.NonLinearityType


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(f32)


FUNCTIONS: dict[Type, Callable[[Any], Any]] = {
    Type.SIGMOID: jax.nn.sigmoid,
    Type.HARD_SIGMOID: lambda x: jnp.clip(0.2 * x + 0.5, 0, 1),
    Type.RELU: jax.nn.relu,
    Type.TANH: jnp.tanh,
    Type.GELU: lambda x: jax.nn.gelu(x, approximate=True),
    Type.GELU_ERF: lambda x: jax.nn.gelu(x, approximate=False),
    Type.SWISH: jax.nn.swish,
    Type.SOFTMAX: jax.nn.softmax,
    Type.SOFTMAX_STABLE: jax.nn.softmax,
}


@pytest.mark.parametrize("type", [*Type], ids=lambda each: each.name)
def test_nonlinearities_and_their_gradients_are_jaxs(type: Type) -> None:
    graph, prog = make_graph(), program.Sequence()
    x, g = 2 * numbers(3, 5), numbers(3, 5)
    a, b = add_tensor(graph, x, "a"), add_tensor(graph, g, "b")
    result = popnn.nonLinearity(graph, type, a, prog)
    of_input = type in (Type.GELU, Type.GELU_ERF, Type.SWISH)
    gradient = popnn.nonLinearityInputGradient(graph, type, a if of_input else result, b, prog)
    c = add_tensor(graph, x, "c")
    popnn.nonLinearityInPlace(graph, type, c, prog, "name")
    wanted, pull_back = jax.vjp(FUNCTIONS[type], jnp.asarray(x))
    got = run(graph, prog, result, gradient, c)
    for each, want in zip(got, (wanted, pull_back(jnp.asarray(g))[0], wanted), strict=True):
        np.testing.assert_allclose(each, want, rtol=1e-4, atol=1e-5)


def test_losses_and_their_gradients_are_jaxs() -> None:
    x, y, labels = numbers(4, 3), numbers(4, 3), np.array([2, 0, 1, 1], np.int32)
    graph, prog = make_graph(), program.Sequence()
    logits, wanted, classes = (
        add_tensor(graph, v, n) for v, n in ((x, "x"), (y, "y"), (labels, "l"))
    )
    probabilities = popnn.nonLinearity(graph, Type.SOFTMAX, logits, prog)
    tensors = [add_tensor(graph, np.zeros(s, f32), "t") for s in ([4], [4, 3], [4], [4, 3])]
    squares, entropy = popnn.LossType.SUM_SQUARED_LOSS, popnn.LossType.CROSS_ENTROPY_LOSS
    prog.add(popnn.calcLoss(graph, logits, wanted, tensors[0], tensors[1], lossType=squares))
    prog.add(popnn.calcLoss(graph, probabilities, classes, tensors[2], tensors[3], entropy))

    def square(x: jax.Array) -> jax.Array:
        return 0.5 * ((x - y) ** 2).sum(-1)

    def cross(x: jax.Array) -> jax.Array:
        return -jax.nn.log_softmax(x)[jnp.arange(4), labels]

    got = run(graph, prog, *tensors)
    for loss, delta, function in ((got[0], got[1], square), (got[2], got[3], cross)):
        np.testing.assert_allclose(loss, function(jnp.asarray(x)), rtol=1e-4)
        slope = jax.grad(lambda x, f=function: f(x).sum())(jnp.asarray(x))
        np.testing.assert_allclose(delta, slope, rtol=1e-4, atol=1e-6)


def test_right_answers_are_added_and_masked_rows_have_no_loss() -> None:
    shares = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]], f32)
    masked = np.uint32(2**32 - 1)
    labels = np.array([0, 2, 0, masked], np.uint32)
    graph, prog = make_graph(), program.Sequence()
    outputs, expected = (
        add_tensor(graph, 2 * shares, "outputs"),
        add_tensor(graph, labels, "labels"),
    )
    losses, deltas = add_tensor(graph, np.zeros(4, f32), "l"), add_tensor(graph, shares, "d")
    right = add_tensor(graph, np.array([5], np.uint32), "right")
    scales = [add_tensor(graph, np.array(n, f32), f"scale{n}") for n in (8.0, 2.0)]
    arguments = (outputs, expected, losses, deltas, *scales, right)
    prog.add(popnn.calcLoss(graph, *arguments, popnn.CROSS_ENTROPY_LOSS, "loss"))
    squares = [add_tensor(graph, np.zeros(shape, f32), "s") for shape in ([4], [4, 3])]
    prog.add(popnn.calcLoss(graph, outputs, expected, *squares, right, popnn.SUM_SQUARED_LOSS))

    got = run(graph, prog, losses, deltas, right, squares[0])
    hits = np.eye(4, 3, dtype=f32)[[0, 2, 0, 3]]
    with_label = np.array([1, 1, 1, 0], f32)
    np.testing.assert_allclose(got[0], -np.log([0.7, 0.6, 0.2, 1]), rtol=1e-6)
    np.testing.assert_allclose(got[1], 8 * (shares - hits) * with_label[:, None], rtol=1e-5)
    np.testing.assert_array_equal(got[2], [5 + 2 + 2])
    np.testing.assert_allclose(
        got[3], ((2 * shares - hits) ** 2).sum(1) / 2 * with_label, rtol=1e-5
    )


EPS = 1e-3


def reference_norm(kind: str, groups: int, x: jax.Array, gamma: Any, beta: Any) -> jax.Array:
    """A norm by its definition: which elements share a mean is a mask of channels."""
    batch, channels = x.shape[:2]
    of_channel = np.arange(channels) % groups
    out = jnp.zeros_like(x)
    for image in range(batch):
        for group in range(groups):
            images = slice(None) if kind == "bn" else slice(image, image + 1)
            members = np.flatnonzero(of_channel == group)
            part = x[images][:, members]
            white = (x[image, members] - part.mean()) * lax.rsqrt(part.var() + EPS)
            out = out.at[image, members].set(white)
    shape = (1, channels, *[1] * (x.ndim - 2))
    return out * jnp.reshape(gamma, shape) + jnp.reshape(beta, shape)


@pytest.mark.parametrize(("kind", "groups"), [("bn", 4), ("gn", 2), ("ln", 1)])
def test_norms_and_their_gradients_are_those_of_the_definition(kind: str, groups: int) -> None:
    x, g, gamma, beta = numbers(3, 4, 5), numbers(3, 4, 5), numbers(4), numbers(4)
    graph, prog = make_graph(), program.Sequence()
    a, b, c, d = (
        add_tensor(graph, v, n) for v, n in ((x, "x"), (g, "g"), (gamma, "c"), (beta, "d"))
    )
    module = getattr(popnn, kind)
    title = {"bn": "batchNorm", "gn": "groupNorm", "ln": "layerNorm"}[kind]
    extra = [groups] if kind == "gn" else []
    statistics = getattr(module, f"{title}Statistics")
    mean, deviation = statistics(graph, a, EPS, prog, *extra, False, True, poplar.FLOAT)
    out, white = getattr(module, f"{title}alise")(graph, a, c, d, mean, deviation, prog)
    slope = getattr(module, f"{title}Gradients")(graph, white, b, deviation, c, prog)
    slopes = getattr(module, f"{title}ParamGradients")(graph, white, b, prog)
    wanted, pull_back = jax.vjp(
        lambda *operands: reference_norm(kind, groups, *operands),
        *map(jnp.asarray, (x, gamma, beta)),
    )
    got = run(graph, prog, out, slope, *slopes)
    for each, want in zip(got, (wanted, *pull_back(jnp.asarray(g))), strict=True):
        np.testing.assert_allclose(each, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("type", [*popnn.pooling.PoolingType], ids=lambda each: each.name)
def test_poolings_and_their_gradients_are_those_of_the_definition(type: Any) -> None:
    params = popnn.pooling.PoolParams(
        type, [6, 5], [2, 3], [2, 1], [1, -1], [0, 2], 2, 3, poplar.FLOAT
    )
    x = numbers(3, 2, 6, 5)

    def definition(x: jax.Array) -> jax.Array:
        cut = x[:, :, :, 1:]
        nothing = -jnp.inf if type is popnn.pooling.PoolingType.MAX else jnp.nan
        padded = jnp.pad(cut, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=nothing)
        take = {"MAX": jnp.max, "AVG": jnp.nanmean, "SUM": jnp.nansum}[type.name]
        rows = [
            jnp.stack([take(padded[:, :, i : i + 2, j : j + 3], (2, 3)) for j in range(4)], -1)
            for i in range(0, 6, 2)
        ]
        return jnp.stack(rows, 2)

    wanted, pull_back = jax.vjp(definition, jnp.asarray(x))
    g = numbers(*wanted.shape)
    graph, prog = make_graph(), program.Sequence()
    a, b = add_tensor(graph, x, "x"), add_tensor(graph, g, "g")
    out = popnn.pooling.pool(graph, params, a, prog)
    if type is popnn.pooling.PoolingType.MAX:
        slope = popnn.pooling.poolInputGradient(graph, params, a, out, b, False, prog)
    else:
        slope = popnn.pooling.poolInputGradient(graph, params, 1, b, prog)
    got = run(graph, prog, out, slope)
    np.testing.assert_allclose(got[0], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], pull_back(jnp.asarray(g))[0], rtol=1e-5, atol=1e-6)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_lstm_is_that_of_the_definition_and_descends() -> None:
    params = popnn.lstm.LstmParams(poplar.FLOAT, 2, 3, [4, 5])
    graph, prog = make_graph(), program.Sequence()
    weights = popnn.lstm.createWeights(graph, params)
    state = popnn.lstm.createInitialState(graph, params)
    tensors = [
        popnn.lstm.createInput(graph, params), state.output, state.cellState,
        weights.inputWeights, weights.outputWeights, weights.biases,
    ]  # fmt: skip
    x, h, c, w, u, b = values = [numbers(*tensor.shape()) for tensor in tensors]
    for tensor, each in zip(tensors, values, strict=True):
        graph.setInitialValue(tensor, each)
    kept: list[poplar.Tensor] = []
    out, cell = popnn.lstm.lstmFwd(graph, params, state, tensors[0], weights, kept, prog)
    slope_in: list[poplar.Tensor] = []
    ones = add_tensor(graph, np.ones((3, 2, 5), f32), "ones")
    of_state, of_weights = popnn.lstm.lstmBwdWithWU(
        graph, params, prog, state, kept[0], weights, tensors[0], out, ones, None, slope_in
    )
    outputs: list[np.ndarray] = []
    for step in x:
        forget, enter, candidate, leave = (step @ w[n] + h @ u[n] + b[n] for n in range(4))
        c = sigmoid(forget) * c + sigmoid(enter) * np.tanh(candidate)
        h = sigmoid(leave) * np.tanh(c)
        outputs.append(h)
    slopes = [slope_in[0], of_state.output, of_weights.inputWeights, of_weights.biases]
    got = run(graph, prog, out, cell, *slopes)
    np.testing.assert_allclose(got[0], outputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[1], c, rtol=1e-4, atol=1e-5)
    check_slopes(
        lambda graph, given, prog: popnn.lstm.lstmFwd(
            graph, params, popnn.lstm.LstmState(*given[1:3]), given[0],
            popnn.lstm.LstmWeights(*given[3:]), None, prog,
        )[0],
        values, dict(zip((0, 1, 3, 5), got[2:], strict=True)),
    )  # fmt: skip


def test_gru_is_that_of_the_definition_and_descends() -> None:
    params = popnn.gru.GruParams(poplar.FLOAT, 2, 3, [4, 5])
    graph, prog = make_graph(), program.Sequence()
    weights = popnn.gru.createWeights(graph, params)
    state = popnn.gru.createInitialState(graph, params)
    tensors = [
        popnn.gru.createInput(graph, params), state,
        weights.inputWeights, weights.outputWeights, weights.biases,
    ]  # fmt: skip
    x, h, w, u, b = values = [numbers(*tensor.shape()) for tensor in tensors]
    for tensor, each in zip(tensors, values, strict=True):
        graph.setInitialValue(tensor, each)
    kept: list[poplar.Tensor] = []
    out = popnn.gru.gruFwd(graph, params, state, tensors[0], weights, kept, prog)
    slope_in: list[poplar.Tensor] = []
    ones = add_tensor(graph, np.ones((3, 2, 5), f32), "ones")
    of_state, of_weights = popnn.gru.gruBwdWithWU(
        graph, params, prog, state, kept[0], weights, tensors[0], out, ones, slope_in
    )
    outputs: list[np.ndarray] = []
    for step in x:
        reset, update = (sigmoid(step @ w[n] + h @ u[n] + b[n]) for n in range(2))
        candidate = np.tanh(step @ w[2] + (reset * h) @ u[2] + b[2])
        h = update * h + (1 - update) * candidate
        outputs.append(h)
    got = run(graph, prog, out, slope_in[0], of_state, of_weights.outputWeights)
    np.testing.assert_allclose(got[0], outputs, rtol=1e-4, atol=1e-5)
    check_slopes(
        lambda graph, given, prog: popnn.gru.gruFwd(
            graph, params, given[1], given[0], popnn.gru.GruWeights(*given[2:]), None, prog
        ),
        values, dict(zip((0, 1, 3), got[1:], strict=True)),
    )  # fmt: skip


def check_slopes(
    layer: Callable[..., poplar.Tensor], values: list[np.ndarray], slopes: dict[int, np.ndarray]
) -> None:
    """Compares gradients of the sum of a layer's outputs with differences along random ways."""

    def total(given: list[np.ndarray]) -> float:
        graph, prog = make_graph(), program.Sequence()
        tensors = [add_tensor(graph, value, "t") for value in given]
        out = layer(graph, tensors, prog)
        params = popops.ReduceParams(popops.Operation.ADD)
        return float(run(graph, prog, popops.reduce(graph, out, [0, 1, 2], params, prog))[0])

    for place, slope in slopes.items():
        way = numbers(*values[place].shape)
        ends = [
            total([v + sign * 3e-3 * way if n == place else v for n, v in enumerate(values)])
            for sign in (f32(1), f32(-1))
        ]
        assert (ends[0] - ends[1]) / 6e-3 == pytest.approx((slope * way).sum(), rel=2e-2, abs=5e-3)


def test_wrong_shapes_are_named() -> None:
    graph, prog = make_graph(), program.Sequence()
    row, matrix = add_tensor(graph, numbers(4), "row"), add_tensor(graph, numbers(2, 4), "matrix")
    with pytest.raises(poplar.index_error, match=r"norm of .*'row'"):
        popnn.bn.batchNormStatistics(graph, row, EPS, prog, False)
    with pytest.raises(poplar.index_error, match=r"loss of .*'matrix'"):
        popnn.calcLoss(graph, matrix, row, row, matrix, popnn.LossType.SUM_SQUARED_LOSS)
    with pytest.raises(poplar.type_error, match="nonLinearityType"):
        popnn.nonLinearity(graph, "relu", row, prog)
