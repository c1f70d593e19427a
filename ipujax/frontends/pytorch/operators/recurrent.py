"""Recurrent layers: LSTM, GRU and simple ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.pytorch.operators.dropouts import dropped
from ipujax.frontends.pytorch.operators.networks import linear
from ipujax.frontends.pytorch.operators.table import operator

Array = jax.Array
State = tuple[Array, ...]
Step = Callable[[Array, State, Sequence[Any]], State]
"""The state after a step from the part of the gates that the input makes, the state before, and
the weights of the recurrence: those of the gates, their bias, and the projection's."""


def _lstm_step(gates: Array, state: State, weights: Sequence[Any]) -> State:
    weight, bias, projection = weights
    hidden, cell = state
    entered, forgotten, new, given = jnp.split(gates + linear(hidden, weight, bias), 4, -1)
    cell = jax.nn.sigmoid(forgotten) * cell + jax.nn.sigmoid(entered) * jnp.tanh(new)
    hidden = jax.nn.sigmoid(given) * jnp.tanh(cell)
    return (hidden if projection is None else jnp.matmul(hidden, projection.T)), cell


def _gru_step(gates: Array, state: State, weights: Sequence[Any]) -> State:
    weight, bias, _ = weights
    (hidden,) = state
    mine = jnp.split(linear(hidden, weight, bias), 3, -1)
    given = jnp.split(gates, 3, -1)
    reset, update = jax.nn.sigmoid(given[0] + mine[0]), jax.nn.sigmoid(given[1] + mine[1])
    new = jnp.tanh(given[2] + reset * mine[2])
    return ((hidden - new) * update + new,)


def _simple_step(activation: Callable[[Array], Array]) -> Step:
    def step(gates: Array, state: State, weights: Sequence[Any]) -> State:
        weight, bias, _ = weights
        return (activation(gates + linear(state[0], weight, bias)),)

    return step


_STEPS: dict[str, Step] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": _simple_step(jnp.tanh),
    "rnn_relu": _simple_step(jax.nn.relu),
}


def _layer(step: Step, x: Array, state: State, weights: Sequence[Any], reverse: bool) -> Any:
    """One direction of a layer over [time, batch, features]: its outputs and its last state."""
    weight, recurrent, bias, recurrent_bias, projection = weights
    # All steps' products with the input are one.
    gates = linear(x, weight, bias)

    def one(state: State, gates: Array) -> tuple[State, Array]:
        state = step(gates, state, (recurrent, recurrent_bias, projection))
        return state, state[0]

    last, outputs = jax.lax.scan(one, state, gates, reverse=reverse)
    return outputs, last


def _layers(
    call: Call,
    step: Step,
    x: Array,
    states: Sequence[Array],
    params: Sequence[Array],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, ...]:
    """The outputs, and the last states of all layers and directions."""
    x = x.swapaxes(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    each = len(params) // (layers * directions)
    lasts: list[State] = []
    for layer in range(layers):
        if layer and train and dropout > 0:
            x = dropped(jax.random.fold_in(call.key, layer), x, dropout)
        outputs: list[Array] = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = _with_nones(params[number * each :][:each], has_biases)
            state = tuple(s[number] for s in states)
            output, last = _layer(step, x, state, weights, direction == 1)
            outputs.append(output)
            lasts.append(last)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, -1)
    ends = (jnp.stack(parts) for parts in zip(*lasts, strict=True))
    return (x.swapaxes(0, 1) if batch_first else x, *ends)


def _with_nones(weights: Sequence[Array], has_biases: bool) -> tuple[Any, ...]:
    """The weights of a layer: input's, recurrent, biases of both, and the projection's."""
    plain = 4 if has_biases else 2
    biases = weights[2:plain] if has_biases else (None, None)
    projection = weights[plain] if len(weights) > plain else None
    return (*weights[:2], *biases, projection)


def _register(name: str, step: Step) -> None:
    # An LSTM has two states, and is given them as a list.
    is_lstm = name == "lstm"

    @operator(f"aten.{name}.input")
    def run(call: Call, x: Array, state: Any, *args: Any) -> tuple[Array, ...]:
        return _layers(call, step, x, state if is_lstm else (state,), *args)

    @operator(f"aten.{name}_cell.default")
    def run_cell(
        x: Array,
        state: Any,
        weight: Array,
        recurrent: Array,
        bias: Array | None = None,
        recurrent_bias: Array | None = None,
    ) -> Any:
        gates = linear(x, weight, bias)
        after = step(
            gates, tuple(state) if is_lstm else (state,), (recurrent, recurrent_bias, None)
        )
        return after if is_lstm else after[0]


for _name, _step in _STEPS.items():
    _register(_name, _step)
