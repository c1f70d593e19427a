"""The models of the pipeline benchmark: four stages each, NumPy weights, NumPy data."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STAGES = 4
MICRO_BATCHES = 16
LEARNING_RATE = 1e-3

# The transformer; `pipeline_torch_worker.py` builds the same from the shapes of the weights.
WIDTH, HEADS, HIDDEN, LENGTH, VOCABULARY, SEQUENCES = 256, 4, 1024, 128, 512, 2


@dc.dataclass(frozen=True)
class Model:
    """Four stages, and the micro-batches of one step.

    Attributes:
      name: of the model.
      parameters: one tree of NumPy arrays for each stage.
      parts: what each stage does, `part(own parameters, values, y)`: the values for the next
        stage, or the loss. Equal stages are the same function.
      data: (x, y) of each micro-batch.
    """

    name: str
    parameters: list[dict[str, Any]]
    parts: tuple[Callable[..., Any], ...]
    data: list[tuple[np.ndarray, np.ndarray]]

    def stages(self) -> list[Callable[..., Any]]:
        """What `pipelining_ops.pipeline` takes: all variables first, and `y` handed on."""

        def stage(number: int, variables: Any, values: Any, y: Any) -> Any:
            result = self.parts[number](variables[number], values, y)
            return result if number == STAGES - 1 else (result, y)

        return [functools.partial(stage, number) for number in range(STAGES)]

    def loss(self, parameters: Any, x: Any, y: Any) -> Any:
        """The loss of one micro-batch, a mean over its examples."""
        for part, own in zip(self.parts, parameters, strict=True):
            x = part(own, x, y)
        return x


def mlp(name: str, width: int, micro_batches: int = MICRO_BATCHES) -> Model:
    """Eight dense layers with relu, two in each stage; mean squared error; 32 rows."""
    rng = np.random.default_rng(0)
    parameters = [
        {f"dense{i}": _dense(rng, width, width, np.sqrt(2 / width)) for i in range(2)}
        for _ in range(STAGES)
    ]
    shape = (micro_batches, 32, width)
    data = zip(_normal(rng, shape), _normal(rng, shape), strict=True)
    return Model(name, parameters, (_layers, _layers, _layers, _layers_and_error), list(data))


def transformer(name: str = "transformer", micro_batches: int = MICRO_BATCHES) -> Model:
    """A decoder of four pre-LN blocks; embedding in stage 0, head and cross entropy in stage 3."""
    rng = np.random.default_rng(0)
    parameters: list[dict[str, Any]] = [{"block": _block_parameters(rng)} for _ in range(STAGES)]
    parameters[0]["tokens"] = {"weight": _normal(rng, (VOCABULARY, WIDTH), 0.1)}
    parameters[0]["positions"] = {"weight": _normal(rng, (LENGTH, WIDTH), 0.1)}
    parameters[-1]["norm"] = _norm_parameters()
    parameters[-1]["head"] = _dense(rng, WIDTH, VOCABULARY, WIDTH**-0.5)
    text = rng.integers(0, VOCABULARY, (micro_batches, SEQUENCES, LENGTH + 1), np.int32)
    data = [(one[:, :-1].copy(), one[:, 1:].copy()) for one in text]
    return Model(name, parameters, (_embed, _middle, _middle, _entropy), data)


MODELS: dict[str, Callable[[], Model]] = {
    "mlp_small": lambda: mlp("mlp_small", 128),
    "mlp_large": lambda: mlp("mlp_large", 1024),
    "transformer": transformer,
}


def flat_parameters(parameters: Any) -> dict[str, np.ndarray]:
    """Parameters by names such as `0.dense1.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(parameters)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf)
        for path, leaf in leaves
    }


def unflatten(like: Any, flat: dict[str, np.ndarray]) -> Any:
    """Parameters in the structure of `like`, from `flat_parameters`' form."""
    return jax.tree.unflatten(jax.tree.structure(like), [flat[k] for k in flat_parameters(like)])


# --- multi-layer perceptron ---------------------------------------------------------------------


def _layers(own: Any, x: Any, _: Any) -> Any:
    x = jax.nn.relu(_linear(own["dense0"], x))
    return jax.nn.relu(_linear(own["dense1"], x))


def _layers_and_error(own: Any, x: Any, y: Any) -> Any:
    return jnp.mean((_layers(own, x, y) - y) ** 2)


# --- transformer --------------------------------------------------------------------------------


def _embed(own: Any, tokens: Any, y: Any) -> Any:
    return _middle(own, own["tokens"]["weight"][tokens] + own["positions"]["weight"], y)


def _middle(own: Any, x: Any, _: Any) -> Any:
    own = own["block"]
    x = x + _linear(own["out"], _attention(_linear(own["qkv"], _norm(own["norm1"], x))))
    return x + _linear(own["down"], jax.nn.gelu(_linear(own["up"], _norm(own["norm2"], x))))


def _entropy(own: Any, x: Any, y: Any) -> Any:
    logits = _linear(own["head"], _norm(own["norm"], _middle(own, x, y)))
    picked = jnp.take_along_axis(logits, y[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)


def _attention(qkv: Any) -> Any:
    sequences, length, _ = qkv.shape
    q, k, v = jnp.moveaxis(qkv.reshape(sequences, length, 3, HEADS, -1), 2, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e30), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(sequences, length, WIDTH)


def _norm(own: Any, x: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * own["weight"] + own["bias"]


def _linear(own: Any, x: Any) -> Any:
    # As one matrix: XLA:CPU takes an eighth longer over the transformer's step otherwise.
    rows = x.reshape(-1, x.shape[-1]) @ own["weight"] + own["bias"]
    return rows.reshape(*x.shape[:-1], -1)


# --- weights ------------------------------------------------------------------------------------


def _normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def _dense(rng: np.random.Generator, inputs: int, outputs: int, scale: float) -> dict[str, Any]:
    return {
        "weight": _normal(rng, (inputs, outputs), scale),
        "bias": np.zeros(outputs, np.float32),
    }


def _norm_parameters() -> dict[str, Any]:
    return {"weight": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}


def _block_parameters(rng: np.random.Generator) -> dict[str, Any]:
    scale = WIDTH**-0.5
    return {
        "norm1": _norm_parameters(),
        "qkv": _dense(rng, WIDTH, 3 * WIDTH, scale),
        "out": _dense(rng, WIDTH, WIDTH, scale / 2),
        "norm2": _norm_parameters(),
        "up": _dense(rng, WIDTH, HIDDEN, scale),
        "down": _dense(rng, HIDDEN, WIDTH, scale / 2),
    }
