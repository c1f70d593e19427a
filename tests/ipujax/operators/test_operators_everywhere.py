"""Every operator in every way a program runs, against the operator called by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, check_pipeline
from tests.ipujax.feeding import configure

TIME, BATCH, WIDTH = 6, 4, 8

LSTM = ipu.rnn_ops.PopnnLSTM(3, seed=1)
GRU = ipu.rnn_ops.PopnnGRU(3, seed=2, reset_after=True)
DYNAMIC_GRU = ipu.rnn_ops.PopnnDynamicGRU(3, seed=3)
AUGRU = ipu.rnn_ops.PopnnAUGRU(3, seed=4)
SHAPE = [TIME, BATCH, WIDTH]
LENGTHS = np.int32([6, 1, 0, 4])
SCORES = np.linspace(0, 1, TIME * BATCH, dtype=np.float32).reshape(TIME, BATCH)
LABELS = np.array([[1, 2], [3, 3], [0, 0], [5, 1]], np.int32)


def recurrent(layer: Any, *more: Any) -> Callable[[jax.Array], jax.Array]:
    """A layer of float32, on inputs of any dtype."""
    params = layer.build(jax.random.key(0), SHAPE)
    return lambda x: layer(params, x.astype(np.float32), *more)[0].astype(x.dtype)


# From [TIME, BATCH, WIDTH] to any array of the same dtype.
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "group_norm": lambda x: ipu.normalization_ops.group_norm(x, 2),
    "group_norm_neighbours": lambda x: ipu.normalization_ops.group_norm(
        x, 4, gamma=np.arange(WIDTH) + 0.5, strided_channel_grouping=False
    ),
    "layer_norm": lambda x: ipu.normalization_ops.layer_norm(x, beta=np.arange(float(WIDTH))),
    "instance_norm": lambda x: ipu.normalization_ops.instance_norm(x, channels_axis=1),
    "batch_norm": lambda x: ipu.normalization_ops.batch_norm(x, gamma=None, beta=None)[0],
    "gelu": ipu.nn_ops.gelu,
    "gelu_exact": lambda x: ipu.nn_ops.gelu(x, approximate=False),
    "swish": ipu.nn_ops.swish,
    "hard_sigmoid": ipu.nn_ops.hard_sigmoid,
    "multi_conv": ipu.nn_ops.multi_conv(
        lambda x: jax.lax.conv_general_dilated(x, jnp.ones((3, 4, 2), x.dtype), (1,), "SAME")
    ),
    "ctc_loss": lambda x: ipu.nn_ops.ctc_loss_v2(
        LABELS, x, np.int32([2, 1, 0, 2]), np.int32([6, 2, 3, 5]), WIDTH - 1
    ),
    "ctc_loss_of_log_probs": lambda x: ipu.nn_ops.ctc_loss_with_log_probs(
        LABELS, jax.nn.log_softmax(x), np.int32([2, 1, 0, 2]), np.int32([6, 2, 3, 5]), 4
    ),
    "sampled_softmax": lambda x: ipu.nn_ops.sampled_softmax_loss(
        jnp.linspace(-1, 1, 20 * WIDTH).reshape(20, WIDTH).astype(x.dtype),
        jnp.zeros(20, x.dtype),
        LABELS[:, :1],
        x[0],
        5,
        20,
        seed=3,
    ),
    "nce": lambda x: ipu.nn_ops.nce_loss(
        jnp.linspace(-1, 1, 20 * WIDTH).reshape(20, WIDTH).astype(x.dtype),
        jnp.zeros(20, x.dtype),
        LABELS,
        x[0],
        5,
        20,
        num_true=2,
        seed=3,
    ),
    "lstm": recurrent(LSTM),
    "gru": recurrent(GRU),
    "dynamic_gru": recurrent(DYNAMIC_GRU, LENGTHS),
    "augru": recurrent(AUGRU, LENGTHS, SCORES),
    "dropout": lambda x: ipu.rand_ops.dropout(x, 0.3, seed=[1, 2]),
    "dropout_of_rows": lambda x: ipu.rand_ops.dropout(x, 0.3, [TIME, 1, WIDTH], seed=7),
    "serialized_matmul": lambda x: ipu.math_ops.serialized_matmul(
        x[0], jnp.ones((WIDTH, 6), x.dtype), 3, "b_rows"
    ),
    "serialized_sum": lambda x: ipu.math_ops.serialized_matmul(
        x[0], x[1], 2, "a_columns", transpose_b=True
    ),
    "sequence_slice": lambda x: ipu.slicing_ops.sequence_slice(
        x[0], x[1], [1, 2], [3, 0], [0, 2], False
    ),
    "sequence_slice_unpack": lambda x: ipu.slicing_ops.sequence_slice_unpack(
        x[0], [2, 1], [1, 0], 5
    ),
    "sequence_slice_pack": lambda x: ipu.slicing_ops.sequence_slice_pack(
        x[0], x[1], [2, 1], [1, 0], True
    ),
    "embedding_lookup": lambda x: ipu.embedding_ops.embedding_lookup(x[0], [[3, 0], [0, 1]]),
    "serialized_lookup": lambda x: ipu.embedding_ops.embedding_lookup(
        x[0], [3, 0, 0], serialization_factor=2
    ),
    "normalise_image": lambda x: ipu.image_ops.normalise_image(
        x[..., :3], [0.1, 0.2, 0.3], [1.0, 2.0, 3.0], 0.5
    ),
    "outlined_function": ipu.functional_ops.outlined_function(lambda x: jnp.tanh(x) * 2),
    "recomputation_checkpoint": lambda x: ipu.pipelining_ops.recomputation_checkpoint(jnp.tanh(x)),
}  # fmt: skip

# Not for training.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "histogram": lambda x: ipu.statistics_ops.histogram(
        x.reshape(-1), jnp.asarray([-1, 0, 1], x.dtype)
    ),
    "fixed_width_bins": lambda x: ipu.statistics_ops.fixed_width_bins(x.reshape(-1), 4),
    "expression": lambda x: ipu.custom_ops.codelet_expression_op(lambda a, b: a * b + 1, x, x),
    "beam_search": lambda x: ipu.nn_ops.ctc_beam_search_decoder(x, [6, 2, 3, 5], 4, 2),
}

TOLERANCES = {"float32": 2e-5, "float16": 2e-2}


def inputs(dtype: Any = np.float32) -> jax.Array:
    return jax.random.normal(jax.random.key(5), SHAPE).astype(dtype)


def agree(mine: Any, theirs: Any, dtype: str = "float32") -> None:
    mine, theirs = jax.tree.leaves(mine), jax.tree.leaves(theirs)
    assert len(mine) == len(theirs)
    for ours, reference in zip(mine, theirs, strict=True):
        assert ours.dtype == reference.dtype
        wide = [np.asarray(x, np.float64) for x in (ours, reference)]
        np.testing.assert_allclose(*wide, TOLERANCES[dtype], TOLERANCES[dtype])


def slope(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A sum of the results with unequal weights, and its gradient."""

    def total(x: Any) -> Any:
        result = function(x).astype(np.float32)
        finite = jnp.where(jnp.isfinite(result), result, 0)
        return jnp.vdot(finite, jnp.cos(jnp.arange(result.size).reshape(result.shape)))

    return jax.value_and_grad(total)


def function_of(name: str) -> Callable[[Any], Any]:
    """An operator, with its gradient if it has one."""
    return slope(OPERATORS[name]) if name in OPERATORS else OTHERS[name]


@functools.cache
def alone(name: str) -> Callable[[Any], Any]:
    """The operator by itself, under plain `jax.jit`."""
    return jax.jit(function_of(name))


ALL = (*OPERATORS, *OTHERS)

# What is built like another one of the table runs like it, too.
VARIANTS = {
    "group_norm_neighbours", "instance_norm", "gelu_exact", "ctc_loss_of_log_probs", "nce", "gru",
    "dynamic_gru", "dropout_of_rows", "serialized_sum", "sequence_slice_unpack",
    "sequence_slice_pack", "serialized_lookup",
}  # fmt: skip
KINDS = [name for name in ALL if name not in VARIANTS]
TRAINED_KINDS = [name for name in KINDS if name in OPERATORS]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ALL)
def test_compiled_code_gives_what_jit_gives(name: str, dtype: str) -> None:
    x = inputs(dtype)
    agree(ipu.compile(function_of(name))(x), alone(name)(x), dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KINDS)
def test_examples_of_vmap_are_calls(name: str) -> None:
    examples = [inputs(), 2 * inputs(), -inputs()]
    expected = jax.tree.map(lambda *rows: jnp.stack(rows), *map(alone(name), examples))
    agree(ipu.compile(jax.vmap(function_of(name)))(jnp.stack(examples)), expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KINDS)
def test_shards_and_replicas_compute_the_same(name: str) -> None:
    def sharded(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            doubled = 2 * x
        with ipu.scopes.ipu_shard(1):
            return function_of(name)(doubled)

    configure(4)
    compiled = ipu.compile(sharded)
    assert ": 2 replicas of 2 IPUs" in compiled.lower(inputs()).as_text()
    agree(compiled(inputs()), alone(name)(2 * inputs()))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRAINED_KINDS)
def test_recomputation_gives_the_same_gradients(name: str) -> None:
    function = OPERATORS[name]
    agree(ipu.compile(slope(jax.checkpoint(function)))(inputs()), alone(name)(inputs()))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRAINED_KINDS)
def test_a_pipeline_trains_through_it(name: str) -> None:
    function = OPERATORS[name]

    def first(weight: Any, x: Any) -> Any:
        return function(weight["scale"] * x)

    def second(weight: Any, hidden: Any) -> Any:
        finite = jnp.where(jnp.isfinite(hidden), hidden, 0)
        return jnp.mean(jnp.sin(finite + weight["offset"]))

    def optimizer(loss: Any) -> OptimizerFunctionOutput:
        return OptimizerFunctionOutput(optax.sgd(0.1), loss)

    configure(2)
    check_pipeline(
        [first, second],
        4,
        infeed_queue=IPUInfeedQueue([(float(k) * np.asarray(inputs()),) for k in range(1, 5)]),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=optimizer,
        variables={"scale": np.ones((WIDTH,), np.float32), "offset": np.float32(0.5)},
    ).raise_if_different()
