"""Models with stages, as people write them: a loss each, its arguments, and how it is called."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from ipujax.scopes import pipeline_stage
from tests.ipujax.staging import normal

WORDS, WIDTH, HEADS, LENGTH, ROWS = 16, 8, 2, 4, 4
MASK = np.tril(np.ones((LENGTH, LENGTH), bool))


@dc.dataclass(frozen=True)
class StagedModel:
    """A loss with stages, and arguments for it; the last of them is the batch."""

    loss: Callable[..., Any]
    args: tuple[Any, ...]
    options: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])
    tolerance: float = 1e-6


# --- a GPT with tied embeddings -------------------------------------------------------------------


def gpt_params(layers: int = 2) -> Any:
    blocks = [
        {
            "qkv": normal(10 + i, WIDTH, 3 * WIDTH) / 3,
            "out": normal(20 + i, WIDTH, WIDTH) / 3,
            "up": normal(30 + i, WIDTH, 2 * WIDTH) / 3,
            "down": normal(40 + i, 2 * WIDTH, WIDTH) / 4,
            "scale": jnp.ones(WIDTH),
        }
        for i in range(layers)
    ]
    return {"embed": normal(0, WORDS, WIDTH), "place": normal(1, LENGTH, WIDTH), "blocks": blocks}


def gpt_batch(rows: int = ROWS) -> Any:
    tokens = jax.random.randint(jax.random.key(5), (2, rows, LENGTH), 0, WORDS)
    return {"tokens": tokens[0], "labels": tokens[1]}


def normalize(x: Any, scale: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * scale * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5)


def gpt_block(block: Any, x: Any) -> Any:
    parts = jnp.split(normalize(x, block["scale"]) @ block["qkv"], 3, -1)
    shape = (*x.shape[:-1], HEADS, WIDTH // HEADS)
    queries, keys, values = (part.reshape(shape) for part in parts)
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) / 2
    weights = jax.nn.softmax(jnp.where(MASK, scores, -1e9))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(x.shape)
    x = x + mixed @ block["out"]
    return x + checkpoint_name(jax.nn.gelu(x @ block["up"]), "hidden") @ block["down"]


def cross_entropy(logits: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, labels[..., None], -1).mean()


def gpt_loss(params: Any, batch: Any, block: Callable[..., Any] = gpt_block) -> Any:
    with pipeline_stage(0):
        x = params["embed"][batch["tokens"]] + params["place"]
    last = len(params["blocks"]) - 1
    for i, layer in enumerate(params["blocks"]):
        with pipeline_stage(i):
            x = block(layer, x)
    with pipeline_stage(last):
        return cross_entropy(x @ params["embed"].T, batch["labels"])


def gpt_without_marks_around(params: Any, batch: Any) -> Any:
    params = jax.tree.map(lambda x: x * 2, params)  # as a cast of all parameters would be
    x = params["embed"][batch["tokens"]] + params["place"]
    for i, layer in enumerate(params["blocks"]):
        with pipeline_stage(i):
            x = gpt_block(layer, x)
    return cross_entropy(x @ params["embed"].T, batch["labels"])


def gpt_with_dropout(params: Any, batch: Any) -> Any:
    tokens, key = batch

    def drop(layer: Any, x: Any) -> Any:
        key_here = jax.random.fold_in(key, x.shape[-1])
        return jnp.where(jax.random.bernoulli(key_here, 0.9, x.shape), gpt_block(layer, x), 0)

    return gpt_loss(params, tokens, drop)


def checkpointed(policy: Any = None) -> Callable[..., Any]:
    block = jax.checkpoint(gpt_block, policy=policy)
    return lambda params, batch: gpt_loss(params, batch, block)


def plain_gpt(params: Any, batch: Any) -> Any:
    """Without marks."""
    x = params["embed"][batch["tokens"]] + params["place"]
    for layer in params["blocks"]:
        x = jax.jit(gpt_block)(layer, x)
    return cross_entropy(x @ params["embed"].T, batch["labels"])


# --- small models ---------------------------------------------------------------------------------


def xy(rows: int = 2 * ROWS) -> Any:
    return {"x": normal(50, rows, WIDTH), "y": normal(51, rows, WIDTH)}


def squared_error(x: Any, batch: Any) -> Any:
    return jnp.mean((x - batch["y"]) ** 2)


def experts_params() -> Any:
    return [
        {"gate": normal(i, WIDTH, 4), "experts": normal(i + 9, 4, WIDTH, WIDTH) / 3}
        for i in range(3)
    ]


def experts_loss(params: Any, batch: Any) -> Any:
    """A mixture of experts, with an auxiliary loss in every stage."""
    x, balance = batch["x"], 0.0
    for i, layer in enumerate(params):
        with pipeline_stage(i):
            gates = jax.nn.softmax(x @ layer["gate"])
            chosen = jax.nn.one_hot(jnp.argmax(gates, -1), 4)
            results = jnp.einsum("bd,edf->bef", x, layer["experts"])
            x = x + jnp.tanh(jnp.einsum("bef,be->bf", results, chosen * gates))
            balance = balance + jnp.sum(chosen.mean(0) * gates.mean(0))
    with pipeline_stage(2):
        return squared_error(x, batch) + 0.1 * balance


def statistics_loss(params: Any, batch: Any) -> Any:
    """Batch norm, whose statistics leave every stage through aux."""
    x, statistics = batch["x"], {}
    for i, weights in enumerate(params):
        with pipeline_stage(i):
            x = x @ weights
            mean, variance = x.mean(0), x.var(0)
            statistics[f"norm{i}"] = mean, variance, jnp.int32(i)
            x = jax.nn.relu((x - mean) * lax.rsqrt(variance + 1e-5))
    return squared_error(x, batch), {"norms": statistics, "count": jnp.sum(x > 0), "first": 3.0}


def adapters_loss(adapters: Any, base: Any, batch: Any) -> Any:
    """LoRA: the weights stay, the adapters are trained."""
    x = batch["x"]
    for i, (adapter, weights) in enumerate(zip(adapters, base, strict=True)):
        with pipeline_stage(i):
            x = jnp.tanh(x @ (weights + adapter["a"] @ adapter["b"]))
    return squared_error(x, batch)


def adapters() -> Any:
    return [{"a": normal(i, WIDTH, 2), "b": normal(i + 7, 2, WIDTH)} for i in range(3)]


def base_weights() -> Any:
    return [normal(i + 20, WIDTH, WIDTH) for i in range(3)]


@jax.custom_vjp
def scaled_sine(x: Any) -> Any:
    return jnp.sin(x)


scaled_sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))


def control_flow_loss(params: Any, batch: Any) -> Any:
    """Control flow, skips, integers and keys between stages, and a weight that two stages read."""
    with pipeline_stage(0):
        x = scaled_sine(batch["x"] @ params["a"])
        number = jnp.sum(x[:, 0] > 0) % 4
        keys = jax.random.split(jax.random.fold_in(jax.random.key(3), number))
        skip = x * 2
    with pipeline_stage(1):
        x = lax.cond(number > 1, jnp.sin, lambda x: jnp.cos(x) * x, x @ params["b"])
        x = lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x), x)
        count = lax.while_loop(lambda c: c < 3, lambda c: c + 1, number)
    with pipeline_stage(2):
        x, _ = lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x + count, params["c"])
        x = x + jax.random.normal(keys[1], x.shape) + skip + params["a"][0]
        return squared_error(x, batch)


def control_flow_params() -> Any:
    shapes = {"a": (WIDTH, WIDTH), "b": (WIDTH, WIDTH), "c": (2, WIDTH, WIDTH), "unused": (3,)}
    return {name: normal(i, *shape) / 2 for i, (name, shape) in enumerate(shapes.items())}


def shared_weights_loss(params: Any, batch: Any) -> Any:
    """One weight in all stages, and slices of one leaf."""
    x = batch["x"]
    for i in range(3):
        with pipeline_stage(i):
            x = jnp.tanh(x @ params["w"] + params["b"][i])
    return squared_error(x, batch)


def low_precision(params: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(dtype), params)


_KEYED = (gpt_batch(), jax.random.key(7))
_POLICIES = jax.checkpoint_policies
_BATCH_LAST = {"batch_argnums": 2}

MODELS = {
    "gpt": StagedModel(gpt_loss, (gpt_params(), gpt_batch())),
    "gpt, recomputed": StagedModel(gpt_loss, (gpt_params(), gpt_batch()), {"recompute": True}),
    "gpt, jitted": StagedModel(jax.jit(gpt_loss), (gpt_params(), gpt_batch())),
    "gpt, unmarked ends": StagedModel(gpt_without_marks_around, (gpt_params(), gpt_batch())),
    "gpt, dropout": StagedModel(gpt_with_dropout, (gpt_params(), _KEYED)),
    "gpt, checkpoint": StagedModel(checkpointed(), (gpt_params(), gpt_batch())),
    "gpt, dots saved": StagedModel(
        checkpointed(_POLICIES.dots_saveable), (gpt_params(), gpt_batch())
    ),
    "gpt, names saved": StagedModel(
        checkpointed(_POLICIES.save_only_these_names("hidden")), (gpt_params(), gpt_batch())
    ),
    "gpt, bfloat16": StagedModel(
        gpt_loss, (low_precision(gpt_params(), jnp.bfloat16), gpt_batch()), tolerance=2e-2
    ),
    "gpt, cut": StagedModel(plain_gpt, (gpt_params(), gpt_batch()), {"stages": 3}),
    "experts": StagedModel(experts_loss, (experts_params(), xy())),
    "statistics": StagedModel(
        statistics_loss, ([normal(i, WIDTH, WIDTH) for i in range(3)], xy()), {"has_aux": True}
    ),
    "adapters": StagedModel(adapters_loss, (adapters(), base_weights(), xy()), _BATCH_LAST),
    "adapters and weights": StagedModel(
        adapters_loss, (adapters(), base_weights(), xy()), {"argnums": (-2, 0)}
    ),
    "control flow": StagedModel(control_flow_loss, (control_flow_params(), xy())),
    "shared weights": StagedModel(
        shared_weights_loss, ({"w": normal(1, WIDTH, WIDTH), "b": normal(2, 3, WIDTH)}, xy())
    ),
}
