"""PyTorch recurrent layers: LSTM, GRU and simple RNNs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.operators.dropouts import drop_elements
from ipujax.doors.torch.operators.networks import linear
from ipujax.doors.torch.operators.table import operator

Array = jax.Array
State = tuple[Array, ...]
Step = Callable[[Array, State, Sequence[Operand]], State]
"""A function from the input's part of the gates, the old state and the recurrent weights (of the
gates, their bias, and the projection) to the new state."""


def _advance_lstm(gates: Array, state: State, weights: Sequence[Operand]) -> State:
    weight, bias, projection = weights
    hidden, cell = state
    input_gate, forget_gate, new, output_gate = jnp.split(
        gates + linear(hidden, weight, bias), 4, -1
    )
    cell = jax.nn.sigmoid(forget_gate) * cell + jax.nn.sigmoid(input_gate) * jnp.tanh(new)
    hidden = jax.nn.sigmoid(output_gate) * jnp.tanh(cell)
    return (hidden if projection is None else jnp.matmul(hidden, projection.T)), cell


def _advance_gru(gates: Array, state: State, weights: Sequence[Operand]) -> State:
    weight, bias, _ = weights
    (hidden,) = state
    hidden_parts = jnp.split(linear(hidden, weight, bias), 3, -1)
    input_parts = jnp.split(gates, 3, -1)
    reset, update = (
        jax.nn.sigmoid(input_parts[0] + hidden_parts[0]),
        jax.nn.sigmoid(input_parts[1] + hidden_parts[1]),
    )
    new = jnp.tanh(input_parts[2] + reset * hidden_parts[2])
    return ((hidden - new) * update + new,)


def _make_simple_rnn(activation: Callable[[Array], Array]) -> Step:
    def advance_simple_rnn(gates: Array, state: State, weights: Sequence[Operand]) -> State:
        weight, bias, _ = weights
        return (activation(gates + linear(state[0], weight, bias)),)

    return advance_simple_rnn


_STEP_FUNCTIONS: dict[str, Step] = {
    "lstm": _advance_lstm,
    "gru": _advance_gru,
    "rnn_tanh": _make_simple_rnn(jnp.tanh),
    "rnn_relu": _make_simple_rnn(jax.nn.relu),
}


def _run_layer_direction(
    step: Step, x: Array, state: State, weights: Sequence[Operand], reverse: bool
) -> Operand:
    """Runs one direction over [time, batch, features]; returns its outputs and last state."""
    weight, recurrent, bias, recurrent_bias, projection = weights
    # The input products of all steps are computed at once.
    gates = linear(x, weight, bias)

    def advance_direction(state: State, gates: Array) -> tuple[State, Array]:
        state = step(gates, state, (recurrent, recurrent_bias, projection))
        return state, state[0]

    last, outputs = jax.lax.scan(advance_direction, state, gates, reverse=reverse)
    return outputs, last


def _run_layers(
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
    """Runs all layers; returns the outputs, and the last states of all layers and directions."""
    x = x.swapaxes(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    params_per_direction = len(params) // (layers * directions)
    lasts: list[State] = []
    for layer in range(layers):
        if layer and train and dropout > 0:
            x = drop_elements(jax.random.fold_in(call.key, layer), x, dropout)
        outputs: list[Array] = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = _fill_missing_weights(
                params[number * params_per_direction :][:params_per_direction], has_biases
            )
            state = tuple(s[number] for s in states)
            output, last = _run_layer_direction(step, x, state, weights, direction == 1)
            outputs.append(output)
            lasts.append(last)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, -1)
    ends = (jnp.stack(parts) for parts in zip(*lasts, strict=True))
    return (x.swapaxes(0, 1) if batch_first else x, *ends)


def _fill_missing_weights(weights: Sequence[Array], has_biases: bool) -> tuple[Operand, ...]:
    """Returns input and recurrent weights, both biases and the projection, None if missing."""
    gate_count = 4 if has_biases else 2
    biases = weights[2:gate_count] if has_biases else (None, None)
    projection = weights[gate_count] if len(weights) > gate_count else None
    return (*weights[:2], *biases, projection)


def _register_recurrent(name: str, step: Step) -> None:
    # PyTorch passes the two states of an LSTM as a list.
    is_lstm = name == "lstm"

    @operator(f"aten.{name}.input", takes_call=True)
    def run_recurrent_layers(call: Call, x: Array, state: Any, *args: Operand) -> tuple[Array, ...]:
        return _run_layers(call, step, x, state if is_lstm else (state,), *args)

    @operator(f"aten.{name}_cell.default")
    def run_cell(
        x: Array,
        state: Any,
        weight: Array,
        recurrent: Array,
        bias: Array | None = None,
        recurrent_bias: Array | None = None,
    ) -> Operand:
        gates = linear(x, weight, bias)
        next_state = step(
            gates, tuple(state) if is_lstm else (state,), (recurrent, recurrent_bias, None)
        )
        return next_state if is_lstm else next_state[0]


for _name, _step in _STEP_FUNCTIONS.items():
    _register_recurrent(_name, _step)
