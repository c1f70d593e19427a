"""Recurrent layers: facts, a NumPy reference, derivatives, and all the places they run in."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod
from ipujax.rnn_ops import LSTMStateTuple, PopnnAUGRU, PopnnDynamicGRU, PopnnGRU, PopnnLSTM
from tests.ipujax.pipelining import run_pipeline, sgd
from tests.numbers import use_ipus

LAYERS = (PopnnLSTM, PopnnGRU, PopnnDynamicGRU, PopnnAUGRU)
KEY = jax.random.key(0)
TIME, BATCH, INPUTS, UNITS = 4, 3, 5, 6
LENGTHS = np.array([4, 0, 2], np.int32)


# References over `m`, NumPy for values and jax.numpy to be differentiated.


def activation(name: str, m: Any, x: Any) -> Any:
    if name == "softmax":
        e = m.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    return {
        "tanh": m.tanh,
        "relu": lambda x: m.where(x > 0, x, 0),
        "sigmoid": lambda x: 1 / (1 + m.exp(-x)),
        "hard_sigmoid": lambda x: m.clip(0.2 * x + 0.5, 0, 1),
        "linear": lambda x: x,
    }[name](x)


def reference_lstm(params: Any, x: Any, state: Any, act: str, rec: str, m: Any = np) -> Any:
    (c, h), outputs = state, []
    for step in x:
        product = m.concatenate([step, h], -1) @ params["kernel"]
        gates = m.split(product + params["biases"].reshape(-1), 4, -1)
        i, f, o = (activation(rec, m, gates[n]) for n in (0, 1, 3))
        c = f * c + i * activation(act, m, gates[2])
        h = o * activation(act, m, c)
        outputs.append(h)
    return m.stack(outputs), (c, h)


def reference_gru(
    params: Any,
    x: Any,
    h: Any,
    act: str = "tanh",
    rec: str = "sigmoid",
    lengths: Any = None,
    score: Any = None,
    m: Any = np,
) -> Any:
    """Biases [3, 2, units] put the reset after the product; scores are [time, batch]."""
    kernel, biases = params["kernel"], params["biases"]
    after = biases.ndim == 3
    of_input, of_state = (biases[:, 0], biases[:, 1]) if after else (biases, 0 * biases)
    into, state = kernel[: x.shape[-1]], kernel[x.shape[-1] :]
    w, r = m.split(into, 3, -1), m.split(state, 3, -1)
    outputs = []
    for t, step in enumerate(x):
        z, reset = (
            activation(rec, m, step @ w[n] + of_input[n] + h @ r[n] + of_state[n]) for n in (0, 1)
        )
        inner = reset * (h @ r[2] + of_state[2]) if after else (reset * h) @ r[2]
        candidate = activation(act, m, step @ w[2] + of_input[2] + inner)
        z = z if score is None else z * (1 - score[t][:, None])
        new = z * h + (1 - z) * candidate
        live = np.ones((len(h), 1), bool) if lengths is None else (t < lengths)[:, None]
        h = m.where(live, new, h)
        outputs.append(m.where(live, new, 0))
    return m.stack(outputs), h


def inputs(seed: int = 1, dtype: Any = np.float32) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(TIME, BATCH, INPUTS)), dtype)


def states(count: int, dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(9)
    return tuple(jnp.asarray(rng.normal(size=(BATCH, UNITS)), dtype) for _ in range(count))


def scores(dtype: Any = np.float32) -> Any:
    return jnp.asarray(np.random.default_rng(5).uniform(size=(TIME, BATCH)), dtype)


def made(layer: Any, key: Any = KEY, input_size: int = INPUTS) -> dict[str, Any]:
    """Parameters that are all different from 0."""
    params = layer.build(key, (None, None, input_size))
    rng = np.random.default_rng(3)
    return {n: p + rng.normal(size=p.shape).astype(p.dtype) / 4 for n, p in params.items()}


def call(layer: Any, params: Any, x: Any, state: Any = None, **kwargs: Any) -> Any:
    """Outputs and state of any layer, the state as one array or a tuple."""
    if isinstance(layer, PopnnLSTM):
        given = None if state is None else LSTMStateTuple(*state)
        return layer(params, x, given, **kwargs)
    extra: list[Any] = [LENGTHS] if isinstance(layer, PopnnDynamicGRU) else []
    extra += [scores(x.dtype)] if isinstance(layer, PopnnAUGRU) else []
    return layer(params, x, *extra, None if state is None else state[0], **kwargs)


def reference(layer: Any, params: Any, x: Any, state: Any, names: Any, m: Any = np) -> Any:
    if isinstance(layer, PopnnLSTM):
        return reference_lstm(params, x, state, *names, m=m)
    lengths = LENGTHS if isinstance(layer, PopnnDynamicGRU) else None
    score = scores() if isinstance(layer, PopnnAUGRU) else None
    return reference_gru(params, x, state[0], *names, lengths, score, m)


def close(got: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    leaves = jax.tree.leaves(wanted, is_leaf=lambda part: isinstance(part, list))
    for mine, theirs in zip(jax.tree.leaves(got), leaves, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


CASES = [
    (PopnnLSTM, {}),
    (PopnnGRU, {}),
    (PopnnGRU, {"reset_after": True}),
    (PopnnDynamicGRU, {}),
    (PopnnDynamicGRU, {"reset_after": True}),
    (PopnnAUGRU, {}),
    (PopnnAUGRU, {"reset_after": True}),
]
ACTIVATIONS = [
    ("tanh", "sigmoid"),
    ("relu", "hard_sigmoid"),
    ("softmax", "softmax"),
    ("sigmoid", "tanh"),
    ("linear", "tanh"),
]


# All kinds with the usual activations, three that differ most with the others.
USUAL_WAYS = [(*case, ACTIVATIONS[0]) for case in CASES]
OTHER_WAYS = [(*CASES[i], names) for i in (0, 1, 6) for names in ACTIVATIONS[1:]]


def loss(run: Any) -> Any:
    """A number that depends on all results, each in its own way."""

    def number(params: Any, x: Any, state: Any) -> Any:
        outputs, last = run(params, x, state)
        slopes = np.cos(np.arange(outputs.size, dtype=np.float32)).reshape(outputs.shape)
        return jnp.sum(outputs * slopes) + sum(jnp.sum(s**2) for s in jax.tree.leaves(last))

    return number


@pytest.mark.sampled(0, 6)
@pytest.mark.parametrize(("kind", "options", "names"), USUAL_WAYS + OTHER_WAYS)
def test_values_and_gradients(kind: Any, options: Any, names: Any) -> None:
    act, rec = names
    layer = kind(UNITS, activation=act, recurrent_activation=rec, **options)
    args = made(layer), inputs(), states(2)
    close(call(layer, *args), reference(layer, *jax.tree.map(np.asarray, args), names))
    gradient = jax.jit(jax.grad(loss(lambda *a: call(layer, *a)), argnums=(0, 1, 2)))
    wanted = jax.grad(loss(lambda *a: reference(layer, *a, names, jnp)), argnums=(0, 1, 2))
    close(gradient(*args), jax.jit(wanted)(*args), 1e-4)


@pytest.mark.exhaustive
def test_gradient_of_the_attention_score() -> None:
    layer = PopnnAUGRU(UNITS)
    params, x, (h, _) = made(layer), inputs(), states(2)

    def mine(score: Any) -> Any:
        return jnp.sum(layer(params, x, LENGTHS, score, h)[0] ** 2)

    def theirs(score: Any) -> Any:
        return jnp.sum(reference_gru(params, x, h, lengths=LENGTHS, score=score, m=jnp)[0] ** 2)

    close(jax.jit(jax.grad(mine))(scores()), jax.jit(jax.grad(theirs))(scores()), 1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [PopnnLSTM, PopnnAUGRU])
def test_gradients_of_gradients(kind: Any) -> None:
    layer = kind(UNITS)
    x, state = inputs(), states(2)
    direction = jax.tree.map(jnp.cos, made(layer))

    def slope(run: Any) -> Any:
        def along(params: Any) -> Any:
            gradient = jax.grad(loss(run))(params, x, state)
            return sum(jnp.vdot(gradient[n], direction[n]) for n in gradient)

        return jax.jit(jax.grad(along))(made(layer))

    wanted = slope(lambda *a: reference(layer, *a, ("tanh", "sigmoid"), jnp))
    close(slope(lambda *a: call(layer, *a)), wanted, 5e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "options"), CASES[::3])
def test_float16(kind: Any, options: Any) -> None:
    half = kind(UNITS, dtype=np.float16, partials_dtype=np.float16, **options)
    single = kind(UNITS, **options)
    args = made(half), inputs(dtype=np.float16), states(2, np.float16)
    wide = jax.tree.map(lambda a: a.astype(np.float32), args)
    results = call(half, *args)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(results)} == {"float16"}
    close(results, call(single, *wide), 5e-3)
    gradient = jax.grad(loss(lambda *a: call(half, *a)))(*args)
    close(gradient, jax.grad(loss(lambda *a: call(single, *a)))(*wide), 5e-2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "options"), CASES[::3])
def test_vmap(kind: Any, options: Any) -> None:
    layer = kind(UNITS, **options)
    several = [(made(layer, jax.random.key(i)), inputs(i), states(2)) for i in range(2)]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *several)
    gradient = jax.grad(loss(lambda *a: call(layer, *a)), argnums=(0, 1, 2))
    got = jax.jit(jax.vmap(gradient))(*stacked)
    alone = jax.jit(gradient)
    for i, one in enumerate(several):
        close(jax.tree.map(lambda a, i=i: a[i], got), alone(*one), 1e-4)


@pytest.mark.exhaustive
def test_padding_may_hold_anything() -> None:
    layer = PopnnDynamicGRU(UNITS)
    params, x = made(layer), inputs()
    spoilt = jnp.where((np.arange(TIME)[:, None] < LENGTHS)[..., None], x, jnp.nan)
    run = jax.value_and_grad(loss(lambda *a: call(layer, *a)), argnums=(0, 2))
    close(run(params, spoilt, states(2)), run(params, x, states(2)), 1e-6)


def test_lengths_only_known_at_run_time_are_clipped() -> None:
    layer = PopnnDynamicGRU(UNITS)
    params, x = made(layer), inputs()
    run = jax.jit(lambda lengths: layer(params, x, lengths))
    close(run(np.array([9, -2, 3])), run(np.array([TIME, 0, 3])), 0)


def test_no_steps_keep_the_state() -> None:
    c, h = states(2)
    layer = PopnnLSTM(UNITS)
    outputs, last = layer(made(layer), inputs()[:0], LSTMStateTuple(c, h))
    assert outputs.shape == (0, BATCH, UNITS)
    close(last, (c, h), 0)
    gru = PopnnGRU(UNITS)
    close(jax.grad(lambda h: gru(made(gru), inputs()[:0], h)[1].sum())(h), jnp.ones_like(h), 0)


# Where layers run.


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "options"), [CASES[0], CASES[1], CASES[6]])
def test_compiled(kind: Any, options: Any) -> None:
    layer = kind(UNITS, name="encoder", **options)
    args = made(layer), inputs(), states(2)
    run = jax.value_and_grad(loss(lambda *a: call(layer, *a)), argnums=(0, 1))
    compiled = ipu.compile(run)
    close(compiled(*args), jax.jit(run)(*args), 1e-4)
    report = compiled.lower(*args).report()
    assert report.cycles > 0
    assert report.default_share < 0.05


def test_the_partials_type_is_in_the_program() -> None:
    layer = PopnnLSTM(UNITS, dtype=np.float16, partials_dtype=np.float16, name="encoder")
    args = made(layer), inputs(dtype=np.float16), states(2, np.float16)
    text = jax.jit(jax.grad(loss(lambda *a: call(layer, *a)))).lower(*args).as_text(debug_info=True)
    assert "encoder" in text
    assert "partials_type" in text


@pytest.mark.exhaustive
def test_sharded() -> None:
    use_ipus(2)
    first, second = PopnnLSTM(UNITS), PopnnGRU(UNITS)
    params = made(first), made(second, input_size=UNITS)

    def run(params: Any, x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            x, _ = first(params[0], x)
        with ipu.scopes.ipu_shard(1):
            return jnp.sum(second(params[1], x)[0] ** 2)

    gradient = jax.grad(run)
    close(ipu.compile(gradient)(params, inputs()), jax.jit(gradient)(params, inputs()), 1e-4)


@pytest.mark.exhaustive
def test_pipelined() -> None:
    use_ipus(2)
    first, second = PopnnLSTM(UNITS), PopnnDynamicGRU(UNITS)
    variables = (made(first), made(second, input_size=UNITS))
    batches = [np.asarray(inputs(seed)) for seed in range(4)]

    def encode(variables: Any, x: Any) -> Any:
        return first(variables[0], x)[0]

    def decode(variables: Any, x: Any) -> Any:
        return jnp.mean(second(variables[1], x, LENGTHS)[0] ** 2)

    def total(variables: Any) -> Any:
        return sum(decode(variables, encode(variables, x)) for x in batches)

    (trained, _), _ = run_pipeline(
        [encode, decode],
        4,
        variables=variables,
        data=batches,
        optimizer_function=sgd(0.1),
        reduction_method=GradientAccumulationReductionMethod.SUM,
    )
    gradient = jax.jit(jax.grad(total))(variables)
    close(trained, jax.tree.map(lambda v, g: v - 0.1 * g, variables, gradient), 1e-4)


# Facts.

LSTM_KERNEL = jnp.asarray([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]])
GRU_KERNEL = jnp.asarray([[0.1, 0.2, 0.3], [0.5, 0.6, 0.7]])
GRU_PARAMS = {"kernel": GRU_KERNEL, "biases": jnp.asarray([[0.01], [0.02], [0.03]])}
STEPS = np.array([1.0, 2.0]).reshape(2, 1, 1)
START = np.full((1, 1), 0.1)


@pytest.mark.fact("rnn.lstm_layout")
@pytest.mark.fact("rnn.gru_layout")
def test_shapes_of_parameters() -> None:
    def shapes(layer: Any) -> Any:
        return {n: p.shape for n, p in layer.build(KEY, (7, 2, 3)).items()}

    assert shapes(PopnnLSTM(5)) == {"kernel": (8, 20), "biases": (4, 5)}
    for kind in (PopnnGRU, PopnnDynamicGRU, PopnnAUGRU):
        assert shapes(kind(5)) == {"kernel": (8, 15), "biases": (3, 5)}
        assert shapes(kind(5, reset_after=True)) == {"kernel": (8, 15), "biases": (3, 2, 5)}
    assert PopnnLSTM(5).state_shape(2) == ([2, 5], [2, 5])
    assert PopnnGRU(5).state_shape(2) == [2, 5]


@pytest.mark.fact("rnn.lstm_eq")
def test_fact_lstm() -> None:
    params = {"kernel": LSTM_KERNEL, "biases": jnp.asarray([[0.01], [0.02], [0.03], [0.04]])}
    outputs, state = PopnnLSTM(1)(params, STEPS, LSTMStateTuple(np.full((1, 1), 0.2), START))
    close(outputs.ravel(), [0.1935673, 0.3775616], 1e-6)
    close(state.c.ravel(), [0.572476], 1e-6)
    close(state.h, outputs[-1], 0)


@pytest.mark.parametrize(
    ("h", "outputs", "c"),
    [
        pytest.param(0, [0, 0, 0], 0, marks=pytest.mark.fact("rnn.lstm_ones_h0_c0")),
        pytest.param(
            1,
            [0.7400966, 0.9073744, 0.9670197],
            2.802922,
            marks=pytest.mark.fact("rnn.lstm_ones_h1_c0"),
        ),
    ],
)
def test_fact_lstm_of_ones(h: float, outputs: Any, c: float) -> None:
    layer = PopnnLSTM(4, weights_initializer=jax.nn.initializers.ones)
    x = np.zeros((3, 1, 3))
    state = LSTMStateTuple(np.zeros((1, 4)), np.full((1, 4), h))
    got, last = layer(layer.build(KEY, x.shape), x, state)
    close(got, np.repeat(np.reshape(outputs, (3, 1, 1)), 4, -1), 1e-6)
    close(last.c, np.full((1, 4), c), 1e-6)


@pytest.mark.fact("rnn.gru_eq")
def test_fact_gru() -> None:
    outputs, state = PopnnGRU(1)(GRU_PARAMS, STEPS, START)
    close(outputs.ravel(), [0.2168048, 0.3868965], 1e-6)
    close(state, outputs[-1], 0)


@pytest.mark.fact("rnn.augru_eq")
def test_fact_augru() -> None:
    score = np.array([[0.25], [0.75]])
    outputs, _ = PopnnAUGRU(1)(GRU_PARAMS, STEPS, [2], score, START)
    close(outputs.ravel(), [0.2510727, 0.5752109], 1e-6)


@pytest.mark.fact("rnn.gru_zero_weights")
def test_fact_gru_of_zeros() -> None:
    layer = PopnnGRU(2, weights_initializer=jax.nn.initializers.zeros)
    params = layer.build(KEY, (3, 1, 2))
    outputs, _ = layer(params, np.ones((3, 1, 2)), np.ones((1, 2)))
    close(outputs[:, 0, 1], [0.5, 0.25, 0.125], 1e-7)
    close(layer(params, np.ones((3, 1, 2)))[0], np.zeros((3, 1, 2)), 0)


@pytest.mark.fact("rnn.dynamic_bias")
@pytest.mark.parametrize("kind", [PopnnDynamicGRU, PopnnAUGRU])
def test_fact_dynamic_bias(kind: Any, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        layer = kind(2, bias_initializer=jax.nn.initializers.constant(7.0))
    close(layer.build(KEY, (1, 1, 3))["biases"], [[1, 1], [1, 1], [0, 0]], 0)
    biases = kind(1, reset_after=True).build(KEY, (1, 1, 3))["biases"]
    close(biases[..., 0], [[1, 1], [1, 1], [0, 0]], 0)


@pytest.mark.fact("rnn.dynamic_bias_value")
def test_fact_dynamic_bias_value() -> None:
    layer = PopnnDynamicGRU(1, weights_initializer=lambda *_: GRU_KERNEL)
    outputs, _ = layer(layer.build(KEY, (2, 1, 1)), STEPS, [2])
    close(outputs.ravel(), [0.07275238, 0.1837025], 1e-6)


@pytest.mark.sampled(1)
@pytest.mark.fact("rnn.dynamic_batch_major")
@pytest.mark.parametrize("kind", [PopnnDynamicGRU, PopnnAUGRU])
def test_fact_batch_major(kind: Any) -> None:
    layer = kind(UNITS)
    params, x = made(layer), inputs()
    score = [scores()] if kind is PopnnAUGRU else []
    wanted = layer(params, x, LENGTHS, *score)
    got = layer(
        params, x.swapaxes(0, 1), LENGTHS, *(s.T for s in score), training=False, time_major=False
    )
    assert got[0].shape == (TIME, BATCH, UNITS)
    close(got, wanted, 0)


@pytest.mark.fact("rnn.lstm_state_type")
def test_fact_state_type() -> None:
    layer = PopnnLSTM(UNITS)
    with pytest.raises(ValueError, match="LSTMStateTuple"):
        layer(made(layer), inputs(), tuple(states(2)))  # pyright: ignore[reportArgumentType]


@pytest.mark.fact("rnn.dtype")
@pytest.mark.parametrize("kind", LAYERS)
def test_fact_dtype(kind: Any) -> None:
    for dtype in (np.float64, jnp.bfloat16, np.int32, "no dtype"):
        with pytest.raises(ValueError, match="float16 or"):
            kind(UNITS, dtype=dtype)
    with pytest.raises(ValueError, match="partials_dtype"):
        kind(UNITS, partials_dtype=np.int8)


# How parameters start, and what is refused.


def test_initializers() -> None:
    kernel = PopnnLSTM(50, seed=4).build(None, (None, None, 30))["kernel"]
    limit = np.sqrt(6 / (80 + 200))
    assert 0.99 * limit < np.abs(kernel).max() <= limit
    close(kernel, PopnnLSTM(50, seed=4).build(KEY, (1, 1, 30))["kernel"], 0)
    assert not np.array_equal(kernel, PopnnLSTM(50).build(KEY, (1, 1, 30))["kernel"])
    layer = PopnnGRU(2, bias_initializer=jax.nn.initializers.constant(3.0), dtype=np.float16)
    params = layer.build(KEY, (1, 1, 3))
    assert {p.dtype.name for p in params.values()} == {"float16"}
    close(params["biases"], np.full((3, 2), 3), 0)


def test_training_false_refuses_gradients() -> None:
    layer = PopnnGRU(UNITS)
    params, x = made(layer), inputs()
    close(layer(params, x, training=False), layer(params, x), 0)
    with pytest.raises(ValueError, match="training=False"):
        jax.grad(lambda p: layer(p, x, training=False)[0].sum())(params)


def test_training_false_allows_gradients_that_do_not_reach_the_layer() -> None:
    layer = PopnnLSTM(UNITS)
    params, x = made(layer), inputs()

    def frozen(params: Any) -> Any:
        features = layer(params, x, training=False)[0]
        return jnp.sum(params["biases"]) + jnp.sum(jax.lax.stop_gradient(features))

    close(jax.jit(jax.grad(frozen))(params)["biases"], np.ones((4, UNITS)), 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "options"), [CASES[0], CASES[1], CASES[6]])
def test_forward_mode_agrees_with_reverse_mode(kind: Any, options: Any) -> None:
    layer = kind(UNITS, **options)
    args = made(layer), inputs(), states(2)
    directions = jax.tree.map(lambda a: jnp.cos(3 * a), args)
    number = loss(lambda *a: call(layer, *a))
    gradient = jax.jit(jax.grad(number, argnums=(0, 1, 2)))(*args)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(directions), strict=True)
    slope = jax.jit(lambda a, d: jax.jvp(number, a, d)[1])(args, directions)
    close(slope, sum(jnp.vdot(g, d) for g, d in pairs), 1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "options"), [CASES[0], CASES[2], CASES[5]])
def test_gradients_of_one_argument_alone(kind: Any, options: Any) -> None:
    """The others have no tangents then, which are left out."""
    layer = kind(UNITS, **options)
    params, x, state = made(layer), inputs(), states(2)

    def number(kernel: Any, biases: Any, x: Any, state: Any) -> Any:
        return loss(lambda *a: call(layer, *a))({"kernel": kernel, "biases": biases}, x, state)

    args = params["kernel"], params["biases"], x, state
    together = jax.jit(jax.grad(number, argnums=(0, 1, 2, 3)))(*args)
    for i, wanted in enumerate(together):
        close(jax.jit(jax.grad(number, argnums=i))(*args), wanted, 1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [PopnnLSTM, PopnnAUGRU])
def test_checkpointed(kind: Any) -> None:
    layer = kind(UNITS)
    args = made(layer), inputs(), states(2)
    number = loss(lambda *a: call(layer, *a))
    got = jax.jit(jax.grad(jax.checkpoint(number)))(*args)
    close(got, jax.jit(jax.grad(number))(*args), 1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("reset_after", [False, True])
def test_a_held_state_is_not_multiplied(reset_after: bool) -> None:
    """A large state stays as it is beyond its sequence; a product of it would overflow."""
    layer = PopnnDynamicGRU(UNITS, np.float16, activation="relu", reset_after=reset_after)
    params = jax.tree.map(lambda p: jnp.ones_like(p), layer.build(KEY, (None, None, INPUTS)))
    x, h = inputs(dtype=np.float16), jnp.full((BATCH, UNITS), 6e4, np.float16)

    def number(h: Any) -> Any:
        return jnp.sum(layer(params, x, np.zeros(BATCH, int), h)[1])

    close(layer(params, x, np.zeros(BATCH, int), h)[1], h, 0)
    close(jax.grad(number)(h), jnp.ones_like(h), 0)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", [PopnnLSTM, PopnnGRU])
@pytest.mark.parametrize("rec", ["tanh", "softmax", "sigmoid", "hard_sigmoid"])
@pytest.mark.parametrize("act", ["tanh", "relu", "softmax", "sigmoid", "hard_sigmoid", "linear"])
def test_every_activation(act: str, rec: str, kind: Any) -> None:
    layer = kind(UNITS, activation=act, recurrent_activation=rec)
    args = made(layer), inputs(), states(2)
    wanted = reference(layer, *jax.tree.map(np.asarray, args), (act, rec))
    close(call(layer, *args), wanted, 5e-5)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("function", [jnp.tanh, jax.nn.sigmoid, jax.nn.softmax])
def test_a_function_stands_for_its_name(function: Any, kind: Any) -> None:
    name = function.__name__
    layer, named = (kind(UNITS, activation=f, recurrent_activation=f) for f in (function, name))
    assert (layer.activation, layer.recurrent_activation) == (name, name)
    params = made(named)
    results = (jax.tree.leaves(call(f, params, inputs())) for f in (layer, named))
    for left, right in zip(*results, strict=True):
        np.testing.assert_array_equal(left, right)


SPECIFICATIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_units": 0}, ValueError, "num_units of .* is 0"),
    ({"num_units": 2.5}, TypeError, "num_units"),
    ({"activation": "swish"}, ValueError, "activation is 'swish'"),
    ({"activation": jnp.sin}, ValueError, "activation is 'sin'"),
    ({"activation": lambda x: x}, ValueError, "activation is '<lambda>'"),
    ({"recurrent_activation": "relu"}, ValueError, "recurrent_activation is 'relu'"),
    ({"recurrent_activation": jax.nn.relu}, ValueError, "recurrent_activation is 'relu'"),
    ({"seed": "4"}, TypeError, "seed"),
    ({"weights_initializer": 0.1}, TypeError, "weights_initializer"),
    ({"name": 3}, TypeError, "name"),
    ({"reset_after": 1}, TypeError, "reset_after"),
]


@pytest.mark.parametrize(("options", "error", "message"), SPECIFICATIONS)
def test_bad_specifications(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        PopnnGRU(**{"num_units": UNITS, **options})


def test_bad_builds() -> None:
    for shape in [(3, 4), (1, 2, None)]:
        with pytest.raises(ValueError, match="cannot be built"):
            PopnnGRU(UNITS).build(KEY, shape)
    with pytest.raises(ValueError, match="nothing to draw"):
        PopnnGRU(UNITS).build(None, (1, 1, 3))


def test_bad_calls() -> None:
    layer, x = PopnnAUGRU(UNITS), inputs()
    params, good = made(layer), [LENGTHS, scores()]
    bad: list[tuple[Any, str]] = [
        ((params, x[0], *good), r"inputs of PopnnAUGRU have shape \[3, 5\]"),
        (
            (params, x.astype(np.float16), *good),
            "inputs of PopnnAUGRU came as float16, but the layer computes in float32",
        ),
        ((params, x[..., :2], *good), "'kernel'"),
        (({"kernel": params["kernel"]}, x, *good), "params of PopnnAUGRU"),
        (((1, 2), x, *good), "params of PopnnAUGRU are tuple"),
        ((params, x, LENGTHS[:2], scores()), "one integer for each"),
        ((params, x.swapaxes(0, 1), LENGTHS, scores().T), "3 time steps(.|\n)*time_major=False"),
        ((params, x, [1.0, 2.0, 3.0], scores()), "one integer for each"),
        ((params, x, [1, 2, TIME + 1], scores()), "from 1 to 5"),
        ((params, x, LENGTHS, scores().T), "attention_score"),
        ((params, x, *good, jnp.zeros((BATCH, 2))), "initial_state"),
    ]
    for args, message in bad:
        with pytest.raises(ipu.errors.OperatorError, match=message):
            layer(*args)
    with pytest.raises(TypeError, match="training"):
        layer(params, x, *good, training=1)  # pyright: ignore[reportArgumentType]
