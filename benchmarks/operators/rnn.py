"""LSTM and GRU, forward and with gradients, against `lax.scan` and flax.

flax is no dependency of ipujax: without it (`pip install flax`) its rows are left out.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import ipujax as ipu
from benchmarks.measure import Row, row

TIME, BATCH, UNITS = 100, 32, 256
PAIRS = 21
MISSING = "left out: the rows against flax's recurrent layers; to have them, `pip install flax`"

Model = tuple[Any, Callable[[Any, Any], Any]]


def rows() -> list[Row]:
    """Outputs alone, and the gradients of parameters and inputs."""
    x = jax.random.normal(jax.random.key(0), (TIME, BATCH, UNITS))
    ours = {"LSTM": _ours(ipu.rnn_ops.PopnnLSTM, x), "GRU": _ours(ipu.rnn_ops.PopnnGRU, x)}
    result: list[Row] = []
    for kind, name, baseline in _baselines(x):
        for what, made in (("forward", jax.jit), ("with gradients", _gradients)):
            mine, theirs = _run(made, ours[kind], x), _run(made, baseline, x)
            result.append(row(f"{kind} {what} / {name}", 1.0, mine, theirs, pairs=PAIRS))
    return result


def _baselines(x: Any) -> Iterator[tuple[str, str, Model]]:
    for kind, step, gates in (("LSTM", _lstm_step, 4), ("GRU", _gru_step, 3)):
        key = jax.random.key(1)
        kernel = jax.nn.initializers.glorot_uniform()(key, (2 * UNITS, gates * UNITS))
        yield kind, "lax.scan", ((kernel, jnp.zeros(gates * UNITS)), _scanned(step))
    if importlib.util.find_spec("flax") is None:
        print(MISSING, file=sys.stderr)
        return
    linen = importlib.import_module("flax.linen")
    cells = (("LSTM", "OptimizedLSTMCell"), ("LSTM", "LSTMCell"), ("GRU", "GRUCell"))
    for kind, cell in cells:
        model = linen.RNN(getattr(linen, cell)(UNITS), time_major=True)
        yield kind, f"flax {cell}", (model.init(jax.random.key(1), x), model.apply)


def _ours(kind: Any, x: Any) -> Model:
    layer = kind(UNITS)
    return layer.build(jax.random.key(1), x.shape), lambda params, x: layer(params, x)[0]


def _scanned(step: Any) -> Callable[[Any, Any], Any]:
    def run(params: Any, x: Any) -> Any:
        zeros = jnp.zeros((BATCH, UNITS))
        return lax.scan(lambda state, x: step(params, state, x), (zeros, zeros), x)[1]

    return run


def _lstm_step(params: Any, state: Any, x: Any) -> Any:
    (kernel, bias), (c, h) = params, state
    i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ kernel + bias, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (c, h), h


def _gru_step(params: Any, state: Any, x: Any) -> Any:
    (kernel, bias), (unused, h) = params, state
    cut = 2 * UNITS
    gates = jnp.concatenate([x, h], -1) @ kernel[:, :cut] + bias[:cut]
    z, r = jnp.split(jax.nn.sigmoid(gates), 2, -1)
    candidate = jnp.tanh(jnp.concatenate([x, r * h], -1) @ kernel[:, cut:] + bias[cut:])
    h = z * h + (1 - z) * candidate
    return (unused, h), h


def _gradients(run: Callable[[Any, Any], Any]) -> Any:
    return jax.jit(jax.grad(lambda params, x: jnp.sum(run(params, x) ** 2), argnums=(0, 1)))


def _run(made: Any, model: Model, x: Any) -> Callable[[], Any]:
    params, run = model
    function = made(run)
    return lambda: jax.block_until_ready(function(params, x))
