"""Sequence slices against loops in NumPy, and the facts."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, OperatorError
from ipujax.slicing_ops import sequence_slice, sequence_slice_pack, sequence_slice_unpack

DTYPES = [np.float16, np.float32, np.int32]


def counting(rows: int, dtype: Any = np.float32) -> Any:
    """Row i is filled with i."""
    return np.repeat(np.arange(rows, dtype=dtype)[:, None], rows, axis=1)


def by_hand(dst: Any, src: Any, slices: Any, zero_unused: bool) -> Any:
    out = np.zeros_like(dst) if zero_unused else dst.copy()
    for count, start, end in zip(*slices, strict=True):
        for i in range(count):
            if 0 <= end + i < len(dst) and 0 <= start + i < len(src):
                out[end + i] = src[start + i]
    return out


A = ([2, 2], [2, 1], [0, 4])
FIRST = [2, 3, 0, 0, 1, 2]


@pytest.mark.sampled(2)
@pytest.mark.fact("slicing.slice_A")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zero_unused", [True, False])
def test_slice_a(dtype: Any, zero_unused: bool) -> None:
    def fn(dst: Any, src: Any, *slices: Any) -> Any:
        return sequence_slice(dst, src, *slices, zero_unused)

    src, dst = counting(6, dtype), np.zeros((6, 6), dtype)
    for out in (ipu.compile(fn)(dst, src, *map(np.array, A)), fn(dst, src, *A)):
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, np.repeat(np.array(FIRST)[:, None], 6, 1))


@pytest.mark.sampled(2)
@pytest.mark.fact("slicing.slice_B")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zero_unused", [True, False])
def test_slice_b(dtype: Any, zero_unused: bool) -> None:
    src = counting(3, dtype)
    slices = ([1, 1, 1], [0, 1, 2], [0, 1, 2])
    out = sequence_slice(np.zeros((3, 3), dtype), src, *slices, zero_unused)
    np.testing.assert_array_equal(out, src)


@pytest.mark.fact("slicing.zero_unused")
def test_rows_that_no_slice_goes_to() -> None:
    dst = np.full((6, 6), 9, np.float32)
    np.testing.assert_array_equal(sequence_slice(dst, counting(6), *A, True)[:, 0], FIRST)
    kept = sequence_slice(dst, counting(6), *A, False)[:, 0]
    np.testing.assert_array_equal(kept, [2, 3, 9, 9, 1, 2])


@pytest.mark.fact("slicing.pack")
def test_unpack_and_pack() -> None:
    unpacked = sequence_slice_unpack(counting(6), [2, 2], [2, 1], 4)
    np.testing.assert_array_equal(unpacked[:, 0], [2, 3, 1, 2])
    packed = sequence_slice_pack(np.zeros((6, 6), np.float32), unpacked, [2, 2], [2, 1], False)
    np.testing.assert_array_equal(packed[:, 0], [0, 1, 2, 3, 0, 0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("zero_unused", [True, False])
def test_a_longer_destination(zero_unused: bool) -> None:
    dst = np.full((9, 3), 7, np.float16)
    slices = ([1, 1, 1], [0, 1, 2], [1, 3, 5])
    out = sequence_slice(dst, counting(3, np.float16), *slices, zero_unused)
    others = 0 if zero_unused else 7
    expected = [others, 0, others, 1, others, 2, others, others, others]
    np.testing.assert_array_equal(out, np.repeat(np.array(expected)[:, None], 3, 1))


def test_rows_that_an_unpacking_leaves_are_zero() -> None:
    out = sequence_slice_unpack(counting(4) + 1, [1, 0, 2], [3, 0, 0], 5)
    np.testing.assert_array_equal(out[:, 0], [4, 1, 2, 0, 0])


@pytest.mark.fact("slicing.loop_copy")
def test_offsets_that_a_loop_computes() -> None:
    src = np.repeat(np.arange(1024, dtype=np.float16)[:, None], 128, axis=1)

    def body(dst: Any, offsets: Any) -> Any:
        return sequence_slice(dst, src, [4] * 4, offsets, offsets, False), offsets + 16

    def model() -> Any:
        start = [jnp.zeros_like(src), jnp.arange(0, 16, 4)]
        return ipu.loops.repeat(64, body, start)[0]

    np.testing.assert_array_equal(ipu.compile(model)(), src)


@hypothesis.given(st.data(), st.booleans())
@hypothesis.settings(max_examples=30)
def test_any_slices(data: Any, zero_unused: bool) -> None:
    offsets = st.lists(st.integers(-3, 8), min_size=3, max_size=3)
    counts = st.lists(st.integers(0, 4), min_size=3, max_size=3)
    slices = data.draw(counts), data.draw(offsets), data.draw(offsets)
    src, dst = counting(6)[:, :2] + 1, np.full((5, 2), 9, np.float32)
    out = SLICED(dst, src, *map(np.array, slices), zero_unused)
    np.testing.assert_array_equal(out, by_hand(dst, src, slices, zero_unused))


SLICED = jax.jit(sequence_slice, static_argnums=5)


def test_gradients() -> None:
    rng = np.random.default_rng(0)
    dst, src = rng.normal(size=(2, 6, 3)).astype(np.float32)
    weights = rng.normal(size=(6, 3)).astype(np.float32)

    def loss(dst: Any, src: Any, offsets: Any, zero_unused: bool) -> Any:
        return jnp.sum(weights * sequence_slice(dst, src, [2, 2], offsets, [0, 3], zero_unused))

    for zero_unused in (True, False):
        fn = ipu.compile(jax.grad(loss, (0, 1)), static_argnums=3)
        of_dst, of_src = fn(dst, src, np.array([2, 1]), zero_unused)
        kept = np.array([0, 0, 1, 0, 0, 1])[:, None] * (not zero_unused)
        np.testing.assert_allclose(of_dst, weights * kept)
        # Row 2 was copied twice: to rows 0 and 4.
        expected = [0 * weights[0], weights[3], weights[0] + weights[4], weights[1]]
        np.testing.assert_allclose(of_src, [*expected, 0 * weights[0], 0 * weights[0]], rtol=1e-6)


@pytest.mark.exhaustive
def test_vmap() -> None:
    src, dst = counting(6), np.zeros((6, 6), np.float32)
    starts = np.array([[2, 1], [0, 4]])
    out = jax.vmap(lambda starts: sequence_slice(dst, src, [2, 2], starts, [0, 4], True))(starts)
    for each, start in zip(out, starts, strict=True):
        expected = by_hand(dst, src, ([2, 2], start, [0, 4]), True)
        np.testing.assert_array_equal(each, expected)


def test_sharded_and_packed_again() -> None:
    def model(src: Any, counts: Any, starts: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            rows = sequence_slice_unpack(src, counts, starts, 4)
        with ipu.scopes.ipu_shard(1):
            return sequence_slice_pack(jnp.zeros_like(src), rows, counts, starts, True)

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    out = ipu.compile(model)(counting(6) + 1, np.array([1, 2]), np.array([5, 1]))
    np.testing.assert_array_equal(out[:, 0], [0, 2, 3, 0, 0, 6])


def test_costs() -> None:
    def loss(dst: Any, src: Any, offsets: Any) -> Any:
        return jnp.sum(sequence_slice(dst, src, [16, 16], offsets, offsets, False) ** 2)

    arguments = np.ones((64, 32), np.float32), np.ones((64, 32), np.float32), np.array([0, 32])
    for fn in (loss, jax.grad(loss, (0, 1))):
        report = ipu.compile(fn).lower(*arguments).compile().report()
        assert report.cycles > 0
        assert report.default_share < 0.25


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.fact("slicing.errors_len")
def test_lengths_must_match() -> None:
    x = counting(6)
    for call in (
        lambda: sequence_slice(x, x, [0, 1], [0], [0, 1], False),
        lambda: sequence_slice_unpack(x, [0, 1], [0], 4),
        lambda: sequence_slice_pack(x, x, [0], [0, 1], False),
        lambda: sequence_slice_pack(x, x, [[0]], [[0]], False),
        lambda: sequence_slice_pack(x, x, np.zeros(0, int), np.zeros(0, int), False),
    ):
        with pytest.raises(OperatorError, match="matching non-zero rank-1 shapes") as info:
            call()
        assert isinstance(info.value, ValueError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: sequence_slice(x, x, [3], [4], [0], True), "slice of 3 rows at row 4, but src"),
        (lambda x: sequence_slice(x, x, [3], [0], [4], True), "slice of 3 rows at row 4, but dst"),
        (lambda x: sequence_slice(x, x, [1], [-1], [0], True), "at row -1, but src has 6 rows"),
        (lambda x: sequence_slice(x, x, [-1], [0], [0], True), "slice of -1 rows"),
        (lambda x: sequence_slice_unpack(x, [3, 2], [0, 0], 4), "is 4, but the slices have 5 rows"),
        (lambda x: sequence_slice_unpack(x, [3], [0], 0), "total_elements"),
        (lambda x: sequence_slice_pack(x, x[:2], [2, 1], [0, 0], True), "but src has 2 rows"),
        (lambda x: sequence_slice(x, x[:, :2], [1], [0], [0], True), "same dimensions"),
        (lambda x: sequence_slice(x, x.astype(int), [1], [0], [0], True), "same dtype"),
        (lambda x: sequence_slice(x[0], x[0], [1], [0], [0], True), "at least two dimensions"),
        (lambda x: sequence_slice(x, x[:0], [1], [0], [0], True), "at least one row"),
        (lambda x: sequence_slice(x, x, [1.0], [0], [0], True), "give integers"),
        (lambda x: sequence_slice(x, x, [2**32 + 1], [0], [0], True), "slice of 4294967297 rows"),
        (lambda x: sequence_slice(x, x, [1], [2**32], [0], True), "at row 4294967296, but src"),
        (lambda x: sequence_slice_unpack(x, [2**31] * 2, [0, 0], 4), "slices have 4294967296 rows"),
        (lambda x: sequence_slice(x, x, None, [0], [0], True), "num_elems of .* is object"),
        (lambda x: sequence_slice(x, x, [1], None, [0], True), "src_offsets of .* is object"),
        (lambda x: sequence_slice_pack(x, x, [1], None, True), "dst_offsets of .* is object"),
    ],
)
def test_bad_values(call: Any, message: str) -> None:
    for run in (call, jax.jit(call)):
        with pytest.raises(OperatorError, match=message) as info:
            run(counting(6))
        assert "test_slicing_ops.py:" in str(info.value)


def test_a_count_that_no_offset_can_save() -> None:
    def call(start: Any) -> Any:
        return sequence_slice(counting(6), counting(6), [7], start, [0], True)

    with pytest.raises(OperatorError, match="slice of 7 rows, but src has 6 rows"):
        jax.jit(call)(np.array([0]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_any_integers(dtype: Any) -> None:
    slices = [np.array(numbers, dtype) for numbers in A]
    known = sequence_slice(counting(6), counting(6), *slices, True)
    for out in (known, SLICED(counting(6), counting(6), *slices, True)):
        np.testing.assert_array_equal(out[:, 0], FIRST)


def test_bad_types() -> None:
    x = counting(6)
    with pytest.raises(ConfigTypeError, match="zero_unused"):
        sequence_slice(x, x, [1], [0], [0], 1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigTypeError, match="total_elements"):
        sequence_slice_unpack(x, [1], [0], 2.0)  # pyright: ignore[reportArgumentType]
