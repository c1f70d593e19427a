"""Collectives over replicas, in compiled programs and under plain `jax.jit`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.all_to_all_op import all_gather, all_to_all
from ipujax.cross_replica_ops import (
    assume_equal_across_replicas,
    cross_replica_mean,
    cross_replica_sum,
)
from ipujax.driver import device_options
from ipujax.errors import CollectiveError
from ipujax.reduce_scatter_op import reduce_scatter
from ipujax.replication_ops import replication_index, replication_normalise
from tests.conftest import RunWithDevices

GROUP_ROWS = np.array([[0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]], np.float32)


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def compiled(ipus: int, fn: Callable[..., Any], *args: Any) -> Any:
    """What replica 0 gives."""
    configure(ipus)
    return ipu.compile(fn)(*args)


def per_replica(fn: Callable[..., Any], *rows: Any) -> Any:
    """What each replica gives, stacked; replica r is called with row r of each argument."""
    replicas = len(rows[0])

    def program(*rows: Any) -> Any:
        out = fn(*(row[replication_index()] for row in rows))
        return jax.tree.map(lambda leaf: all_gather(leaf, replicas), out)

    return compiled(replicas, program, *rows)


# --- cross_replica_sum ----------------------------------------------------------------------------


@pytest.mark.fact("cross_replica.sum_simple")
def test_sum_of_equal_values() -> None:
    out = compiled(2, lambda x: cross_replica_sum(x + x), np.ones(4, np.float32))
    np.testing.assert_array_equal(out, [4, 4, 4, 4])


@pytest.mark.fact("cross_replica.sum_grad")
def test_gradient_of_a_sum_is_the_sum_of_cotangents() -> None:
    def model(inp: Any, b: Any) -> Any:
        loss, pullback = jax.vjp(lambda b: cross_replica_sum(inp + b), b)
        return loss, pullback(jnp.ones_like(loss))[0]

    loss, grad = compiled(2, model, np.ones(4, np.float32), np.full(4, 3, np.float32))
    np.testing.assert_array_equal(loss, [8] * 4)
    np.testing.assert_array_equal(grad, [2] * 4)


@pytest.mark.fact("cross_replica.sum_dtypes")
def test_sum_keeps_dtypes() -> None:
    def model(x: Any, y: Any) -> Any:
        return cross_replica_sum(x + x), cross_replica_sum(y + y + 1)

    x, y = compiled(2, model, np.ones(4, np.float32), np.ones(4, np.int32))
    np.testing.assert_array_equal(x, [4] * 4)
    np.testing.assert_array_equal(y, [6] * 4)
    assert (x.dtype, y.dtype) == (np.float32, np.int32)


@pytest.mark.fact("cross_replica.sum_combined")
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sums_of_sums(dtype: Any) -> None:
    def model(x: Any) -> Any:
        return cross_replica_sum(cross_replica_sum(x * x) + cross_replica_sum(x + x))

    np.testing.assert_array_equal(compiled(2, model, np.full(100, 10, dtype)), [480] * 100)


@pytest.mark.fact("cross_replica.index")
def test_index_selects_a_row() -> None:
    def model(inp: Any) -> Any:
        return cross_replica_sum(jax.lax.dynamic_slice_in_dim(inp, replication_index(), 1))

    np.testing.assert_array_equal(compiled(2, model, np.array([2, 4], np.float32)), [6.0])


@pytest.mark.fact("cross_replica.all_reduce_g4")
def test_sum_over_a_group_of_all() -> None:
    out = per_replica(lambda x: cross_replica_sum(x, replica_group_size=4), GROUP_ROWS)
    np.testing.assert_array_equal(out, [[3, 6, 10, 14]] * 4)


@pytest.mark.fact("cross_replica.bad_group")
def test_group_size_must_divide_the_replicas() -> None:
    with pytest.raises(CollectiveError, match="must evenly divide the number of replicas") as info:
        compiled(4, lambda x: cross_replica_sum(x, replica_group_size=3), np.ones(4))
    assert isinstance(info.value, ValueError)


@pytest.mark.fact("sharding.gcl_shard_sum")
@pytest.mark.parametrize("replicas", [2, 4])
def test_sum_on_the_second_of_two_shards(replicas: int) -> None:
    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = x + replication_index()
        with ipu.scopes.ipu_shard(1):
            return cross_replica_sum(y)

    assert compiled(2 * replicas, model, 1) == sum(range(1, replicas + 1))


@pytest.mark.fact("cross_replica.multi_update")
def test_mean_of_scattered_updates() -> None:
    def model(indices: Any) -> Any:
        table = jnp.zeros((1000, 128)).at[indices].add(2.0 * jnp.ones((16, 128)))
        return replication_normalise(cross_replica_sum(table))

    twice, once = [1, 2, 3, 4], [10, 20, 30, 40, 100, 200, 300, 400]
    expected = np.zeros((1000, 128))
    expected[twice], expected[once] = 4.0, 2.0
    np.testing.assert_array_equal(compiled(8, model, np.array([*twice, *twice, *once])), expected)


# --- means, and equal values ----------------------------------------------------------------------


@pytest.mark.fact("cross_replica.mean_groups")
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_mean(dtype: Any) -> None:
    rows = np.arange(16, dtype=dtype).reshape(4, 4)
    for size in (None, 0, 4):
        out = per_replica(lambda x, size=size: cross_replica_mean(x, size), rows)
        np.testing.assert_array_equal(out, [[6, 7, 8, 9]] * 4)
        assert out.dtype == dtype
    out = per_replica(lambda x: cross_replica_mean(x, replica_group_size=2), rows)
    np.testing.assert_array_equal(out, [[2, 3, 4, 5]] * 2 + [[10, 11, 12, 13]] * 2)


@pytest.mark.fact("cross_replica.normalise")
def test_normalise_divides_by_the_replicas() -> None:
    def model(a: Any) -> Any:
        x = replication_normalise(a)
        return x, a + x

    x, total = compiled(2, model, np.ones(4, np.float32))
    np.testing.assert_array_equal(x, [0.5] * 4)
    np.testing.assert_array_equal(total, [1.5] * 4)
    with pytest.raises(TypeError, match="replication_normalise takes floats, but x is int32"):
        compiled(2, replication_normalise, np.ones(4, np.int32))


def test_normalise_keeps_float16() -> None:
    assert compiled(4, replication_normalise, np.ones(2, np.float16)).dtype == np.float16


@pytest.mark.fact("cross_replica.assume_equal_cond")
@pytest.mark.parametrize("inplace", [True, False])
def test_assume_equal_before_a_condition(inplace: bool) -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(np.ones((2, 4), np.float32) for _ in range(4))

    def body(total: Any, x: Any) -> Any:
        predicate = assume_equal_across_replicas(jnp.all(x != 2), inplace)
        return jax.lax.cond(
            predicate, lambda: cross_replica_sum(total + x), lambda: jnp.zeros((2, 4))
        )

    def model(total: Any) -> Any:
        return ipu.loops.repeat(2, body, total, infeed)

    np.testing.assert_array_equal(compiled(2, model, jnp.zeros((2, 4))), np.full((2, 4), 6.0))


@pytest.mark.fact("cross_replica.assume_equal_sliced")
def test_assume_equal_of_slices_in_a_loop() -> None:
    def model(x: Any) -> Any:
        def body(state: Any) -> Any:
            i, total = state
            return i + 1, total + cross_replica_sum(assume_equal_across_replicas(x[i]))

        return jax.lax.while_loop(lambda state: state[0] < 4, body, (0, 0.0))[1]

    assert compiled(4, model, np.ones(10, np.float32)) == 16.0


@pytest.mark.parametrize("inplace", [True, False])
def test_assume_equal_of_several_conditions(inplace: bool) -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(np.ones((2, 4), np.float32) for _ in range(4))

    def body(total: Any, x: Any) -> Any:
        safe = assume_equal_across_replicas([x != 2, x != 3, x != 4], inplace)
        predicate = jnp.all(safe[0] & safe[1] & safe[2])
        return jax.lax.cond(predicate, lambda: cross_replica_sum(total + x), lambda: 0 * total)

    def model(total: Any) -> Any:
        return ipu.loops.repeat(2, body, total, infeed)

    np.testing.assert_array_equal(compiled(2, model, jnp.zeros((2, 4))), np.full((2, 4), 6.0))


def diverging(make_condition: Callable[[Any], Any], kind: str = "cond") -> Any:
    """A loop over an infeed's elements, with a sum over replicas under a condition."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(np.full((2, 4), 1.0, np.float32) for _ in range(4))

    def body(total: Any, x: Any) -> Any:
        if kind == "while":
            return jax.lax.while_loop(
                lambda t: jnp.all(t < 0) & make_condition(x), lambda t: cross_replica_sum(t), total
            )
        if kind == "cond without a collective":
            return jax.lax.cond(make_condition(x), lambda t: t + x, lambda t: t, total)
        return jax.lax.cond(make_condition(x), lambda t: cross_replica_sum(t), lambda t: t, total)

    return compiled(2, lambda total: ipu.loops.repeat(2, body, total, infeed), jnp.zeros((2, 4)))


@pytest.mark.parametrize("kind", ["cond", "while"])
@pytest.mark.parametrize(
    ("make_condition", "warns"),
    [
        (lambda x: jnp.all(x != 2), True),
        (lambda x: replication_index() == 0, True),
        (lambda x: jax.jit(lambda y: jnp.all(y != 2))(x), True),
        (lambda x: cross_replica_sum(jnp.sum(x)) != 2, False),
        (lambda x: assume_equal_across_replicas(jnp.all(x != 2)), False),
        (lambda x: assume_equal_across_replicas(jnp.all(x != 2), inplace=True), False),
        (lambda x: jnp.all(assume_equal_across_replicas(x)[0] != 2), False),
        (lambda x: jnp.zeros(()) < 1, False),
    ],
)
def test_conditions_that_part_replicas_at_a_collective_are_warned_of(
    kind: str, make_condition: Any, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    device_options._warn_of_divergent_condition.cache_clear()
    diverging(make_condition, kind)
    records = [record for record in caplog.records if "may diverge" in record.getMessage()]
    assert [record.levelname for record in records] == ["WARNING"] * warns
    location = __file__ + r":\d+ \(diverging"
    assert all(re.search(location, record.getMessage()) for record in records)
    caplog.clear()
    if kind == "cond":
        diverging(make_condition, "cond without a collective")
        assert "may diverge" not in caplog.text


def test_a_condition_that_comes_to_differ_in_a_loop_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The loop variable is equal at first, and made of the replica's own numbers from then on."""
    device_options._warn_of_divergent_condition.cache_clear()

    def body(i: Any, state: Any) -> Any:
        flag, total = state
        total = jax.lax.cond(flag > 2, lambda t: cross_replica_sum(t), lambda t: t, total)
        return total[0], total + replication_index().astype(jnp.float32)

    def model(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, body, (jnp.float32(0), x))[1]

    compiled(2, model, np.ones(4, np.float32))
    assert caplog.text.count("may diverge") == 1


def test_enqueue_under_a_sum_of_values_assumed_equal() -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(np.ones(10, np.float32) for _ in range(4))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total: Any, x: Any) -> Any:
        def step(state: Any) -> Any:
            i, total = state
            value = cross_replica_sum(assume_equal_across_replicas(x[i]))
            jax.lax.cond(value > 0, lambda: outfeed.enqueue(value), lambda: None)
            return i + 1, total + value

        return jax.lax.while_loop(lambda state: state[0] < 4, step, (0, total))[1]

    def model(total: Any) -> Any:
        return ipu.loops.repeat(1, body, total, infeed)

    np.testing.assert_array_equal(compiled(4, model, jnp.zeros(10)), np.full(10, 16.0))
    np.testing.assert_array_equal(outfeed.dequeue(), np.full((4, 4), 4.0))


def test_assume_equal_keeps_structures_and_copies_unless_in_place() -> None:
    tree = {"a": jnp.ones(2), "b": (jnp.int32(3), None)}
    for inplace in (True, False):
        out = assume_equal_across_replicas(tree, inplace)
        assert jax.tree.all(jax.tree.map(np.array_equal, out, tree))
        text = str(jax.make_jaxpr(lambda t, i=inplace: assume_equal_across_replicas(t, i))(tree))
        assert ("copy" in text) is not inplace
    assert assume_equal_across_replicas(tree["a"], inplace=True) is tree["a"]
    with pytest.raises(TypeError, match="inplace"):
        assume_equal_across_replicas(tree, 1)


# --- gathers and exchanges ------------------------------------------------------------------------


@pytest.mark.fact("cross_replica.all_gather_g1")
@pytest.mark.fact("cross_replica.all_gather_g2")
@pytest.mark.parametrize("size", [1, 2, 4])
def test_gather_in_groups(size: int) -> None:
    out = per_replica(lambda x: all_gather(x, replication_factor=size), GROUP_ROWS)
    expected = [GROUP_ROWS[r // size * size :][:size] for r in range(4)]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.fact("cross_replica.all_gather8")
def test_gather_over_eight() -> None:
    def model() -> Any:
        return all_gather(jnp.zeros(8) + replication_index(), 8)

    np.testing.assert_array_equal(compiled(8, model), np.repeat(np.arange(8.0), 8).reshape(8, 8))


@pytest.mark.fact("cross_replica.all_gather_list")
def test_gather_of_a_list_keeps_dtypes() -> None:
    dtypes = [np.float32, np.int32, np.float16, np.bool_]

    def model() -> Any:
        parts = [jnp.full(8, 2 * replication_index() + i, d) for i, d in enumerate(dtypes)]
        return all_gather(parts, 4), all_gather(parts[0], 4)

    gathered, single = compiled(4, model)
    assert isinstance(gathered, list)
    assert single.shape == (4, 8)
    for i, (part, dtype) in enumerate(zip(gathered, dtypes, strict=True)):
        expected = np.repeat(2 * np.arange(4) + i, 8).reshape(4, 8).astype(dtype)
        np.testing.assert_array_equal(part, expected)
        assert part.dtype == dtype


@pytest.mark.fact("cross_replica.all_to_all")
def test_all_to_all_deals_elements_out() -> None:
    rows = np.arange(1, 65, dtype=np.float32).reshape(8, 8)
    out = per_replica(lambda x: all_to_all(x, 0, 0, replication_factor=8), rows)
    np.testing.assert_array_equal(out, rows.T)


def numpy_all_to_all(rows: np.ndarray, split: int, concat: int, size: int) -> np.ndarray:
    blocks = [np.split(row, size, axis=split) for row in rows]
    groups = [range(r // size * size, r // size * size + size) for r in range(len(rows))]
    return np.stack(
        [
            np.concatenate([blocks[other][r % size] for other in group], axis=concat)
            for r, group in enumerate(groups)
        ]
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (2, 0), (1, 2)])
def test_all_to_all_and_its_gradient(split: int, concat: int, size: int) -> None:
    rows = np.arange(4 * 4 * 8 * 4, dtype=np.float32).reshape(4, 4, 8, 4)
    expected = numpy_all_to_all(rows, split, concat, size)
    cotangents = np.random.default_rng(0).integers(-9, 9, expected.shape).astype(np.float32)

    def model(x: Any, cotangent: Any) -> Any:
        out, pullback = jax.vjp(lambda x: all_to_all(x, split, concat, size), x)
        return out, pullback(cotangent)[0], all_to_all(cotangent, concat, split, size)

    out, gradient, back = per_replica(model, rows, cotangents)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(gradient, back)
    np.testing.assert_array_equal(gradient, numpy_all_to_all(cotangents, concat, split, size))


def test_all_to_all_of_what_all_replicas_have() -> None:
    for size in (2, 4):
        out = compiled(4, lambda x, size=size: all_to_all(x, 0, 1, size), np.arange(8.0)[:, None])
        np.testing.assert_array_equal(out, np.repeat(np.arange(8 // size)[:, None], size, 1))


def test_reports_tell_exchanges_from_gathers() -> None:
    def cycles(fn: Callable[[Any], Any]) -> int:
        report = ipu.compile(fn).lower(np.zeros(2**20, np.float32)).compile().report()
        assert report.default_share < 0.01
        return sum(step.cycles for step in report.steps if step.kind == "inter_ipu")

    configure(16)
    # All of the array passes every other replica, 15 times; or a 16th of it goes to each, of which
    # 8 * 8 pass through the middle.
    gathered, exchanged = (
        cycles(lambda x: all_gather(x, 16)),
        cycles(lambda x: all_to_all(x, 0, 0, 16)),
    )
    np.testing.assert_allclose(gathered / exchanged, 15 / (8 * 8 / 16), rtol=0.05)


# --- reduce_scatter -------------------------------------------------------------------------------

REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "COLLECTIVE_OP_ADD": lambda rows: rows.sum(0),
    "COLLECTIVE_OP_MUL": lambda rows: rows.prod(0),
    "COLLECTIVE_OP_MIN": lambda rows: rows.min(0),
    "COLLECTIVE_OP_MAX": lambda rows: rows.max(0),
    "COLLECTIVE_OP_LOGICAL_AND": lambda rows: (rows != 0).all(0),
    "COLLECTIVE_OP_LOGICAL_OR": lambda rows: (rows != 0).any(0),
    "COLLECTIVE_OP_SQUARE_ADD": lambda rows: (rows * rows).sum(0),
    "COLLECTIVE_OP_MEAN": lambda rows: rows.sum(0) / len(rows),
}


def numpy_reduce_scatter(rows: np.ndarray, size: int, op: str) -> np.ndarray:
    part = -(-rows.shape[1] // size)
    padded = np.pad(rows, ((0, 0), (0, part * size - rows.shape[1])))
    results: list[np.ndarray] = []
    for r, row in enumerate(padded):
        group = padded[r // size * size :][:size]
        whole = row if op == "COLLECTIVE_OP_LOCAL" else REDUCTIONS[op](group)
        results.append(whole[r % size * part :][:part])
    return np.stack(results)


@pytest.mark.fact("cross_replica.reduce_scatter_g2")
@pytest.mark.fact("cross_replica.reduce_scatter_g4")
@pytest.mark.parametrize(
    ("size", "expected"),
    [(2, [[0, 1], [3, 5], [3, 5], [7, 9]]), (4, [[3], [6], [10], [14]])],
)
def test_reduce_scatter_in_groups(size: int, expected: list[list[float]]) -> None:
    out = per_replica(lambda x: reduce_scatter(x, replication_factor=size), GROUP_ROWS)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.fact("cross_replica.rs_padding_MEAN")
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_reduce_scatter_pads_with_zeros(length: int) -> None:
    values = length * np.arange(length, dtype=np.float32)
    rows = np.stack([values] * 4)
    out = per_replica(lambda x: reduce_scatter(x, 4, "COLLECTIVE_OP_MEAN"), rows).reshape(-1)
    assert len(out) == (4 if length < 5 else 8)
    np.testing.assert_array_equal(out[:length], values)
    np.testing.assert_array_equal(out[length:], 0)


@pytest.mark.fact("cross_replica.rs_then_gather")
@pytest.mark.parametrize("dtype", [np.float32, np.uint32])
def test_reduce_scatter_then_gather(dtype: Any) -> None:
    rows = (2.0 ** np.arange(32)).reshape(4, 8).astype(dtype)

    def model(rows: Any) -> Any:
        return all_gather(reduce_scatter(rows[replication_index()], 4), 4)

    out = compiled(4, model, rows)
    np.testing.assert_allclose(out, rows.sum(0, dtype=dtype).reshape(4, 2), rtol=1e-6)


@pytest.mark.fact("cross_replica.rs_ops")
def test_reduce_scatter_lists_its_ops() -> None:
    with pytest.raises(CollectiveError, match="COLLECTIVE_OP_SUM") as info:
        reduce_scatter(jnp.ones(4), 1, op="COLLECTIVE_OP_SUM")
    for op in (*REDUCTIONS, "COLLECTIVE_OP_LOCAL"):
        assert op in str(info.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", [*REDUCTIONS, "COLLECTIVE_OP_LOCAL"])
@hypothesis.settings(max_examples=6)
@hypothesis.given(data=st.data())
def test_reduce_scatter_is_numpy(op: str, data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([1, 2, 4]))
    length = data.draw(st.integers(1, 9))
    elements = st.lists(st.integers(-8, 8), min_size=4 * length, max_size=4 * length)
    rows = np.array(data.draw(elements), np.float32).reshape(4, length)
    out = per_replica(lambda x: reduce_scatter(x, size, op), rows)
    np.testing.assert_array_equal(out, numpy_reduce_scatter(rows, size, op))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.uint8])
@pytest.mark.parametrize("size", [2, 4])
def test_reduce_scatter_keeps_types(dtype: Any, size: int) -> None:
    rows = np.random.default_rng(0).integers(0, 4, (4, 6)).astype(np.float64)

    def model(x: Any) -> Any:
        return {op: reduce_scatter(x, size, op) for op in (*REDUCTIONS, "COLLECTIVE_OP_LOCAL")}

    for op, out in per_replica(model, rows.astype(dtype)).items():
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, numpy_reduce_scatter(rows, size, op).astype(dtype))


@pytest.mark.parametrize("op", ["COLLECTIVE_OP_LOGICAL_AND", "COLLECTIVE_OP_LOGICAL_OR"])
def test_reduce_scatter_of_booleans(op: str) -> None:
    rows = np.array([[True, True, False], [True, False, False]])
    out = per_replica(lambda x: reduce_scatter(x, 2, op), rows)
    assert out.dtype == np.bool_
    np.testing.assert_array_equal(out, numpy_reduce_scatter(rows, 2, op))


def test_gradient_of_reduce_scatter_gathers() -> None:
    rows, cotangents = np.arange(12.0).reshape(4, 3), np.arange(4.0).reshape(4, 1) + 1

    def model(x: Any, cotangent: Any) -> Any:
        return jax.vjp(lambda x: reduce_scatter(x, 4), x)[1](cotangent)[0]

    # Each replica's x counts in all sums, each of which is one replica's.
    np.testing.assert_array_equal(per_replica(model, rows, cotangents), [[1, 2, 3]] * 4)


@pytest.mark.exhaustive
def test_collectives_over_real_devices(run_with_devices: RunWithDevices) -> None:
    out = run_with_devices(
        4,
        """
        import jax, jax.numpy as jnp
        import ipujax as ipu
        from ipujax import all_to_all_op, cross_replica_ops, reduce_scatter_op, replication_ops

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 4
        config.configure_ipu_system()

        def model(x):
            x = x + replication_ops.replication_index()
            outputs = (
                cross_replica_ops.cross_replica_sum(x, 2),
                all_to_all_op.all_to_all(x, 0, 0, 4),
                reduce_scatter_op.reduce_scatter(x, 4, "COLLECTIVE_OP_MAX"),
            )
            return jax.tree.map(lambda leaf: all_to_all_op.all_gather(leaf, 4), outputs)

        for out in ipu.compile(model)(jnp.arange(4)):
            print(out.tolist())
        """,
    )
    rows = np.add.outer(np.arange(4), np.arange(4))
    pairs = [rows[r // 2 * 2 :][:2].sum(0).tolist() for r in range(4)]
    lines = [pairs, rows.T.tolist(), [[3], [4], [5], [6]]]
    assert out.splitlines() == [str(line) for line in lines]


# --- transformations, one replica, and mistakes ---------------------------------------------------

BATCHED: dict[str, Callable[[Any], Any]] = {
    "sum": cross_replica_sum,
    "sum_groups": lambda x: cross_replica_sum(x, 2),
    "mean": cross_replica_mean,
    "gather": lambda x: all_gather(x, 2),
    "all_to_all": lambda x: all_to_all(x, 0, 0, 4),
    "all_to_all_groups": lambda x: all_to_all(x, 0, 0, 2),
    "reduce_scatter": lambda x: reduce_scatter(x, 4),
    "reduce_scatter_max": lambda x: reduce_scatter(x, 2, "COLLECTIVE_OP_MAX"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operator", BATCHED.values(), ids=BATCHED)
def test_vmap_is_one_call_per_example(operator: Callable[[Any], Any]) -> None:
    rows = np.random.default_rng(0).integers(0, 9, (4, 3, 4)).astype(np.float32)

    def model(batch: Any) -> Any:
        one_by_one = jnp.stack([operator(example) for example in batch])
        return jax.vmap(operator)(batch), one_by_one, jax.vmap(operator, 1, 1)(batch.T)

    mapped, expected, other_axis = per_replica(model, rows)
    np.testing.assert_array_equal(mapped, expected)
    np.testing.assert_array_equal(np.moveaxis(other_axis, 2, 1), expected)


def test_one_replica_is_the_identity_under_plain_jit() -> None:
    x = jnp.arange(6.0)

    @jax.jit
    def model(x: Any) -> Any:
        return (
            cross_replica_sum(x, name="total"),
            cross_replica_mean(x),
            all_to_all(x, 0, 0, 1),
            all_gather(x, 1)[0],
            reduce_scatter(x, 1),
            replication_normalise(x) + replication_index(),
        )

    for out in (*model(x), cross_replica_sum(x), assume_equal_across_replicas(x)):
        np.testing.assert_array_equal(out, x)


def test_array_likes_are_arrays() -> None:
    np.testing.assert_array_equal(cross_replica_sum([1.0, 2.0]), [1, 2])
    assert cross_replica_sum(3).dtype == jnp.int32
    assert replication_index().dtype == jnp.int32


def test_names_are_scopes() -> None:
    operators: list[Callable[[Any], Any]] = [
        lambda x: cross_replica_sum(x, name="mine"),
        lambda x: cross_replica_mean(x, name="mine"),
        lambda x: all_gather(x, 1, name="mine"),
        lambda x: all_to_all(x, 0, 0, 1, name="mine"),
        lambda x: reduce_scatter(x, 1, name="mine"),
        lambda x: replication_index(name="mine"),
        lambda x: replication_normalise(x, name="mine"),
    ]
    for operator in operators:
        eqns = jax.make_jaxpr(operator)(jnp.ones(2)).eqns
        assert any(str(eqn.source_info.name_stack) == "mine" for eqn in eqns)


x = jnp.ones((4, 6))
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "zero": (lambda: cross_replica_sum(x, 0), ValueError, "replica_group_size .* is 0"),
    "negative": (lambda: cross_replica_mean(x, -1), ValueError, "replica_group_size .* is -1"),
    "bool": (lambda: cross_replica_sum(x, True), TypeError, "True, of type bool"),
    "float": (lambda: all_gather(x, 2.0), TypeError, "2.0, of type float"),
    "factor": (lambda: all_gather(x, 0), ValueError, "replication_factor of all_gather is 0"),
    "split": (lambda: all_to_all(x, 2, 0, 2), ValueError, "split_dimension .* is 2, .* 2 dimen"),
    "concat": (lambda: all_to_all(x, 0, -1, 2), ValueError, "concat_dimension .* is -1"),
    "uneven": (lambda: all_to_all(x, 1, 0, 4), ValueError, "4 does not divide 6"),
    "scalar": (lambda: all_to_all(1.0, 0, 0, 1), ValueError, "has 0 dimensions"),
    "rank": (lambda: reduce_scatter(x, 2), ValueError, r"rank 1, but x is \[4, 6\]"),
    "booleans": (lambda: cross_replica_sum(x > 0), TypeError, "booleans"),
    "add": (lambda: reduce_scatter(x[0] > 0, 2), TypeError, "booleans"),
    "dict": (lambda: cross_replica_sum({"a": x}), TypeError, "jax.tree.map"),
    "ragged": (lambda: cross_replica_sum([x, x[0]]), TypeError, "operand of cross_replica_sum"),
    "text": (lambda: all_gather("x", 1), TypeError, "operand of all_gather cannot be an array"),
    "op": (lambda: reduce_scatter(x[0], 2, ["ADD"]), ValueError, "has no op"),  # pyright: ignore
    "name": (lambda: cross_replica_sum(x, name=3), TypeError, "is 3"),  # pyright: ignore
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_while_tracing(
    mistake: tuple[Callable[[], Any], type[Exception], str],
) -> None:
    call, kind, message = mistake
    with pytest.raises(kind, match=message) as info:
        call()
    assert isinstance(info.value, ipu.errors.IPUError)
    assert "fix:" in str(info.value)
    assert "test_collectives.py:" in str(info.value)
