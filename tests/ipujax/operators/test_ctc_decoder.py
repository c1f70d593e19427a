"""Beam search: against facts, every alignment, and a decoder written with NumPy."""

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
from benchmarks.operators.beam_search import decode_batch
from ipujax.errors import OperatorError
from ipujax.nn_ops import ctc_beam_search_decoder, ctc_beam_search_decoder_with_log_probs
from tests.ipujax.ctc_reference import log_softmax, probabilities
from tests.numbers import same, use_ipus

FACT_LOGITS = jnp.asarray([[0.1, 0.6, 0.1], [0.2, 0.3, 0.9], [0.5, 0.1, 0.2]])[:, None]

Paths = list[list[tuple[tuple[int, ...], float]]]


def paths(decoded: Any) -> Paths:
    """The result as `decode_batch` gives it, without labels that do not exist."""
    found, lengths, classes = (np.asarray(part) for part in decoded)
    return [
        [
            (tuple(map(int, classes[i, k, : lengths[i, k]])), float(found[i, k]))
            for k in range(found.shape[1])
            if found[i, k] > -np.inf
        ]
        for i in range(found.shape[0])
    ]


def equal(got: Paths, wanted: Paths) -> None:
    for mine, theirs in zip(got, wanted, strict=True):
        assert [label for label, _ in mine] == [label for label, _ in theirs]
        values = [[value for _, value in each] for each in (mine, theirs)]
        np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)


@pytest.mark.fact("ctc.beam_best")
@pytest.mark.fact("ctc.beam_shapes")
def test_fact_with_numbers() -> None:
    decode = ipu.compile(lambda x: ctc_beam_search_decoder(x, np.asarray([3]), 16, 3, 0))
    got = decode(FACT_LOGITS)
    assert [part.shape for part in got] == [(1, 3), (1, 3), (1, 3, 3)]
    assert [part.dtype.name for part in got] == ["float32", "int32", "int32"]
    equal(paths(got), [[((1, 2), -1.3741617), ((2,), -1.4207884), ((1,), -1.6147995)]])
    np.testing.assert_array_equal(got[2][0], [[1, 2, -1], [2, -1, -1], [1, -1, -1]])


@pytest.mark.sampled(1)
@pytest.mark.fact("ctc.beam_variants")
@pytest.mark.parametrize(("count", "steps", "seed"), [(1, 3, 0), (1, 5, 1), (3, 5, 2)])
def test_both_decoders_are_the_reference_one(count: int, steps: int, seed: int) -> None:
    logits = np.random.RandomState(seed).rand(10, 2, 32).astype(np.float32)  # the original's
    lengths = np.asarray([steps, steps])
    log_probs = jax.nn.log_softmax(logits)
    one = ctc_beam_search_decoder(logits, lengths, 16, count)
    two = ctc_beam_search_decoder_with_log_probs(log_probs, lengths, 16, count)
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, other)
    equal(paths(one), decode_batch(np.asarray(log_probs), lengths, 16, count, blank=31))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("blank", [0, 1, -1])
def test_a_wide_beam_finds_what_every_alignment_gives(blank: int) -> None:
    time, batch, classes, width = 4, 5, 3, 64
    logits = np.random.default_rng(7).normal(size=(time, batch, classes))
    steps = np.asarray([4, 3, 2, 1, 0])  # with fewer labels than paths
    data = jnp.asarray(logits, jnp.float32)
    got = paths(ctc_beam_search_decoder(data, steps, width, width, blank))
    for example in range(batch):
        log_probs = log_softmax(logits[: steps[example], example])
        every = probabilities(log_probs.reshape(-1, classes), blank % classes)
        wanted = sorted(((w, float(np.log(p))) for w, p in every.items()), key=lambda x: -x[1])
        equal([got[example]], [wanted])


@functools.partial(jax.jit, static_argnums=2)
def narrow(log_probs: Any, steps: Any, width: int) -> Any:
    return ctc_beam_search_decoder_with_log_probs(log_probs, steps, width, width, 0)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), width=st.sampled_from([1, 2, 3, 6]))
def test_narrow_beams_drop_and_merge_what_the_reference_does(seed: int, width: int) -> None:
    # With few classes and many steps, labels leave the beams, come back, and meet their parents.
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(25, 4, 3))
    log_probs = log_softmax(logits).astype(np.float32)
    steps = rng.integers(0, 26, 4)
    got = paths(narrow(jnp.asarray(log_probs), jnp.asarray(steps), width))
    equal(got, decode_batch(log_probs, steps, width, width, 0))
    for labels in got:
        assert len({label for label, _ in labels}) == len(labels)


def test_classes_without_probability_are_never_read() -> None:
    data = jnp.log(jnp.asarray([[[0.0, 1.0, 0.0]], [[0.6, 0.4, 0.0]], [[0.0, 1.0, 0.0]]]))
    found = ctc_beam_search_decoder_with_log_probs(data, np.asarray([3]), 5, 5, 0)
    equal(paths(found), [[((1, 1), float(np.log(0.6))), ((1,), float(np.log(0.4)))]])
    np.testing.assert_array_equal(found[0][0, 2:], -np.inf)
    np.testing.assert_array_equal(found[1][0, 2:], 0)
    np.testing.assert_array_equal(found[2][0, 2:], -1)


def test_what_is_not_a_number_stays_so() -> None:
    two = jnp.repeat(FACT_LOGITS, 2, axis=1).at[1, 0].set(jnp.nan)
    found, _, _ = ctc_beam_search_decoder(two, np.asarray([3, 3]), 4, 1, 0)
    np.testing.assert_allclose(found, [[np.nan], [-1.3741617]], rtol=1e-6)


def test_nothing_is_invalid_inside() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.set_all = True
    config.configure_ipu_system()
    decode = ipu.compile(lambda x: ctc_beam_search_decoder(x, np.asarray([3]), 8, 1, 0))
    found, _, classes = decode(FACT_LOGITS.astype(jnp.float16))
    np.testing.assert_allclose(found, [[-1.3741617]], atol=2e-3)
    np.testing.assert_array_equal(classes[0, 0], [1, 2, -1])


def test_blanks_alone() -> None:
    found, lengths, _ = ctc_beam_search_decoder(jnp.zeros((4, 2, 1)), np.asarray([4, 0]), 3, 2)
    np.testing.assert_array_equal(found, [[0, -np.inf], [0, -np.inf]])
    np.testing.assert_array_equal(lengths, 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [-1, 4])
def test_lengths_that_the_data_do_not_have(steps: int) -> None:
    two = jnp.repeat(FACT_LOGITS, 2, axis=1)

    def decoded(lengths: Any) -> Any:
        return ctc_beam_search_decoder(two, lengths, 4, 1, 0)[0]

    lengths = np.asarray([steps, 3])
    np.testing.assert_allclose(jax.jit(decoded)(lengths), [[np.nan], [-1.3741617]], rtol=1e-6)
    with pytest.raises(OperatorError, match=f"the data lengths of .* contain {steps}"):
        decoded(lengths)


def test_data_with_the_batch_first() -> None:
    with pytest.raises(OperatorError, match=r"(?s)are 2, but there are 3 examples.*time-major"):
        ctc_beam_search_decoder(jnp.zeros((2, 3, 4)), np.asarray([3, 3]), 4)


def test_float16() -> None:
    found, lengths, labels = ctc_beam_search_decoder(
        FACT_LOGITS.astype(jnp.float16), np.asarray([3]), 8, 2, 0
    )
    assert found.dtype == jnp.float16
    np.testing.assert_allclose(found, [[-1.3741617, -1.4207884]], atol=2e-3)
    np.testing.assert_array_equal(lengths, [[2, 1]])
    np.testing.assert_array_equal(labels[0, 0], [1, 2, -1])


def test_vmap_and_shards() -> None:
    many = jax.random.normal(jax.random.key(0), (3, 6, 2, 4))
    steps = np.asarray([6, 5])

    def decode(x: Any) -> Any:
        with ipu.scopes.ipu_shard(1):
            return ctc_beam_search_decoder(x, steps, 5, 2)

    alone = jax.jit(decode)
    each = [alone(x) for x in many]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    same(jax.jit(jax.vmap(decode))(many), stacked, exact=False)
    use_ipus(2)
    same(ipu.compile(decode)(many[0]), each[0], exact=False)


def test_costs_are_known() -> None:
    decode = ipu.compile(lambda x: ctc_beam_search_decoder(x, np.asarray([3]), 4, 1, 0))
    assert decode.lower(FACT_LOGITS).report().default_share < 0.1


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"logits": FACT_LOGITS[0]}, ValueError, r"the logits .* have shape \[1, 3\]"),
        ({"logits": FACT_LOGITS.astype(int)}, TypeError, "the logits .* are int32"),
        ({"logits_lengths": np.asarray([3, 3])}, ValueError, "the data lengths .* have shape"),
        ({"logits_lengths": np.asarray([3.0])}, TypeError, "the data lengths .* are float32"),
        ({"beam_width": 0}, ValueError, "beam_width of ctc_beam_search_decoder is 0"),
        ({"beam_width": "8"}, TypeError, "beam_width of ctc_beam_search_decoder is '8'"),
        ({"top_paths": 0}, ValueError, "top_paths of ctc_beam_search_decoder is 0"),
        ({"top_paths": 101}, ValueError, "is 101, but beam_width is only 100"),
        ({"blank_index": 3}, ValueError, "is 3, but there are 3 classes"),
    ],
)
def test_bad_arguments(bad: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"logits": FACT_LOGITS, "logits_lengths": np.asarray([3])}
    with pytest.raises(error, match=message):
        ctc_beam_search_decoder(**{**good, **bad})
