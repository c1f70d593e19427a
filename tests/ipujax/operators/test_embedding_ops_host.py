"""Host embeddings: the facts, rows and how they change, and how tables are made."""

from __future__ import annotations

import gc
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.embedding_ops import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)
from ipujax.errors import (
    ConfigTypeError,
    FailedPreconditionError,
    LoweringError,
    OperatorError,
)
from tests.ipujax.embedding import (
    BATCHES,
    COLUMNS,
    FIRST,
    RATE,
    is_table,
    one_by_one,
    squares,
    trained,
)
from tests.ipujax.feeding import configure

ENGINES = ("fused", "replay")


# --- facts ----------------------------------------------------------------------------------------


@pytest.mark.fact("host_embedding.lookup_update")
def test_adding_the_rows_to_themselves_doubles_them() -> None:
    spec = HostEmbeddingOptimizerSpec(-1.0)
    embedding = create_host_embedding("large", (100000, 200), np.float32, "TOKEN", spec)
    before, ids = embedding.get_embedding_tensor(), np.arange(4096, dtype=np.int32)
    run = ipu.compile(lambda h, i: (embedding.lookup(i), jax.grad(squares(embedding))(h, i)))
    with embedding.register():
        rows, gradient = run(embedding.handle, ids)
    after = embedding.get_embedding_tensor()
    assert gradient == 0
    np.testing.assert_array_equal(rows, before[:4096])
    np.testing.assert_array_equal(after[:4096], 2 * before[:4096])
    assert np.array_equal(after[4096:], before[4096:])  # NumPy's own assertion takes 240 MB


@pytest.mark.fact("host_embedding.ga_two_updates")
def test_gradients_accumulate_until_there_are_enough() -> None:
    embedding = trained(factor=2, rate=-1.0)
    ids = np.array([0, 4], np.int32)
    step = ipu.compile(jax.grad(squares(embedding)))
    with embedding.register():
        step(embedding.handle, ids)
        is_table(embedding, FIRST)
        step(embedding.handle, ids)
    wanted = FIRST.copy()
    wanted[ids] *= 3
    is_table(embedding, wanted)


@pytest.mark.fact("host_embedding.no_lookup")
def test_an_embedding_that_no_program_uses() -> None:
    with trained().register():
        assert ipu.compile(lambda x: x + 1)(jnp.int32(1)) == 2


@pytest.mark.fact("host_embedding.bad_strategy")
def test_there_are_two_strategies() -> None:
    for strategy in ("TOKEN", "ENCODING"):
        assert HostEmbedding("words", FIRST, strategy).partition_strategy == strategy
    with pytest.raises(ValueError, match=r"(?s)'ROWS'.*'TOKEN', 'ENCODING'"):
        create_host_embedding("words", (2, 2), np.float32, "ROWS")


@pytest.mark.fact("host_embedding.bad_tensor")
def test_calling_one_says_what_to_call() -> None:
    embedding = HostEmbedding("words", np.ones((3, 2), np.float32))
    with pytest.raises(TypeError, match=r"`words` was called(.|\n)*embedding\.lookup\(indices\)"):
        embedding(np.array([1, 2]))


@pytest.mark.parametrize("tensor", [[[1.0]], None, "table"])
def test_a_table_is_an_array(tensor: Any) -> None:
    with pytest.raises(ValueError, match="give an array"):
        HostEmbedding("words", tensor)


@pytest.mark.fact("host_embedding.not_registered")
@pytest.mark.parametrize("engine", ENGINES)
def test_programs_run_while_it_is_registered(engine: str) -> None:
    embedding = trained()
    run = ipu.compile(embedding.lookup, engine=engine)
    for _ in range(2):
        with pytest.raises(FailedPreconditionError, match=r"(?s)failed precondition.*`words`"):
            run(BATCHES[1])
        with embedding.register():
            np.testing.assert_array_equal(run(BATCHES[1]), FIRST[BATCHES[1]])


@pytest.mark.fact("host_embedding.ga_factor_one")
def test_names_of_optimizers() -> None:
    assert HostEmbeddingOptimizerSpec(0.5).optimizer_name == "SGD"
    assert HostEmbeddingSGDGAOptimizerSpec(0.5, 1).optimizer_name == "SGD"
    spec = HostEmbeddingSGDGAOptimizerSpec(0.5, 4)
    assert spec.optimizer_name == "SGD+GA"
    assert (spec.get_learning_rate(), spec.get_accumulation_factor()) == (0.5, 4)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_indices_outside(engine: str) -> None:
    embedding = trained()
    ids = np.array([[-3, 99]], np.int32)
    checked = ipu.compile(lambda ids: embedding.lookup(ids, clip_indices=False), engine=engine)
    outside = r"^index -3 is outside of host embedding `words`, .* 7 rows\n  where: .*_host.py:\d+ "
    with embedding.register():
        np.testing.assert_array_equal(ipu.compile(embedding.lookup)(ids), FIRST[[[0, 6]]])
        for _ in range(2):
            with pytest.raises(OperatorError, match=outside) as caught:
                checked(ids)
            assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)
            np.testing.assert_array_equal(checked(ids * 0), FIRST[[[0, 0]]])  # and goes on
    with pytest.raises(OperatorError, match="contain 7, but the table has 7 rows"):
        embedding.lookup([7], clip_indices=False)


def test_indices_beyond_32_bits_stand_for_the_nearest_row() -> None:
    embedding = trained()
    with embedding.register():
        for ids in (np.array([2**40 + 1, -(2**40)]), np.array([2**32 - 1, 0], np.uint32)):
            np.testing.assert_array_equal(embedding.lookup(ids), FIRST[[-1, 0]])
        wide = jnp.array([2**32 - 1, 0], jnp.uint32)
        np.testing.assert_array_equal(ipu.compile(embedding.lookup)(wide), FIRST[[-1, 0]])


def test_two_embeddings_in_one_program() -> None:
    spec = HostEmbeddingOptimizerSpec(RATE)
    one, two = (HostEmbedding(name, FIRST, optimizer_spec=spec) for name in ("one", "two"))

    def loss(handles: Any) -> Any:
        return jnp.sum(one.lookup([1], handle=handles[0]) * two.lookup([2], handle=handles[1]))

    with one.register() as first, two.register():
        assert first is one
        ipu.compile(jax.grad(loss))((one.handle, two.handle))
    for embedding, row, other in ((one, 1, 2), (two, 2, 1)):
        wanted = FIRST.copy()
        wanted[row] -= RATE * FIRST[other]
        is_table(embedding, wanted)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("factor", [1, 2])
def test_a_learning_rate_of_zero_sends_nothing(factor: int) -> None:
    embedding = trained(factor, rate=0.0)

    def loss(weights: Any, handle: Any) -> Any:
        return jnp.mean((embedding.lookup([1, 2], handle=handle) @ weights - 1) ** 2)

    weights = jnp.zeros((COLUMNS, 1))
    step = jax.value_and_grad(loss, argnums=(0, 1))
    assert "ipu_host_update" not in str(jax.make_jaxpr(step)(weights, embedding.handle))
    with embedding.register():
        first, (slope, _) = ipu.compile(step)(weights, embedding.handle)
        second, _ = ipu.compile(step)(weights - 0.0001 * slope, embedding.handle)
    assert first == 1
    assert second != 1
    np.testing.assert_array_equal(embedding.get_embedding_tensor(), FIRST)


def test_half_precision_is_rounded_once() -> None:
    embedding = trained(rate=2.0**-11, dtype=np.float16)
    ids = np.zeros(8, np.int32)
    step = ipu.compile(lambda h, i: jax.grad(lambda h: embedding.lookup(i, handle=h).sum())(h))
    with embedding.register():
        step(embedding.handle, ids)
    wanted = FIRST.astype(np.float16)
    wanted[0] = (wanted[0].astype(np.float32) - 8 * 2.0**-11).astype(np.float16)
    now = embedding.get_embedding_tensor()
    assert now.dtype == np.float16
    np.testing.assert_array_equal(now, wanted)


def test_plain_jit_and_no_jit() -> None:
    embedding = trained()
    with embedding.register():
        jax.jit(jax.grad(squares(embedding)))(embedding.handle, BATCHES[1])
        jax.grad(squares(embedding))(embedding.handle, BATCHES[2])
        rows = embedding.lookup(BATCHES[0])
    table = one_by_one(FIRST, BATCHES[1:3])
    is_table(embedding, table)
    np.testing.assert_allclose(rows, table[BATCHES[0]], rtol=1e-5)


def test_a_table_that_is_not_trained() -> None:
    embedding = HostEmbedding("words", jnp.asarray(FIRST))
    with embedding.register():
        assert ipu.compile(jax.grad(squares(embedding)))(embedding.handle, BATCHES[1]) == 0
    is_table(embedding, FIRST)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_outside_in_a_loop(engine: str) -> None:
    embedding = trained()

    def body(ids: Any) -> Any:
        return ids + 6 + (embedding.lookup(ids, clip_indices=False)[0, 0] > 1e9)

    run = ipu.compile(lambda ids: ipu.loops.repeat(3, body, [ids]), engine=engine)
    with embedding.register(), pytest.raises(OperatorError, match="index 7 is outside"):
        run(jnp.array([1]))


def test_lookups_without_the_handle_learn_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """They may be meant so; a warning, once, tells those who forgot the handle."""
    embedding = trained()
    loss = lambda scale: jnp.sum(scale * embedding.lookup(BATCHES[1]))  # noqa: E731
    step = ipu.compile(jax.grad(loss))
    with caplog.at_level(logging.WARNING, "ipujax"):
        for _ in range(2):
            with embedding.register():
                np.testing.assert_allclose(step(1.0), FIRST[BATCHES[1]].sum(), rtol=1e-5)
    is_table(embedding, FIRST)
    assert caplog.text.count("host embedding `words` was looked up and has an optimizer") == 1
    assert "lookup(..., handle=handle)" in caplog.text


@pytest.mark.parametrize("kind", ["handle", "handle before", "unused", "rate", "spec"])
def test_no_warning_where_nothing_was_forgotten(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    embedding = trained(rate=0.0 if kind == "rate" else RATE)
    if kind == "spec":
        embedding = HostEmbedding("words", FIRST)
    train, look = ipu.compile(jax.grad(squares(embedding))), ipu.compile(embedding.lookup)
    with caplog.at_level(logging.WARNING, "ipujax"):
        if "handle" in kind:
            with embedding.register():
                train(embedding.handle, BATCHES[1])
        if kind != "handle":
            with embedding.register():
                if kind != "unused":
                    look(BATCHES[1])
    assert "was looked up" not in caplog.text


def test_forward_mode_finds_no_dependence_on_the_handle() -> None:
    embedding = trained()
    with embedding.register():
        function = lambda h: jax.jvp(lambda h: squares(embedding)(h, BATCHES[1]), (h,), (h + 1,))  # noqa: E731
        assert jax.jit(function)(embedding.handle)[1] == 0
    is_table(embedding, FIRST)


def test_second_derivatives_are_refused() -> None:
    embedding = trained()

    def loss(scale: Any, handle: Any) -> Any:
        return jnp.sum(scale * embedding.lookup(BATCHES[1], handle=handle))

    inner = jax.grad(lambda scale, handle: jax.grad(loss, argnums=1)(scale, handle))
    with embedding.register(), pytest.raises(LoweringError, match="`words` was itself diff"):
        inner(1.0, embedding.handle)


def test_synthetic_rows_need_no_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--synthetic_data_categories=hostembedding --synthetic_data_initializer=3"
    monkeypatch.setenv("TF_POPLAR_FLAGS", flags)
    embedding = trained()
    assert (np.asarray(ipu.compile(embedding.lookup)(BATCHES[1])) == 3).all()
    ipu.compile(jax.grad(squares(embedding)))(embedding.handle, BATCHES[1])
    is_table(embedding, FIRST)


def test_the_model_sees_rows_cross_to_the_host() -> None:
    configure(1)
    embedding = trained()
    few, many = np.zeros(8, np.int32), np.zeros(80000, np.int32)
    step = ipu.compile(jax.grad(squares(embedding)))
    short, long = (step.lower(embedding.handle, ids).report() for ids in (few, many))
    assert long.default_share < 0.05
    bytes_ = 2 * many.size * (4 + 4 * COLUMNS)
    assert long.seconds - short.seconds > 0.9 * bytes_ / 31e9


# --- making them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("initializer", "wanted"),
    [
        (FIRST, FIRST),
        (2, np.full_like(FIRST, 2)),
        (np.ones, np.ones_like(FIRST)),
        (jax.nn.initializers.ones, np.ones_like(FIRST)),
        (lambda key, shape, dtype: jnp.zeros(shape, dtype), np.zeros_like(FIRST)),
    ],
)
def test_initializers(initializer: Any, wanted: Any) -> None:
    made = create_host_embedding("a", FIRST.shape, np.float32, initializer=initializer)
    is_table(made, wanted)


def test_the_default_initializer_draws_from_the_name() -> None:
    one, same, other = (
        create_host_embedding(name, (50, 10), np.float16).get_embedding_tensor() for name in "aab"
    )
    assert one.dtype == np.float16
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert np.abs(one).max() <= np.sqrt(0.1)
    assert one.std() > 0.1


def test_the_callers_array_stays_as_it_is() -> None:
    array = FIRST.copy()
    spec = HostEmbeddingOptimizerSpec(RATE)
    embedding = HostEmbedding("words", array, optimizer_spec=spec)
    before = embedding.get_embedding_tensor()
    with embedding.register():
        ipu.compile(jax.grad(squares(embedding)))(embedding.handle, BATCHES[1])
    np.testing.assert_array_equal(array, FIRST)
    np.testing.assert_array_equal(before, FIRST)


def test_a_second_embedding_of_a_name_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    first = create_host_embedding("twice", (4, 2), jnp.float32)
    assert "`twice`" not in caplog.text
    second = create_host_embedding("twice", (4, 2), jnp.float32)
    assert "there is a host embedding named `twice` already" in caplog.text
    with first.register(), pytest.raises(FailedPreconditionError, match="`twice` is registered"):
        create_host_embedding("twice", (4, 2), jnp.float32)
    del first, second
    gc.collect()
    caplog.clear()
    create_host_embedding("twice", (4, 2), jnp.float32)
    assert not caplog.text


def test_instructions_of_an_optimizer_are_those_of_its_embedding() -> None:
    spec = HostEmbeddingOptimizerSpec(RATE)
    embedding = HostEmbedding("instructed", FIRST, optimizer_spec=spec)
    slots = spec.create_slot_variables(embedding, "instructed")
    register = spec.create_register_instruction(embedding, slots, "instructed")
    deregister = spec.create_deregister_instruction(embedding, slots, "instructed")

    @ipu.compile
    def look_up(indices: Any) -> Any:
        return spec.create_lookup_instruction(embedding, indices, slots, "TOKEN", "instructed")

    with pytest.raises(FailedPreconditionError):
        look_up(jnp.array([0, 2]))
    register()
    np.testing.assert_array_equal(look_up(jnp.array([0, 2])), FIRST[[0, 2]])
    deregister()
    with pytest.raises(FailedPreconditionError):
        look_up(jnp.array([0, 2]))
    for call in (
        lambda: spec.create_slot_variables(FIRST, "instructed"),  # type: ignore[arg-type]
        lambda: spec.create_register_instruction(embedding, slots, "others"),
        lambda: spec.create_deregister_instruction(embedding, [1], "instructed"),
        lambda: spec.create_lookup_instruction(embedding, [0], slots, "ENCODING", "instructed"),
    ):
        with pytest.raises((OperatorError, ConfigTypeError)):
            call()


def test_names_are_unique_while_registered() -> None:
    with trained().register():
        with pytest.raises(FailedPreconditionError, match="`words` is registered already"):
            trained().register().__enter__()
        with HostEmbedding("others", FIRST).register():
            pass
    with trained().register():
        pass


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: HostEmbedding("a", FIRST[0]), OperatorError, r"shape \[3\].*two dim"),
        (lambda: HostEmbedding("a", FIRST[:0]), OperatorError, r"shape \[0, 3\].*one token"),
        (lambda: HostEmbedding("a", FIRST.astype(int)), OperatorError, "int64.*floats"),
        (lambda: HostEmbedding(3, FIRST), ConfigTypeError, "name.*string"),  # pyright: ignore
        (
            lambda: HostEmbedding("a", FIRST, optimizer_spec=0.1),  # pyright: ignore
            OperatorError,
            "0.1.*OptimizerSpec",
        ),
        (
            lambda: create_host_embedding("a", (2, 2), np.float32, initializer="ones"),
            ConfigTypeError,
            "'ones'",
        ),
        (
            lambda: create_host_embedding("a", (2, 2), np.float32, initializer=FIRST),
            OperatorError,
            r"\[7, 3\].*\[2, 2\]",
        ),
        (lambda: create_host_embedding("a", (2, -2), np.float32), OperatorError, r"\[2, -2\]"),
        (lambda: create_host_embedding("a", (2, 2.0), np.float32), ConfigTypeError, "2.0"),  # pyright: ignore
        (lambda: create_host_embedding("a", 2, np.float32), ConfigTypeError, "shape.* is 2"),  # pyright: ignore
        (lambda: create_host_embedding("a", (2, 2), None), ConfigTypeError, "dtype.* is None"),
        (lambda: create_host_embedding("a", (2, 2), "float33"), ConfigTypeError, "'float33'"),
        (lambda: trained().lookup([0], handle="x"), ConfigTypeError, "the handle for `words`"),
        (lambda: HostEmbeddingOptimizerSpec("fast"), ConfigTypeError, "'fast'"),  # pyright: ignore
        (lambda: HostEmbeddingOptimizerSpec(float("nan")), OperatorError, "nan.*finite"),
        (lambda: HostEmbeddingOptimizerSpec(1, "Adam"), OperatorError, "'Adam'.*'SGD'"),
        (lambda: HostEmbeddingSGDGAOptimizerSpec(1, 0), OperatorError, "is 0.*at least 1"),
        (lambda: HostEmbeddingSGDGAOptimizerSpec(1, 1.5), ConfigTypeError, "1.5"),  # pyright: ignore
        (lambda: trained().lookup([0.5]), OperatorError, "float.*integers"),
        (lambda: trained().lookup([0], clip_indices=1), ConfigTypeError, "clip_indices"),  # pyright: ignore
        (lambda: trained().lookup([0], handle=jnp.zeros(2)), OperatorError, r"float32\[2\]"),
        (lambda: trained().register("s").__enter__(), ConfigTypeError, "session"),  # pyright: ignore
    ],
)
def test_bad_input(make: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=f"(?s){message}"):
        make()
