"""ONNX recurrent layers: RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ipujax.doors.graphs import Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
State = tuple[Array, ...]
Activation = Callable[[Array], Array]

# Each activation with its defaults of alpha and beta; None where it does not use them.
_ACTIVATIONS: dict[
    str, tuple[Callable[[Array, float, float], Array], float | None, float | None]
] = {
    "relu": (lambda x, a, b: jax.nn.relu(x), None, None),
    "tanh": (lambda x, a, b: jnp.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: jax.nn.sigmoid(x), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: jnp.where(x >= 0, x, a * x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: jnp.where(x > a, x, 0), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * jnp.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: jnp.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: jax.nn.elu(x, a), 1.0, None),
    "softsign": (lambda x, a, b: jax.nn.soft_sign(x), None, None),
    "softplus": (lambda x, a, b: jax.nn.softplus(x), None, None),
}


class Weights(NamedTuple):
    """The weights of one direction of a recurrent layer with H units.

    Attributes:
      input: [gates * H, features].
      recurrent: [gates * H, H].
      input_bias: [gates * H].
      recurrent_bias: [gates * H].
      peepholes: [3 * H], or None.
    """

    input: Array
    recurrent: Array
    input_bias: Array
    recurrent_bias: Array
    peepholes: Array | None


Step = Callable[[Array, State, Weights, Sequence[Activation]], State]
"""A function from the input's part of the gates and the old state to the new state."""


@operator("RNN", 7)
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    first: Array | None = None,
    **attributes: Any,
) -> State:
    """Computes an RNN; returns the outputs of all steps and the last ones."""

    def advance_rnn(
        input_gates: Array, state: State, weights: Weights, functions: Sequence[Activation]
    ) -> State:
        preactivation = input_gates + state[0] @ weights.recurrent.T + weights.recurrent_bias
        return (functions[0](preactivation),)

    return _run_recurrent_layer(
        advance_rnn, x, (w, r, b, None), lengths, (first,), ("Tanh",), **attributes
    )


@operator("GRU", 7)
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    first: Array | None = None,
    linear_before_reset: int = 0,
    **attributes: Any,
) -> State:
    """Computes a GRU; returns the outputs of all steps and the last ones."""

    def advance_gru(
        input_gates: Array, state: State, weights: Weights, functions: Sequence[Activation]
    ) -> State:
        (hidden,) = state
        gate_activation, candidate_activation = functions
        units = hidden.shape[-1]
        if linear_before_reset:
            product = hidden @ weights.recurrent.T + weights.recurrent_bias
            update, reset = jnp.split(
                gate_activation((input_gates + product)[:, : 2 * units]), 2, -1
            )
            new = reset * product[:, 2 * units :]
        else:
            recurrent, bias = weights.recurrent, weights.recurrent_bias
            product = hidden @ recurrent[: 2 * units].T + bias[: 2 * units]
            update, reset = jnp.split(gate_activation(input_gates[:, : 2 * units] + product), 2, -1)
            new = (reset * hidden) @ recurrent[2 * units :].T + bias[2 * units :]
        new = candidate_activation(input_gates[:, 2 * units :] + new)
        return ((1 - update) * new + update * hidden,)

    default = ("Sigmoid", "Tanh")
    return _run_recurrent_layer(
        advance_gru, x, (w, r, b, None), lengths, (first,), default, **attributes
    )


@operator("LSTM", 7)
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    first: Array | None = None,
    first_cell: Array | None = None,
    peepholes: Array | None = None,
    input_forget: int = 0,
    **attributes: Any,
) -> State:
    """Computes an LSTM; returns the outputs of all steps, the last ones and the last cells."""

    def advance_lstm(
        input_gates: Array, state: State, weights: Weights, functions: Sequence[Activation]
    ) -> State:
        hidden, cell = state
        gate_activation, candidate_activation, cell_activation = functions
        total = input_gates + hidden @ weights.recurrent.T
        input_sum, output_sum, forget_sum, new = jnp.split(total, 4, -1)
        peephole_weights = [0, 0, 0]
        if weights.peepholes is not None:
            peephole_weights = jnp.split(weights.peepholes, 3)
        input_gate = gate_activation(input_sum + peephole_weights[0] * cell)
        forget_gate = (
            1 - input_gate
            if input_forget
            else gate_activation(forget_sum + peephole_weights[2] * cell)
        )
        cell = forget_gate * cell + input_gate * candidate_activation(new)
        return gate_activation(output_sum + peephole_weights[1] * cell) * cell_activation(
            cell
        ), cell

    if b is not None:  # the two biases are added once, not in each step
        half = b.shape[-1] // 2
        b = jnp.pad(b[:, :half] + b[:, half:], ((0, 0), (0, half)))
    default, states = ("Sigmoid", "Tanh", "Tanh"), (first, first_cell)
    return _run_recurrent_layer(
        advance_lstm, x, (w, r, b, peepholes), lengths, states, default, **attributes
    )


def _run_recurrent_layer(
    step: Step,
    x: Array,
    weights: Sequence[Operand],
    lengths: Array | None,
    states: Sequence[Array | None],
    default_activations: Sequence[str],
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> State:
    """Runs all directions of a recurrent layer, each by `_run_direction`."""
    if direction not in ("forward", "reverse", "bidirectional"):
        raise check.value_error(
            f"direction is {direction!r}", "use forward, reverse or bidirectional"
        )
    reverses = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    names = tuple(default_activations) * len(reverses) if activations is None else activations
    if len(names) != len(default_activations) * len(reverses):
        raise check.value_error(
            f"a recurrent layer only supports {len(default_activations)} activation(s) for each of "
            f"its {len(reverses)} directions, and is given {len(names)}",
            f"leave activations out for {', '.join(default_activations)}",
        )
    functions = _build_activations(names, activation_alpha, activation_beta, clip)
    x = jnp.swapaxes(x, 0, 1) if layout else jnp.asarray(x)
    units = weights[1].shape[-1]
    if hidden_size not in (None, units):
        raise check.value_error(
            f"hidden_size is {hidden_size}, which does not match weights of {units} units",
            "leave hidden_size out",
        )
    direction_results: list[tuple[Array, State]] = []
    for number, reverse in enumerate(reverses):
        initial_states = tuple(
            _initial_state_of_direction(s, number, x.shape[1], units, x.dtype, layout)
            for s in states
        )
        direction_functions = functions[number * len(default_activations) :][
            : len(default_activations)
        ]
        direction_results.append(
            _run_direction(
                step,
                x,
                _weights_of_direction(weights, number),
                lengths,
                initial_states,
                direction_functions,
                reverse,
            )
        )
    outputs = jnp.stack([output for output, _ in direction_results], 1)
    lasts = [
        jnp.stack(parts) for parts in zip(*(last for _, last in direction_results), strict=True)
    ]
    if layout:
        return outputs.transpose(2, 0, 1, 3), *(last.swapaxes(0, 1) for last in lasts)
    return outputs, *lasts


def _weights_of_direction(weights: Sequence[Operand], direction_number: int) -> Weights:
    """Returns the weights of one direction."""
    w, r = (jnp.asarray(array[direction_number]) for array in weights[:2])
    b, peepholes = (
        None if array is None else jnp.asarray(array[direction_number]) for array in weights[2:]
    )
    b = jnp.zeros(2 * len(w), w.dtype) if b is None else b
    return Weights(w, r, b[: len(w)], b[len(w) :], peepholes)


def _initial_state_of_direction(
    state: Array | None,
    direction_number: int,
    batch: int,
    units: int,
    dtype: DTypeLike,
    layout: int,
) -> Array:
    if state is None:
        return jnp.zeros((batch, units), dtype)
    return (
        jnp.asarray(state)[:, direction_number] if layout else jnp.asarray(state)[direction_number]
    )


def _build_activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None
) -> list[Activation]:
    """Builds the activations; each takes its alpha and beta from the front of the lists."""
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise check.value_error(
                f"the activation is {name!r}", f"use one of {sorted(_ACTIVATIONS)}"
            )
    remaining_values = {"activation_alpha": list(alphas), "activation_beta": list(betas)}
    for parameter_index, (attribute_name, given_values) in enumerate(remaining_values.items(), 1):
        if given_values and all(
            _ACTIVATIONS[name.lower()][parameter_index] is None for name in names
        ):
            raise check.value_error(
                f"{attribute_name} is not supported by the activations {', '.join(names)}",
                "leave it out",
            )
    built: list[Activation] = []
    for name in names:
        function, *defaults = _ACTIVATIONS[name.lower()]
        numbers = [
            0.0 if default is None else (given.pop(0) if given else default)
            for default, given in zip(defaults, remaining_values.values(), strict=True)
        ]
        built.append(_make_clipped_activation(function, numbers, clip))
    return built


def _make_clipped_activation(
    function: Any, parameters: Sequence[float], clip: float | None
) -> Activation:
    def activation(x: Array) -> Array:
        return function(x if clip is None else jnp.clip(x, -clip, clip), *parameters)

    return activation


def _run_direction(
    step: Step,
    x: Array,
    weights: Weights,
    lengths: Array | None,
    state: State,
    functions: Sequence[Activation],
    reverse: bool,
) -> tuple[Array, State]:
    """Runs one direction over [time, batch, features]; returns its outputs and last state.

    After its end a sequence keeps its state and has outputs of zero; in reverse it begins there.
    """
    # The input products of all steps are computed at once.
    input_products = jnp.matmul(x, weights.input.T) + weights.input_bias

    def run_time_step(state: State, entry: tuple[Array, Array]) -> tuple[State, Array]:
        time, gates = entry
        new = step(gates, state, weights, functions)
        if lengths is None:
            return new, new[0]
        runs = (time < jnp.asarray(lengths))[:, None]
        new = tuple(jnp.where(runs, n, s) for n, s in zip(new, state, strict=True))
        return new, jnp.where(runs, new[0], 0)

    last, outputs = jax.lax.scan(
        run_time_step, state, (jnp.arange(len(x)), input_products), reverse=reverse
    )
    return outputs, last
