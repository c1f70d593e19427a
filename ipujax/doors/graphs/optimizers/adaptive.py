"""RMSprop, Adagrad and Adadelta: steps by the size of the gradients so far."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.optimizers.formula import (
    Formula,
    Parameter,
    Settings,
    Slot,
    Slots,
    average,
    average_square,
    collect_switches,
    is_in_use,
    read_numbers,
    read_rate,
    step_count_slots,
)
from ipujax.ground import Keywords

_SQUARE = Slot("square_avg", 2, number=1)


def _adaptive_switches(settings: Settings) -> frozenset[str]:
    return collect_switches(
        momentum="momentum" in settings and is_in_use(settings, "momentum"),
        centered=settings.get("centered"),
        tensorflow=settings.get("use_tf_variant"),
        decoupled=settings.get("decoupled_weight_decay"),
    )


def _adaptive_numbers(settings: Settings) -> Keywords:
    return read_numbers(settings, "lr", "lr_decay", "eps", "weight_decay", "momentum")


def _build_reader_of_numbers_with_rate(name: str) -> Callable[[Settings], Keywords]:
    """Returns `Formula.numbers` with the rate of a moving average."""
    return lambda settings: {**_adaptive_numbers(settings), **read_rate(name, settings[name])}


def _adaptive_slots(settings: Settings, switches: frozenset[str], *own: Slot) -> tuple[Slot, ...]:
    """Returns the slots of a formula: its own, and those of all in this module."""
    velocity = (Slot("momentum_buffer", number=3),) if "momentum" in switches else ()
    return *step_count_slots(settings), *own, *velocity


def _build_descent_step(
    direction: Callable[[Parameter, jax.Array], tuple[jax.Array, Slots]],
) -> Callable[[Parameter], tuple[jax.Array, Slots]]:
    """Returns the formula that goes into a direction, with momentum if that is switched on.

    Args:
      direction: gives for a gradient the direction, and the slots but that of the velocity.
    """

    def change(p: Parameter) -> tuple[jax.Array, Slots]:
        n, is_decoupled = p.numbers, "decoupled" in p.switches
        step, slots = direction(p, p.gradient if is_decoupled else p.penalized_gradient)
        rate = n["lr"]
        if "lr_decay" in n:
            rate = rate / (1 + p.slots["step"] * n["lr_decay"])
        if "momentum" in p.switches:
            if "tensorflow" in p.switches:
                rate, step = 1.0, rate * step
            step = slots["momentum_buffer"] = n["momentum"] * p.slots["momentum_buffer"] + step
        if is_decoupled and "weight_decay" in n:
            step = step + n["weight_decay"] * p.value
        return -rate * step, slots

    return change


# --- RMSprop --------------------------------------------------------------------------------------


def _rmsprop_slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    square = _SQUARE._replace(initial=1.0 if "tensorflow" in switches else 0.0)
    mean = (Slot("grad_avg", number=2),) if "centered" in switches else ()
    return _adaptive_slots(settings, switches, square, *mean)


def _compute_rmsprop_step(parameter: Parameter, gradient: jax.Array) -> tuple[jax.Array, Slots]:
    square = average_square(parameter, "square_avg", "alpha", gradient)
    slots: Slots = {**parameter.next_step, "square_avg": square}
    if "centered" in parameter.switches:
        mean = slots["grad_avg"] = average(parameter, "grad_avg", "alpha", gradient)
        square = square - mean * mean
    eps = parameter.numbers["eps"]
    size = jnp.sqrt(square + eps) if "tensorflow" in parameter.switches else jnp.sqrt(square) + eps
    return gradient / size, slots


RMSPROP = Formula(
    _adaptive_switches,
    _build_reader_of_numbers_with_rate("alpha"),
    _rmsprop_slots,
    _build_descent_step(_compute_rmsprop_step),
)

# --- Adagrad --------------------------------------------------------------------------------------


def _adagrad_slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    initial = float(settings.get("initial_accumulator_value", 0.0))
    return _adaptive_slots(settings, switches, Slot("sum", 2, initial, number=1))


def _compute_adagrad_step(parameter: Parameter, gradient: jax.Array) -> tuple[jax.Array, Slots]:
    total = parameter.slots["sum"] + gradient * gradient
    return gradient / (jnp.sqrt(total) + parameter.numbers["eps"]), {
        **parameter.next_step,
        "sum": total,
    }


ADAGRAD = Formula(
    _adaptive_switches,
    _adaptive_numbers,
    _adagrad_slots,
    _build_descent_step(_compute_adagrad_step),
)

# --- Adadelta -------------------------------------------------------------------------------------


def _adadelta_slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    return _adaptive_slots(settings, switches, _SQUARE, Slot("acc_delta", 2, number=2))


def _compute_adadelta_step(parameter: Parameter, gradient: jax.Array) -> tuple[jax.Array, Slots]:
    eps = parameter.numbers["eps"]
    square = average_square(parameter, "square_avg", "rho", gradient)
    delta = jnp.sqrt(parameter.slots["acc_delta"] + eps) / jnp.sqrt(square + eps) * gradient
    new_acc_delta = average_square(parameter, "acc_delta", "rho", delta)
    return delta, {**parameter.next_step, "square_avg": square, "acc_delta": new_acc_delta}


ADADELTA = Formula(
    _adaptive_switches,
    _build_reader_of_numbers_with_rate("rho"),
    _adadelta_slots,
    _build_descent_step(_compute_adadelta_step),
)
