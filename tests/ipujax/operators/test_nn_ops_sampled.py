"""Sampled losses, their candidates, and the seeds and keys of random operators."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.errors import OperatorError
from ipujax.nn_ops import log_uniform_candidate_sampler, nce_loss, sampled_softmax_loss
from ipujax.operators.random_keys import choose_random_key
from tests.numbers import use_ipus

CLASSES, DIM, BATCH, SAMPLED, TRUE = 20, 6, 4, 5, 2

WEIGHTS = jax.random.normal(jax.random.key(0), (CLASSES, DIM))
BIASES = jax.random.normal(jax.random.key(1), (CLASSES,))
INPUTS = jax.random.normal(jax.random.key(2), (BATCH, DIM))
LABELS = np.asarray([[0, 3], [3, 3], [19, 7], [1, 0]])

LOSSES = [sampled_softmax_loss, nce_loss]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def sampled(count: int, classes: int, unique: bool, seed: Any) -> Any:
    true = jnp.arange(classes)[:, None]
    return log_uniform_candidate_sampler(true, 1, count, unique, classes, seed)


def zipf(classes: int) -> Any:
    ranks = np.arange(classes)
    return np.log((ranks + 2) / (ranks + 1)) / np.log(classes + 1)


@pytest.mark.exhaustive
@settings(max_examples=20)
@given(seed=st.integers(0, 2**31 - 1), size=st.sampled_from([(1, 1), (1, 9), (6, 9), (9, 9)]))
def test_unique_samples_and_the_chance_to_be_among_them(seed: int, size: tuple[int, int]) -> None:
    count, classes = size
    drawn, of_true, of_drawn = map(np.asarray, sampled(count, classes, True, np.uint32(seed)))
    assert len(set(drawn.tolist())) == count
    assert set(drawn.tolist()) <= set(range(classes))
    np.testing.assert_allclose(of_drawn, of_true[drawn, 0], rtol=1e-6)
    # There is one number of draws behind all these chances, and it is enough to find so many.
    rarest = zipf(classes)[-1]
    if classes > 1:
        tries = np.log1p(-np.float64(of_true[-1, 0])) / np.log1p(-rarest)
        assert tries == pytest.approx(round(tries), rel=2e-3)
        assert round(tries) >= count
        wanted = -np.expm1(round(tries) * np.log1p(-zipf(classes)))
        np.testing.assert_allclose(of_true[:, 0], wanted, rtol=1e-4)


def test_samples_with_repeats_follow_the_distribution() -> None:
    count, classes = 40000, 10
    drawn, of_true, of_drawn = map(np.asarray, sampled(count, classes, False, 0))
    expected = count * zipf(classes)
    np.testing.assert_allclose(of_true[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(of_drawn, expected[drawn], rtol=1e-5)
    seen = np.bincount(drawn, minlength=classes)
    assert ((seen - expected) ** 2 / expected).sum() < 27.9  # chi-squared, 9 degrees: 0.1%


def test_first_unique_sample_follows_the_distribution() -> None:
    # The first of several different classes is an ordinary draw.
    keys = jax.random.split(jax.random.key(3), 4000)

    @jax.jit
    @jax.vmap
    def first(key: Any) -> Any:
        return log_uniform_candidate_sampler([[0]], 1, 3, True, 6, key=key)[0]

    drawn = np.asarray(first(keys))
    expected = 4000 * zipf(6)
    seen = np.bincount(drawn[:, 0], minlength=6)
    assert ((seen - expected) ** 2 / expected).sum() < 20.5  # chi-squared, 5 degrees: 0.1%
    # The second is one among the others.
    second = np.bincount(drawn[drawn[:, 0] == 0, 1], minlength=6)[1:]
    expected = second.sum() * zipf(6)[1:] / zipf(6)[1:].sum()
    assert ((second - expected) ** 2 / expected).sum() < 18.5  # 4 degrees


@pytest.mark.exhaustive
@pytest.mark.fact("nn.sampler_seed")
def test_the_same_seed_draws_the_same_over_iterations() -> None:
    @jax.jit
    def draw(seed: Any) -> Any:
        return log_uniform_candidate_sampler(LABELS, TRUE, SAMPLED, True, CLASSES, seed)[0]

    def body(rows: Any, i: Any) -> Any:
        return rows.at[i].set(draw(42)), i + 1

    rows, _ = ipu.compile(
        lambda: ipu.loops.repeat(3, body, [jnp.zeros((3, SAMPLED), jnp.int32), 0])
    )()
    np.testing.assert_array_equal(rows, np.broadcast_to(draw(42), (3, SAMPLED)))
    assert len({tuple(np.asarray(draw(seed)).tolist()) for seed in range(8)}) > 4


def dense(
    function: Any, weights: Any, biases: Any, inputs: Any, labels: Any, candidates: Any
) -> Any:
    """The losses from the logits of all classes."""
    drawn, true_count, drawn_count = candidates
    logits = inputs @ weights.T + biases
    of_true = jnp.take_along_axis(logits, jnp.asarray(labels), axis=1) - jnp.log(true_count)
    of_drawn = logits[:, drawn] - jnp.log(drawn_count)
    every = jnp.concatenate([of_true, of_drawn], axis=1)
    wanted = jnp.zeros_like(every).at[:, :TRUE].set(1 / TRUE)
    if function is sampled_softmax_loss:
        return -(wanted * (every - jax.nn.logsumexp(every, axis=1, keepdims=True))).sum(axis=1)
    chances = jax.nn.sigmoid(every)
    return -(wanted * jnp.log(chances) + (1 - wanted) * jnp.log(1 - chances)).sum(axis=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", LOSSES)
@pytest.mark.parametrize("given_sample", [True, False])
def test_values_and_gradients_are_those_of_all_logits(function: Any, given_sample: bool) -> None:
    candidates = log_uniform_candidate_sampler(LABELS, TRUE, SAMPLED, True, CLASSES, 5)
    assert set(np.asarray(candidates[0]).tolist()) & set(LABELS.ravel().tolist())  # they stay
    how = {"sampled_values": candidates} if given_sample else {"seed": 5}

    def loss(weights: Any, biases: Any, inputs: Any) -> Any:
        return function(weights, biases, LABELS, inputs, SAMPLED, CLASSES, TRUE, **how)

    def wanted(weights: Any, biases: Any, inputs: Any) -> Any:
        return dense(function, weights, biases, inputs, LABELS, candidates)

    arguments = (WEIGHTS, BIASES, INPUTS)
    losses, pull = jax.vjp(ipu.compile(loss), *arguments)
    wanted_losses, wanted_pull = jax.vjp(jax.jit(wanted), *arguments)
    assert losses.shape == (BATCH,)
    np.testing.assert_allclose(losses, wanted_losses, rtol=1e-5)
    upstream = jnp.arange(1.0, BATCH + 1)
    for mine, theirs in zip(pull(upstream), wanted_pull(upstream), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("function", LOSSES)
def test_only_rows_that_are_looked_at_are_touched(function: Any) -> None:
    def loss(weights: Any) -> Any:
        return function(weights, BIASES, LABELS, INPUTS, SAMPLED, CLASSES, TRUE, seed=1).sum()

    jaxpr = str(jax.make_jaxpr(jax.grad(loss))(WEIGHTS))
    whole = f"f32[{CLASSES},{DIM}]"
    adds = [line for line in jaxpr.splitlines() if f"{whole} = scatter-add" in line]
    assert len(adds) == 1
    assert not [line for line in jaxpr.splitlines() if f"{whole} = dot_general" in line]


@pytest.mark.parametrize("function", LOSSES)
def test_weights_in_parts(function: Any) -> None:
    arguments = (BIASES, LABELS, INPUTS, SAMPLED, CLASSES, TRUE)
    parts = function([WEIGHTS[:7], WEIGHTS[7:]], *arguments, seed=1)
    np.testing.assert_array_equal(parts, function(WEIGHTS, *arguments, seed=1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", LOSSES)
def test_one_expected_count_for_all_true_classes_of_an_example(function: Any) -> None:
    # The original's tests give such samples, of which some are true classes.
    counts = np.full((BATCH, 1), 0.5, np.float32)
    candidates = ([1, 0, 2, 3], counts, np.full(4, 0.5, np.float32))
    arguments = (WEIGHTS, BIASES, LABELS, INPUTS, 4, CLASSES, TRUE)
    spread = (jnp.asarray(candidates[0]), counts, candidates[2])
    wanted = dense(function, WEIGHTS, BIASES, INPUTS, LABELS, spread)
    np.testing.assert_allclose(function(*arguments, candidates), wanted, rtol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", LOSSES)
def test_no_examples(function: Any) -> None:
    none = jnp.zeros((0, TRUE), jnp.int32)
    losses = function(WEIGHTS, BIASES, none, INPUTS[:0], SAMPLED, CLASSES, TRUE, seed=1)
    assert losses.shape == (0,)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("count", "classes"), [(1, 1000), (100, 1000), (900, 1000), (1000, 1000)])
def test_expected_counts_are_those_of_drawing_without_replacement(count: int, classes: int) -> None:
    # The original's own measure: within 0.1 of what drawing different classes gives.
    rng = np.random.default_rng(0)
    chances = zipf(classes)
    # The smallest of exponential times, with these rates, are such a draw.
    times = rng.exponential(size=(2000, classes)) / chances
    first = np.argpartition(times, count - 1)[:, :count]
    frequency = np.bincount(first.ravel(), minlength=classes) / len(times)
    drawn, of_true, _ = map(np.asarray, sampled(count, classes, True, 42))
    assert len(set(drawn.tolist())) == count
    np.testing.assert_allclose(of_true[:, 0], frequency, atol=0.1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", LOSSES)
@pytest.mark.parametrize("label", [-1, CLASSES])
def test_labels_that_are_no_classes(function: Any, label: int) -> None:
    labels = LABELS.copy()
    labels[2, 1] = label

    def losses(labels: Any) -> Any:
        return function(WEIGHTS, BIASES, labels, INPUTS, SAMPLED, CLASSES, TRUE, seed=1)

    np.testing.assert_array_equal(np.isnan(jax.jit(losses)(labels)), [False, False, True, False])
    for known in (lambda: losses(labels), ipu.compile(lambda: losses(labels))):
        with pytest.raises(OperatorError, match=rf"the labels of .* contain {label}\n"):
            known()


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", LOSSES)
def test_float16_on_the_second_of_two_shards(function: Any) -> None:
    use_ipus(2)

    def loss(weights: Any, biases: Any, inputs: Any) -> Any:
        with ipu.scopes.ipu_shard(1):
            return function(weights, biases, LABELS, inputs, SAMPLED, CLASSES, TRUE, seed=1)

    halves = [array.astype(jnp.float16) for array in (WEIGHTS, BIASES, INPUTS)]
    got = ipu.compile(loss)(*halves)
    assert got.dtype == jnp.float16
    np.testing.assert_allclose(got, loss(WEIGHTS, BIASES, INPUTS), rtol=1e-2)


@pytest.mark.exhaustive
def test_without_a_seed_each_run_draws_anew() -> None:
    use_ipus(1)

    def loss(weights: Any) -> Any:
        return nce_loss(weights, BIASES, LABELS, INPUTS, SAMPLED, CLASSES, TRUE).sum()

    step = ipu.compile(jax.value_and_grad(loss))

    def three_runs(seed: int) -> Any:
        ipu.utils.reset_ipu_seed(seed)
        return [step(WEIGHTS) for _ in range(3)]

    first, again = three_runs(7), three_runs(7)
    assert len({float(value) for value, _ in first}) == 3
    for (value, gradient), (same_value, same_gradient) in zip(first, again, strict=True):
        assert value == same_value
        np.testing.assert_array_equal(gradient, same_gradient)


def test_costs_are_known() -> None:
    def loss(weights: Any) -> Any:
        return nce_loss(weights, BIASES, LABELS, INPUTS, SAMPLED, CLASSES, TRUE, seed=1).sum()

    report = ipu.compile(jax.grad(loss)).lower(WEIGHTS).report()
    assert report.default_share < 0.5  # logarithms of a few numbers


GOOD: dict[str, Any] = {
    "weights": WEIGHTS,
    "biases": BIASES,
    "labels": LABELS,
    "inputs": INPUTS,
    "num_sampled": SAMPLED,
    "num_classes": CLASSES,
    "num_true": TRUE,
    "seed": 1,
}
SAMPLE = log_uniform_candidate_sampler(LABELS, TRUE, SAMPLED, True, CLASSES, 5)


@pytest.mark.parametrize("function", LOSSES)
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"weights": WEIGHTS[:-1]}, ValueError, r"give them the shape \[20, dim\]"),
        ({"weights": [WEIGHTS, BIASES]}, ValueError, r"the weights of .* have shape \[20\]"),
        ({"weights": []}, ValueError, "the weights of .* are an empty list"),
        ({"biases": BIASES[1:]}, ValueError, r"the biases of .* have shape \[19\]"),
        ({"labels": LABELS[:, :1]}, ValueError, r"the labels of .* give them the shape \[4, 2\]"),
        ({"labels": LABELS[0]}, ValueError, r"the labels of .* have shape \[2\]"),
        ({"labels": LABELS * 1.0}, TypeError, "the labels of .* are float32"),
        ({"inputs": INPUTS[:, :3]}, ValueError, r"the inputs of .* \[batch_size, 6\]"),
        ({"inputs": LABELS}, ValueError, "the inputs of .* is int32, but must be floats"),
        ({"num_sampled": 21}, ValueError, "to sample 21 different classes, but .* only 20"),
        ({"num_sampled": 0}, ValueError, "num_sampled of .* is 0"),
        ({"num_classes": 2.0}, TypeError, "num_classes of .* is 2.0"),
        ({"num_true": 0}, ValueError, "num_true of .* is 0"),
        ({"seed": None}, ValueError, "was given neither a seed nor a key"),
        ({"key": jax.random.key(1)}, ValueError, "was given both a seed and a key"),
        ({"sampled_values": SAMPLE}, ValueError, "sampled_values, and a seed or key"),
        ({"sampled_values": 3, "seed": None}, TypeError, "sampled_values of .* are of type int\n"),
        (
            {"sampled_values": (SAMPLE[0][1:], *SAMPLE[1:]), "seed": None},
            ValueError,
            "the sampled candidates of",
        ),
        (
            {"sampled_values": (SAMPLE[0].at[-1].set(CLASSES), *SAMPLE[1:]), "seed": None},
            ValueError,
            "the sampled candidates of .* contain 20",
        ),
        (
            {"sampled_values": SAMPLE[:2], "seed": None},
            TypeError,
            "sampled_values of .* are of type tuple and length 2\n",
        ),
    ],
)
def test_bad_arguments(
    function: Any, bad: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        function(**{**GOOD, **bad})


def test_seeds_and_keys() -> None:
    def data(**start: Any) -> list[int]:
        key = choose_random_key(start.get("seed"), start.get("key"), "an operator")
        return np.asarray(jax.random.key_data(key)).tolist()

    assert data(seed=7) == data(key=jax.random.key(7)) == data(seed=jnp.int32(7))
    assert data(seed=7) == data(key=jax.random.PRNGKey(7)) == data(seed=np.int64(7))
    many = [0, 1, -1, 2**32, 2**63, 2**64 - 2]
    assert len({tuple(data(seed=seed)) for seed in many}) == len(many)


@pytest.mark.parametrize(
    "start",
    [
        {"seed": True},
        {"seed": 1.5},
        {"seed": "1"},
        {"seed": np.float32(1)},
        {"key": 7},
        {"key": jax.random.split(jax.random.key(0))},
        {"key": jnp.arange(2)},
    ],
)
def test_what_is_no_seed_or_key(start: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="of an operator is"):
        choose_random_key(start.get("seed"), start.get("key"), "an operator")


def test_a_seed_has_a_word_or_two() -> None:
    with pytest.raises(ValueError, match=r"the seed of an operator has shape \[3\]"):
        choose_random_key(jnp.arange(3), None, "an operator")
