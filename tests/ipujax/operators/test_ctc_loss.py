"""CTC losses: against facts, every alignment, and optax; bad values and bad shapes."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.errors import OperatorError
from ipujax.nn_ops import ctc_loss_v2, ctc_loss_with_log_probs
from tests.ipujax.ctc_reference import log_softmax, probabilities
from tests.ipujax.pipelining import run_pipeline, sgd
from tests.numbers import use_ipus

FACT_LOGITS = jnp.asarray([[0.1, 0.6, 0.1], [0.2, 0.3, 0.9], [0.5, 0.1, 0.2]])[:, None]


def ints(*values: int) -> jax.Array:
    return jnp.asarray(values, jnp.int32)


@pytest.mark.fact("ctc.loss_12")
@pytest.mark.fact("ctc.loss_1")
@pytest.mark.fact("ctc.loss_empty")
@pytest.mark.fact("ctc.shapes")
def test_facts_with_numbers() -> None:
    labels = jnp.asarray([[1, 2], [1, 0], [0, 0]])
    logits = jnp.repeat(FACT_LOGITS, 3, axis=1)
    loss = ipu.compile(lambda x: ctc_loss_v2(labels, x, ints(2, 1, 0), ints(3, 3, 3), 0))(logits)
    assert loss.shape == (3,)
    np.testing.assert_allclose(loss, [1.3741617, 1.6147995, 3.5900676], rtol=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("blank", [0, 1, 2, -1])
def test_every_label_and_length_against_every_alignment(blank: int) -> None:
    time, classes, longest = 4, 3, 3
    log_probs = log_softmax(np.random.default_rng(blank + 1).normal(size=(time, classes)))
    alphabet = [c for c in range(classes) if c != blank % classes]
    words = [w for n in range(longest + 1) for w in itertools.product(alphabet, repeat=n)]
    cases = [(word, steps) for word in words for steps in range(time + 1)]
    labels = np.full((len(cases), longest), -7)  # what is beyond a label does not matter
    for number, (word, _) in enumerate(cases):
        labels[number, : len(word)] = word

    data = jnp.asarray(np.repeat(log_probs[:, None], len(cases), axis=1), jnp.float32)
    lengths, steps = ints(*(len(w) for w, _ in cases)), ints(*(s for _, s in cases))
    got = ctc_loss_with_log_probs(labels, data, lengths, steps, blank)

    tables = [probabilities(log_probs[:s], blank % classes) for s in range(time + 1)]
    with np.errstate(divide="ignore"):
        wanted = [-np.log(tables[steps].get(word, 0.0)) for word, steps in cases]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert np.isinf(wanted).any()
    assert any(word[0] == word[1] for word, _ in cases if len(word) > 1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("label", "steps"), [((1, 2), 3), ((1, 1), 3), ((), 2), ((2,), 1)])
def test_gradient_against_differences_of_every_alignment(label: Any, steps: int) -> None:
    logits = np.random.default_rng(5).normal(size=(3, 3))
    arguments = (ints(len(label)), ints(steps), 0)
    labels = jnp.asarray([[*label, 0, 0][:2]])

    def loss(data: Any, function: Any) -> Any:
        return function(labels, data, *arguments)[0]

    def brute_force(data: Any) -> float:
        return -np.log(probabilities(log_softmax(data[:steps]), 0)[label])

    slopes = np.zeros((3, 3))
    for place in np.ndindex(3, 3):
        nudge = np.zeros((3, 3))
        nudge[place] = 1e-5
        slopes[place] = (brute_force(logits + nudge) - brute_force(logits - nudge)) / 2e-5

    slope = jax.jit(jax.grad(loss), static_argnums=1)
    of_logits = slope(jnp.asarray(logits[:, None], jnp.float32), ctc_loss_v2)
    np.testing.assert_allclose(of_logits[:, 0], slopes, atol=1e-5)
    np.testing.assert_array_equal(of_logits[steps:], 0)
    # As in the original, that of log probabilities is the one of their logits.
    log_probs = jnp.asarray(log_softmax(logits)[:, None], jnp.float32)
    of_log_probs = slope(log_probs, ctc_loss_with_log_probs)
    np.testing.assert_allclose(of_log_probs[:, 0], slopes, atol=1e-5)
    np.testing.assert_array_equal(of_log_probs[steps:], 0)
    both = jax.jit(jax.grad(lambda x: loss(jax.nn.log_softmax(x), ctc_loss_with_log_probs)))
    np.testing.assert_allclose(both(log_probs)[:, 0], slopes, atol=1e-5)


TIME, BATCH, CLASSES, LONGEST = 40, 5, 6, 9


@jax.jit
def value_and_gradient(logits: Any, labels: Any, lengths: Any, steps: Any) -> Any:
    def loss(logits: Any) -> Any:
        return ctc_loss_v2(labels, logits, lengths, steps, 0).sum()

    return jax.value_and_grad(loss)(logits)


@jax.jit
def of_optax(logits: Any, labels: Any, lengths: Any, steps: Any) -> Any:
    steps_missing = (jnp.arange(TIME) >= steps[:, None]).astype(jnp.float32)
    labels_missing = (jnp.arange(LONGEST) >= lengths[:, None]).astype(jnp.float32)

    def loss(logits: Any) -> Any:
        batch_major = logits.swapaxes(0, 1)
        return optax.ctc_loss(batch_major, steps_missing, labels, labels_missing).sum()

    return jax.value_and_grad(loss)(logits)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.1, 1.0, 20.0]))
def test_value_and_gradient_of_optax(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    problem = (
        jnp.asarray(rng.normal(size=(TIME, BATCH, CLASSES)) * scale, jnp.float32),
        jnp.asarray(rng.integers(1, CLASSES, (BATCH, LONGEST))),  # repeats are likely
        jnp.asarray(rng.integers(0, LONGEST + 1, BATCH)),
        jnp.asarray(rng.integers(2 * LONGEST, TIME + 1, BATCH)),
    )
    loss, gradient = value_and_gradient(*problem)
    wanted, wanted_gradient = of_optax(*problem)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    # Optax's own posteriors miss a sum of one by so much, where losses are large.
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-4 if scale > 1 else 1e-5)


def test_posteriors_sum_to_one_at_each_of_many_steps() -> None:
    time, steps = 3000, 2500
    data = jax.nn.log_softmax(30 * jax.random.normal(jax.random.key(0), (time, 1, 5)))
    labels = jax.random.randint(jax.random.key(1), (1, 400), 1, 5)

    def loss(data: Any) -> Any:
        return ctc_loss_with_log_probs(labels, data, ints(400), ints(steps), 0)[0]

    gradient = jax.jit(jax.grad(loss))(data)[:, 0]
    posteriors = (jnp.exp(data[:, 0]) - gradient)[:steps]
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0, atol=1e-4)
    assert float(posteriors.min()) >= -1e-6
    np.testing.assert_array_equal(gradient[steps:], 0)


def test_classes_without_probability() -> None:
    chances = jnp.asarray([[0.0, 1.0, 0.0], [0.5, 0.25, 0.25]])
    data = jnp.log(chances)[:, None]

    @jax.jit
    def losses(data: Any) -> Any:
        two = jnp.repeat(data, 2, axis=1)
        return ctc_loss_with_log_probs(jnp.asarray([[1], [2]]), two, ints(1, 1), ints(2, 2), 0)

    np.testing.assert_allclose(losses(data), [-np.log(0.75), np.inf], atol=1e-6)
    gradient = jax.jit(jax.grad(lambda data: losses(data).sum()))(data)[:, 0]
    posteriors = [[0, 1, 0], [2 / 3, 1 / 3, 0]]
    np.testing.assert_allclose(gradient, chances - jnp.asarray(posteriors), atol=1e-6)


def test_what_is_not_a_number_stays_so() -> None:
    logits = jnp.repeat(FACT_LOGITS, 2, axis=1).at[1, 0, 0].set(jnp.nan)
    labels = jnp.asarray([[1, 2], [1, 2]])
    losses = ctc_loss_v2(labels, logits, ints(2, 2), ints(3, 3), 0)
    np.testing.assert_allclose(losses, [np.nan, 1.3741617], rtol=1e-6)


@pytest.mark.parametrize("label", [(1, 1), (1, 2, 1)])
def test_what_no_alignment_explains_is_infinite_and_moves_nothing(label: Any) -> None:
    labels, lengths = jnp.asarray([label]), ints(len(label))

    def loss(x: Any) -> Any:
        return ctc_loss_v2(labels, x, lengths, ints(2), 0)[0]

    value, gradient = jax.jit(jax.value_and_grad(loss))(FACT_LOGITS)
    assert value == np.inf
    np.testing.assert_array_equal(gradient, 0)


WITHOUT_MEANING = [
    ((1, 3), 2, 3, "the labels of ctc_loss_v2 contain 3"),
    ((1, -1), 2, 3, "the labels of ctc_loss_v2 contain -1"),
    ((0, 1), 2, 3, "the labels of ctc_loss_v2 contain 0, which is the blank"),
    ((1, 2), 3, 3, "the label lengths of ctc_loss_v2 contain 3"),
    ((1, 2), -1, 3, "the label lengths of ctc_loss_v2 contain -1"),
    ((1, 2), 2, 4, "the data lengths of ctc_loss_v2 contain 4"),
    ((1, 2), 2, -1, "the data lengths of ctc_loss_v2 contain -1"),
]


@pytest.mark.parametrize(("label", "length", "steps", "message"), WITHOUT_MEANING)
def test_known_values_without_a_meaning(label: Any, length: int, steps: int, message: str) -> None:
    arguments = np.asarray([label]), FACT_LOGITS, np.asarray([length]), np.asarray([steps]), 0
    with pytest.raises(OperatorError, match=message):
        ctc_loss_v2(*arguments)
    with pytest.raises(OperatorError, match=message):
        jax.jit(lambda logits: ctc_loss_v2(arguments[0], logits, *arguments[2:]))(FACT_LOGITS)


def test_labels_beyond_their_length_do_not_matter() -> None:
    got = ctc_loss_v2(np.asarray([[1, 2, 0, -1, 9]]), FACT_LOGITS, ints(2), ints(3), 0)
    np.testing.assert_allclose(got, [1.3741617], rtol=1e-6)


def test_labels_of_unknown_lengths_may_be_padding() -> None:
    labels = np.asarray([[1, 2, 0, -1, 9]])
    got = jax.jit(lambda n: ctc_loss_v2(labels, FACT_LOGITS, n, ints(3), 0))(ints(2))
    np.testing.assert_allclose(got, [1.3741617], rtol=1e-6)


@pytest.mark.parametrize(("label", "length", "steps"), [row[:3] for row in WITHOUT_MEANING])
def test_values_without_a_meaning_are_nan_and_move_nothing(
    label: Any, length: int, steps: int
) -> None:
    labels = jnp.asarray([label, (1, 2)])
    losses, gradient = first_of_two(labels, ints(length, 2), ints(steps, 3))
    np.testing.assert_allclose(losses, [np.nan, 1.3741617], rtol=1e-6)
    np.testing.assert_array_equal(gradient, 0)


@jax.jit
def first_of_two(labels: Any, lengths: Any, steps: Any) -> Any:
    """Both losses, and the gradient of the first."""
    logits = jnp.repeat(FACT_LOGITS, 2, axis=1)

    def losses(x: Any) -> Any:
        return ctc_loss_v2(labels, x, lengths, steps, 0)

    return losses(logits), jax.grad(lambda x: losses(x)[0])(logits)


@pytest.mark.sampled(1)
@pytest.mark.fact("ctc.out_dtype_default")
@pytest.mark.parametrize("function", [ctc_loss_v2, ctc_loss_with_log_probs])
def test_dtypes(function: Any) -> None:
    labels, arguments = jnp.asarray([[1, 2]]), (ints(2), ints(3), 0)
    data = jax.nn.log_softmax(FACT_LOGITS)

    def loss(x: Any, dtype: Any = None) -> Any:
        return function(labels, x, *arguments, dtype)

    half = data.astype(jnp.float16)
    assert loss(data).dtype == jnp.float32
    assert loss(half).dtype == jnp.float16
    assert loss(half, jnp.float32).dtype == jnp.float32
    assert loss(half, "float16").dtype == jnp.float16
    np.testing.assert_allclose(loss(half, jnp.float32), loss(data), atol=2e-3)
    slope = jax.jit(jax.grad(lambda x: loss(x)[0]))
    assert slope(half).dtype == jnp.float16
    np.testing.assert_allclose(slope(half), slope(data), atol=2e-3)


@pytest.mark.fact("ctc.out_dtype_down")
@pytest.mark.parametrize("function", [ctc_loss_v2, ctc_loss_with_log_probs])
def test_losses_are_not_rounded_to_less_than_their_data(function: Any) -> None:
    with pytest.raises(ValueError, match=r"out_dtype of ctc_loss_.* is float16, but its data are"):
        function(jnp.asarray([[1, 2]]), FACT_LOGITS, ints(2), ints(3), 0, jnp.float16)


def test_vmap_is_a_loop() -> None:
    many = jax.random.normal(jax.random.key(3), (4, 5, 2, 3))
    labels, steps = jnp.asarray([[1, 2], [2, 2]]), ints(5, 4)

    @jax.jit
    @jax.grad
    def gradient(x: Any) -> Any:
        return ctc_loss_v2(labels, x, ints(2, 2), steps, 0).sum()

    each = jnp.stack([gradient(x) for x in many])
    np.testing.assert_allclose(jax.jit(jax.vmap(gradient))(many), each, atol=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", [ctc_loss_v2, ctc_loss_with_log_probs])
def test_derivatives_of_derivatives(function: Any) -> None:
    def loss(x: Any) -> Any:
        return function(jnp.asarray([[1, 2]]), x, ints(2), ints(3), 0)[0]

    slope = jax.jit(jax.grad(loss))
    direction = jax.random.normal(jax.random.key(0), FACT_LOGITS.shape)
    got = jax.jit(jax.grad(lambda x: jnp.vdot(slope(x), direction)))(FACT_LOGITS)
    step = 1e-2 * direction
    wanted = (slope(FACT_LOGITS + step) - slope(FACT_LOGITS - step)) / 2e-2
    np.testing.assert_allclose(got, wanted, atol=1e-3)


def mean_loss(weights: Any, x: Any) -> Any:
    labels = jnp.asarray([[1, 2, 2], [2, 1, 0]])
    return ctc_loss_v2(labels, x @ weights, ints(3, 2), ints(8, 7), 0).mean()


WEIGHTS = jax.random.normal(jax.random.key(1), (4, 3))
INPUTS = jax.random.normal(jax.random.key(2), (8, 2, 4))


def test_compiled_gradient_on_the_second_of_two_shards() -> None:
    use_ipus(2)

    def model(weights: Any, x: Any) -> Any:
        with ipu.scopes.ipu_shard(1):
            return mean_loss(weights, x)

    got = ipu.compile(jax.value_and_grad(model))(WEIGHTS, INPUTS)
    for mine, theirs in zip(
        got, jax.jit(jax.value_and_grad(mean_loss))(WEIGHTS, INPUTS), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_gradient_on_two_replicas() -> None:
    use_ipus(2)

    def model(weights: Any, x: Any) -> Any:
        return ipu.cross_replica_ops.cross_replica_sum(jax.grad(mean_loss)(weights, x))

    got = ipu.compile(model)(WEIGHTS, INPUTS)
    np.testing.assert_allclose(got, 2 * jax.jit(jax.grad(mean_loss))(WEIGHTS, INPUTS), atol=1e-6)


def test_in_a_loop_with_its_forward_pass_again() -> None:
    def model(weights: Any, x: Any) -> Any:
        def body(weights: Any) -> Any:
            return weights - 0.1 * jax.grad(jax.checkpoint(mean_loss))(weights, x)

        return ipu.loops.repeat(3, body, [weights])

    wanted = WEIGHTS
    for _ in range(3):
        wanted -= 0.1 * jax.jit(jax.grad(mean_loss))(wanted, INPUTS)
    np.testing.assert_allclose(ipu.compile(model)(WEIGHTS, INPUTS), wanted, atol=1e-5)


@pytest.mark.exhaustive
def test_nothing_is_invalid_inside() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.set_all = True
    config.configure_ipu_system()
    labels = jnp.asarray([[1, 2], [1, 1]])

    def first(x: Any) -> Any:  # the second label needs more steps than there are
        losses = ctc_loss_v2(labels, x, ints(2, 2), ints(3, 2), 0, jnp.float32)
        return losses[0], losses

    data = jnp.repeat(FACT_LOGITS, 2, axis=1).astype(jnp.float16)
    (_, losses), gradient = ipu.compile(jax.value_and_grad(first, has_aux=True))(data)
    np.testing.assert_allclose(losses, [1.3741617, np.inf], atol=2e-3)
    wanted = jax.jit(jax.grad(lambda x: first(x)[0]))(data)
    np.testing.assert_allclose(gradient, wanted, atol=2e-3)


def test_last_stage_of_a_pipeline() -> None:
    stages = [lambda v, x: x * v["scale"], lambda v, x: mean_loss(v["weights"], x)]
    variables = {"scale": jnp.float32(1.0), "weights": WEIGHTS}
    use_ipus(2)
    (trained, _), _ = run_pipeline(
        stages,
        4,
        variables=variables,
        data=[np.asarray(INPUTS)] * 4,
        optimizer_function=sgd(0.1),
    )
    gradient = jax.jit(jax.grad(mean_loss))(WEIGHTS, INPUTS)
    np.testing.assert_allclose(trained["weights"], WEIGHTS - 0.4 * gradient, atol=1e-5)


def test_costs_are_known() -> None:
    report = ipu.compile(jax.grad(mean_loss)).lower(WEIGHTS, INPUTS).report()
    assert report.default_share < 0.1


@pytest.mark.parametrize(
    ("old", "new"),
    [("ctc_loss", "ctc_loss_with_log_probs"), ("ctc_loss_with_logits", "ctc_loss_v2")],
)
def test_deprecated_names(old: str, new: str) -> None:
    arguments = (jnp.asarray([[1, 2]]), FACT_LOGITS, ints(2), ints(3), 0)
    with pytest.warns(DeprecationWarning, match=f"nn_ops.{old} is deprecated; use nn_ops.{new}"):
        got = getattr(ipu.nn_ops, old)(*arguments)
    np.testing.assert_array_equal(got, getattr(ipu.nn_ops, new)(*arguments))


GOOD: dict[str, Any] = {
    "labels": np.asarray([[1, 2]]),
    "logits": FACT_LOGITS,
    "label_length": np.asarray([2]),
    "logit_length": np.asarray([3]),
    "blank_index": 0,
}


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"logits": FACT_LOGITS[:, 0]}, ValueError, r"the logits .* have shape \[3, 3\]"),
        ({"logits": FACT_LOGITS[:0]}, ValueError, "at least one time step"),
        ({"logits": FACT_LOGITS.astype(int)}, TypeError, "the logits of ctc_loss_v2 are int32"),
        ({"labels": np.asarray([1, 2])}, ValueError, r"the labels .* have shape \[2\]"),
        ({"labels": np.ones((2, 2), int)}, ValueError, r"give them the shape \[1, max_label"),
        ({"labels": None}, TypeError, "the labels of ctc_loss_v2 cannot be an array"),
        ({"logits": "x"}, TypeError, "the logits of ctc_loss_v2 cannot be an array"),
        ({"labels": np.ones((1, 2))}, TypeError, "the labels of ctc_loss_v2 are float"),
        ({"label_length": np.asarray(2)}, ValueError, "the label lengths of ctc_loss_v2 have"),
        ({"logit_length": np.asarray([3, 3])}, ValueError, "the data lengths of ctc_loss_v2 have"),
        (
            {"logits": jnp.zeros((1, 3, 3))},
            ValueError,
            r"(?s)are 1, but there are 3 examples in data of shape \[1, 3, 3\].*time-major",
        ),
        ({"blank_index": 3}, ValueError, "is 3, but there are 3 classes"),
        ({"blank_index": -4}, ValueError, "give one of 0 to 2, or -1"),
        ({"blank_index": 1.0}, TypeError, "blank_index of ctc_loss_v2 is 1.0"),
        ({"out_dtype": jnp.bfloat16}, ValueError, "out_dtype of ctc_loss_v2 is bfloat16"),
        ({"out_dtype": "half a float"}, TypeError, "out_dtype of ctc_loss_v2 is 'half a float'"),
    ],
)
def test_bad_arguments(bad: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ctc_loss_v2(**{**GOOD, **bad})
