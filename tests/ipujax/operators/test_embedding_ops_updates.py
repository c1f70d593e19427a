"""Host embeddings: each update happens once, wherever the lookup stands."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.embedding_ops import HostEmbedding, HostEmbeddingOptimizerSpec
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    RecomputationMode,
    pipeline,
)
from tests.conftest import RunWithDevices
from tests.ipujax.embedding import (
    BATCHES,
    FIRST,
    RATE,
    ROWS,
    is_table,
    one_by_one,
    squares,
    trained,
    updated,
)
from tests.ipujax.feeding import configure, outfeed

ENGINES = ("fused", "replay")


# --- each update once -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_over_a_data_set(engine: str) -> None:
    embedding, feed = trained(), IPUInfeedQueue(BATCHES)

    def body(handle: Any, ids: Any) -> Any:
        return handle - jax.grad(squares(embedding))(handle, ids)

    run = ipu.compile(lambda h: ipu.loops.repeat(10, body, [h], feed), engine=engine)
    with embedding.register():
        assert run(embedding.handle) == 0
    is_table(embedding, one_by_one(FIRST, BATCHES[:10]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("wrap", [lambda body: body, jax.checkpoint, jax.jit])
@pytest.mark.parametrize("factor", [1, 4])
def test_the_gradient_of_a_scan(wrap: Any, factor: int) -> None:
    embedding = trained(factor)

    def loss(handle: Any) -> Any:
        step = wrap(lambda total, ids: (total + squares(embedding)(handle, ids), None))
        return jax.lax.scan(step, jnp.float32(0), np.stack(BATCHES[:4]))[0]

    with embedding.register():
        value, gradient = ipu.compile(lambda h: jax.value_and_grad(loss)(h))(embedding.handle)
    assert gradient == 0
    np.testing.assert_allclose(value, np.sum(FIRST[np.stack(BATCHES[:4])] ** 2) / 2, rtol=1e-5)
    is_table(embedding, updated(FIRST, *BATCHES[:4]))


def test_a_loop_that_accumulates_gradients() -> None:
    """The original's `host_embedding_lookup_ga_test.py::testModel`, with its table in full."""
    embedding = trained(factor=2, rate=0.5)
    optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(optax.sgd(0.5), 2)
    weights, ids = np.full((FIRST.shape[1], 4), 0.5, np.float32), np.array([0, 3, 5], np.int32)

    def loss(handle: Any) -> Any:
        return jnp.abs(jnp.mean(embedding.lookup(ids, handle=handle) @ weights))

    def body(_: Any, handle: Any, state: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(handle)
        changes, state = optimizer.update(gradient, state, handle)
        return value, optax.apply_updates(handle, changes), state

    def run(handle: Any) -> Any:
        return ipu.loops.repeat(6, body, [jnp.float32(0), handle, optimizer.init(handle)])[:2]

    table, value = FIRST.copy(), np.float32(0)
    for _ in range(3):
        mean = np.mean(table[ids] @ weights)
        value = abs(mean)
        table[ids] -= 0.5 * 2 * np.sign(mean) * 0.5 / len(ids)
    with embedding.register():
        last, handle = ipu.compile(run)(embedding.handle)
    assert handle == 0
    np.testing.assert_allclose(last, value, rtol=1e-5)
    is_table(embedding, table)


def test_the_gradient_of_a_loop_of_ours() -> None:
    embedding = trained()

    def loss(handle: Any) -> Any:
        def body(number: Any, total: Any) -> Any:
            return number + 1, total + squares(embedding)(handle, jnp.stack([number, number]))

        return ipu.loops.repeat(4, body, [jnp.int32(0), jnp.float32(0)])[1]

    with embedding.register():
        ipu.compile(lambda h: jax.grad(loss)(h))(embedding.handle)
    is_table(embedding, updated(FIRST, np.array([0, 0, 1, 1, 2, 2, 3, 3])))


def test_an_update_whose_gradient_nobody_reads() -> None:
    embedding = trained()
    run = ipu.compile(lambda h, ids: jax.value_and_grad(squares(embedding))(h, ids)[0])
    with embedding.register():
        run(embedding.handle, BATCHES[3])
    is_table(embedding, updated(FIRST, BATCHES[3]))


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_of_one_program_follow_one_another(engine: str) -> None:
    embedding = trained()

    def run(handle: Any) -> Any:
        for ids in BATCHES[:3]:
            jax.grad(squares(embedding))(handle, ids)  # the handle says nothing of the order
        return embedding.lookup(np.arange(ROWS))

    with embedding.register():
        rows = ipu.compile(run, engine=engine)(embedding.handle)
    np.testing.assert_allclose(rows, one_by_one(FIRST, BATCHES[:3]), rtol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_lookups_on_two_ipus_see_the_same_table(engine: str) -> None:
    configure(2)
    embedding = trained()

    def loss(handle: Any, ids: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            first = embedding.lookup(ids, handle=handle).sum(0)
        with ipu.scopes.ipu_shard(1):
            return jnp.sum((first * embedding.lookup(ids + 1, handle=handle).sum(0)) ** 2)

    ids = np.array([1, 2, 2], np.int32)
    with embedding.register():
        ipu.compile(jax.grad(loss), engine=engine)(embedding.handle, ids)
    plain = jax.grad(lambda t: jnp.sum((t[ids].sum(0) * t[ids + 1].sum(0)) ** 2))
    is_table(embedding, FIRST - RATE * plain(jnp.asarray(FIRST)))


# --- replicas, vmap, conditions -------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", ["TOKEN", "ENCODING"])
def test_the_gradients_of_all_replicas_are_applied(engine: str, strategy: str) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.experimental.enable_remote_buffer_embedding = 2, True
    config.configure_ipu_system()
    embedding = HostEmbedding("words", FIRST, strategy, HostEmbeddingOptimizerSpec(RATE))
    feed = IPUInfeedQueue(BATCHES)

    def body(handle: Any, ids: Any) -> Any:
        return handle - jax.grad(squares(embedding))(handle, ids)

    run = ipu.compile(lambda h: ipu.loops.repeat(3, body, [h], feed), engine=engine)
    with embedding.register():
        run(embedding.handle)
    table = FIRST
    for step in range(3):
        table = updated(table, *BATCHES[2 * step : 2 * step + 2])
    is_table(embedding, table)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("where", ["program", "loop", "host"])
def test_replicas_that_look_up_the_same_rows_all_send_gradients(engine: str, where: str) -> None:
    configure(4)
    embedding = trained()

    def step(handle: Any) -> Any:
        ids = jnp.arange(2, dtype=jnp.int32)  # nothing here differs between replicas
        return jax.grad(lambda h: embedding.lookup(ids, handle=h).sum())(handle)

    def run(handle: Any) -> Any:
        if where == "loop":
            return ipu.loops.repeat(2, lambda h: h - step(h), [handle])
        if where == "program":
            return step(handle)
        with ipu.scopes.outside_compilation_scope():
            return step(handle)

    with embedding.register():
        ipu.compile(run, engine=engine)(embedding.handle)
    wanted = FIRST.copy()
    wanted[:2] -= RATE * {"program": 4, "loop": 4 * 2, "host": 1}[where]  # the host does it once
    is_table(embedding, wanted)


REPLICAS = """
    import jax, numpy as np
    import ipujax as ipu
    from ipujax.embedding_ops import HostEmbedding, HostEmbeddingOptimizerSpec
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    spec = HostEmbeddingOptimizerSpec(0.5)
    embedding = HostEmbedding("words", np.ones((4, 2), np.float32), optimizer_spec=spec)
    def step(handle):
        ids = ipu.replication_ops.replication_index()[None]
        return jax.grad(lambda h: embedding.lookup(ids, handle=h).sum())(handle)
    with embedding.register():
        ipu.compile(step)(embedding.handle)
    print(embedding.get_embedding_tensor().tolist())
"""


@pytest.mark.exhaustive
def test_replicas_on_many_devices(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(4, REPLICAS) == f"{[[0.5, 0.5]] * 4}\n"


def test_vmap_sends_the_gradients_of_all_examples() -> None:
    embedding, ids = trained(), np.stack(BATCHES[:5])
    each = jax.vmap(jax.grad(squares(embedding)), (None, 0))
    with embedding.register():
        assert not ipu.compile(each)(embedding.handle, ids).any()
    is_table(embedding, updated(FIRST, *ids))


def test_examples_that_differ_in_anything_send_their_gradients() -> None:
    ids, scales = np.stack(BATCHES[:3]), np.array([1, 2, 3], np.float32)

    def sent(axes: tuple[Any, Any, Any], *args: Any) -> Any:
        embedding = trained()

        def loss(handle: Any, own: Any, scale: Any) -> Any:
            return scale * squares(embedding)(handle, own)

        with embedding.register():
            jax.jit(jax.vmap(jax.grad(loss), axes))(*args)
        return embedding.get_embedding_tensor()

    one, many = jnp.zeros(()), jnp.zeros(3)
    for axes, args, wanted in (
        ((0, None, None), (many, ids[1], 1.0), 3 * [(ids[1], 1)]),
        ((None, None, 0), (one, ids[1], scales), [(ids[1], scale) for scale in scales]),
        ((0, 0, None), (many, ids, 2.0), [(own, 2) for own in ids]),
    ):
        gradient = np.zeros_like(FIRST)
        for own, scale in wanted:
            np.add.at(gradient, own, scale * FIRST[own])
        np.testing.assert_allclose(sent(axes, *args), FIRST - RATE * gradient, rtol=1e-5)


@pytest.mark.parametrize("inside", [True, False])
def test_examples_that_go_another_way_send_nothing(inside: bool) -> None:
    embedding, ids = trained(), np.stack(BATCHES[:3])
    chosen = np.array([True, False, True])

    def loss(handle: Any, is_chosen: Any, own: Any) -> Any:
        def other(handle: Any, own: Any) -> Any:
            return 0 * squares(embedding)(handle, own)

        return jax.lax.cond(is_chosen, squares(embedding), other, handle, own)

    def of_all(handle: Any) -> Any:
        return jnp.sum(jax.vmap(loss, (None, 0, 0))(handle, chosen, ids))

    each = jax.vmap(jax.grad(loss), (None, 0, 0))
    run = (lambda h: each(h, chosen, ids)) if inside else jax.grad(of_all)
    with embedding.register():
        ipu.compile(run)(embedding.handle)
    is_table(embedding, updated(FIRST, *ids[chosen]))


def test_replicas_that_go_another_way_send_nothing() -> None:
    configure(4)
    embedding = trained()

    def step(handle: Any) -> Any:
        number = ipu.replication_ops.replication_index()
        ids = jnp.stack([number, number + 1])

        def loss(handle: Any) -> Any:
            chosen = lambda h: squares(embedding)(h, ids)  # noqa: E731
            return jax.lax.cond(number < 2, chosen, lambda h: h, handle)

        return jax.grad(loss)(handle)

    with embedding.register():
        ipu.compile(step)(embedding.handle)
    is_table(embedding, updated(FIRST, np.array([0, 1, 1, 2])))


# --- pipelines ------------------------------------------------------------------------------------


def run_pipeline(embedding: HostEmbedding, **arguments: Any) -> None:
    """Two steps of four micro-batches."""
    configure(2)
    feed, sink = IPUInfeedQueue(BATCHES), outfeed()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.allow_recompute = 2, True
    config.configure_ipu_system()

    def first(variables: Any, ids: Any) -> Any:
        return embedding.lookup(ids, handle=variables["handle"]) * variables["one"]

    def second(variables: Any, rows: Any) -> Any:
        return jnp.sum(rows**2) / 2

    def model(variables: Any) -> Any:
        return pipeline(
            [first, second],
            4,
            variables=variables,
            infeed_queue=feed,
            outfeed_queue=sink,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.sgd(0.0), loss),
            repeat_count=2,
            **{key: arguments[key] for key in arguments if key != "engine"},
        )

    with embedding.register():
        variables = {"handle": embedding.handle, "one": jnp.float32(1)}
        ipu.compile(model, engine=arguments["engine"])(variables)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Interleaved])
@pytest.mark.parametrize("mode", [None, RecomputationMode.RecomputeThenBackpropagate])
def test_a_pipeline_that_accumulates(engine: str, schedule: Any, mode: Any) -> None:
    embedding = trained(factor=4)
    run_pipeline(embedding, engine=engine, pipeline_schedule=schedule, recomputation_mode=mode)
    is_table(embedding, updated(updated(FIRST, *BATCHES[:4]), *BATCHES[4:8]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_pipeline_whose_micro_batches_follow_one_another(engine: str) -> None:
    embedding = trained()
    run_pipeline(embedding, engine=engine, pipeline_schedule=PipelineSchedule.Sequential)
    is_table(embedding, one_by_one(FIRST, BATCHES[:8]))
