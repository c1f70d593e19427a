"""Recurrent layers: RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array
State = tuple[Array, ...]
Activation = Callable[[Array], Array]

# Defaults of alpha and beta; None where an activation has none.
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
    """Those of one direction, with H units.

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
"""The state after a step from the part of the gates that the input makes, and the state before."""


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
    """The outputs of all steps and the last ones."""

    def step(
        given: Array, state: State, weights: Weights, functions: Sequence[Activation]
    ) -> State:
        total = given + state[0] @ weights.recurrent.T + weights.recurrent_bias
        return (functions[0](total),)

    return _layer(step, x, (w, r, b, None), lengths, (first,), ("Tanh",), **attributes)


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
    """The outputs of all steps and the last ones."""

    def step(
        given: Array, state: State, weights: Weights, functions: Sequence[Activation]
    ) -> State:
        (hidden,) = state
        of_gates, of_new = functions
        units = hidden.shape[-1]
        if linear_before_reset:
            product = hidden @ weights.recurrent.T + weights.recurrent_bias
            update, reset = jnp.split(of_gates((given + product)[:, : 2 * units]), 2, -1)
            new = reset * product[:, 2 * units :]
        else:
            recurrent, bias = weights.recurrent, weights.recurrent_bias
            product = hidden @ recurrent[: 2 * units].T + bias[: 2 * units]
            update, reset = jnp.split(of_gates(given[:, : 2 * units] + product), 2, -1)
            new = (reset * hidden) @ recurrent[2 * units :].T + bias[2 * units :]
        new = of_new(given[:, 2 * units :] + new)
        return ((1 - update) * new + update * hidden,)

    default = ("Sigmoid", "Tanh")
    return _layer(step, x, (w, r, b, None), lengths, (first,), default, **attributes)


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
    """The outputs of all steps, the last ones, and the last cells."""

    def step(
        given: Array, state: State, weights: Weights, functions: Sequence[Activation]
    ) -> State:
        hidden, cell = state
        of_gates, of_new, of_cell = functions
        total = given + hidden @ weights.recurrent.T
        entering, giving, forgetting, new = jnp.split(total, 4, -1)
        views = [0, 0, 0]
        if weights.peepholes is not None:
            views = jnp.split(weights.peepholes, 3)
        entered = of_gates(entering + views[0] * cell)
        kept = 1 - entered if input_forget else of_gates(forgetting + views[2] * cell)
        cell = kept * cell + entered * of_new(new)
        return of_gates(giving + views[1] * cell) * of_cell(cell), cell

    if b is not None:  # both biases are added up once, not in each step
        half = b.shape[-1] // 2
        b = jnp.pad(b[:, :half] + b[:, half:], ((0, 0), (0, half)))
    default, states = ("Sigmoid", "Tanh", "Tanh"), (first, first_cell)
    return _layer(step, x, (w, r, b, peepholes), lengths, states, default, **attributes)


def _layer(
    step: Step,
    x: Array,
    weights: Sequence[Any],
    lengths: Array | None,
    states: Sequence[Array | None],
    default: Sequence[str],
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> State:
    """All directions of a layer; see `_direction`."""
    if direction not in ("forward", "reverse", "bidirectional"):
        raise check.refuse(f"direction is {direction!r}", "use forward, reverse or bidirectional")
    reverses = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    names = tuple(default) * len(reverses) if activations is None else activations
    if len(names) != len(default) * len(reverses):
        raise check.refuse(
            f"a recurrent layer only supports {len(default)} activation(s) for each of its "
            f"{len(reverses)} directions, and is given {len(names)}",
            f"leave activations out for {', '.join(default)}",
        )
    functions = _functions(names, activation_alpha, activation_beta, clip)
    x = jnp.swapaxes(x, 0, 1) if layout else jnp.asarray(x)
    units = weights[1].shape[-1]
    if hidden_size not in (None, units):
        raise check.refuse(
            f"hidden_size is {hidden_size}, which does not match weights of {units} units",
            "leave hidden_size out",
        )
    found: list[tuple[Array, State]] = []
    for number, reverse in enumerate(reverses):
        before = tuple(_first(s, number, x.shape[1], units, x.dtype, layout) for s in states)
        own = functions[number * len(default) :][: len(default)]
        found.append(_direction(step, x, _of(weights, number), lengths, before, own, reverse))
    outputs = jnp.stack([output for output, _ in found], 1)
    lasts = [jnp.stack(parts) for parts in zip(*(last for _, last in found), strict=True)]
    if layout:
        return outputs.transpose(2, 0, 1, 3), *(last.swapaxes(0, 1) for last in lasts)
    return outputs, *lasts


def _of(weights: Sequence[Any], number: int) -> Weights:
    """The weights of a direction."""
    w, r = (jnp.asarray(array[number]) for array in weights[:2])
    b, peepholes = (None if array is None else jnp.asarray(array[number]) for array in weights[2:])
    b = jnp.zeros(2 * len(w), w.dtype) if b is None else b
    return Weights(w, r, b[: len(w)], b[len(w) :], peepholes)


def _first(
    state: Array | None, number: int, batch: int, units: int, dtype: Any, layout: int
) -> Array:
    if state is None:
        return jnp.zeros((batch, units), dtype)
    return jnp.asarray(state)[:, number] if layout else jnp.asarray(state)[number]


def _functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None
) -> list[Activation]:
    """The activations; those that have an alpha or a beta take the next one of the lists."""
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise check.refuse(f"the activation is {name!r}", f"use one of {sorted(_ACTIVATIONS)}")
    left = {"activation_alpha": list(alphas), "activation_beta": list(betas)}
    for place, (what, given) in enumerate(left.items(), 1):
        if given and all(_ACTIVATIONS[name.lower()][place] is None for name in names):
            raise check.refuse(
                f"{what} is not supported by the activations {', '.join(names)}", "leave it out"
            )
    found: list[Activation] = []
    for name in names:
        function, *defaults = _ACTIVATIONS[name.lower()]
        numbers = [
            0.0 if default is None else (given.pop(0) if given else default)
            for default, given in zip(defaults, left.values(), strict=True)
        ]
        found.append(_clipped(function, numbers, clip))
    return found


def _clipped(function: Any, numbers: Sequence[float], clip: float | None) -> Activation:
    def activation(x: Array) -> Array:
        return function(x if clip is None else jnp.clip(x, -clip, clip), *numbers)

    return activation


def _direction(
    step: Step,
    x: Array,
    weights: Weights,
    lengths: Array | None,
    state: State,
    functions: Sequence[Activation],
    reverse: bool,
) -> tuple[Array, State]:
    """One direction over [time, batch, features]: its outputs and its last state.

    After its end a sequence has the state it had and outputs of zero; backwards it begins there.
    """
    # All steps' products with the input are one.
    given = jnp.matmul(x, weights.input.T) + weights.input_bias

    def one(state: State, entry: tuple[Array, Array]) -> tuple[State, Array]:
        time, gates = entry
        new = step(gates, state, weights, functions)
        if lengths is None:
            return new, new[0]
        runs = (time < jnp.asarray(lengths))[:, None]
        new = tuple(jnp.where(runs, n, s) for n, s in zip(new, state, strict=True))
        return new, jnp.where(runs, new[0], 0)

    last, outputs = jax.lax.scan(one, state, (jnp.arange(len(x)), given), reverse=reverse)
    return outputs, last
