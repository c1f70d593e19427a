"""Stochastic gradient descent, with momentum; averaged; and by the gradient's sign alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.doors.graphs.optimizers.formula import (
    STEP,
    Formula,
    Numbers,
    Parameter,
    Settings,
    Slot,
    Slots,
    collect_switches,
    is_in_use,
    read_numbers,
    step_count_slots,
)
from ipujax.ground import Keywords

# --- SGD ------------------------------------------------------------------------------------------


def _sgd_switches(settings: Settings) -> frozenset[str]:
    has_momentum = is_in_use(settings, "momentum")
    dampens = has_momentum or not settings.get("counts_steps", True)
    return collect_switches(
        momentum=has_momentum,
        dampening=dampens and is_in_use(settings, "dampening"),
        nesterov=isinstance(settings["nesterov"], jax.Array) or settings["nesterov"],
        combined=has_momentum and settings.get("combined"),
    )


def _sgd_numbers(settings: Settings) -> Keywords:
    numbers = read_numbers(settings, "lr", "momentum", "dampening", "weight_decay")
    dampening = numbers.pop("dampening")
    dampens = not settings.get("counts_steps", True) or numbers["momentum"] != 0
    if isinstance(settings["nesterov"], jax.Array):
        numbers["nesterov"] = settings["nesterov"]
    return {**numbers, "taken": 1 - dampening if dampens else 1.0}


def _sgd_slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    velocity = (Slot("momentum_buffer", number=1),) if "momentum" in switches else ()
    return (*velocity, *step_count_slots(settings)) if "dampening" in switches else velocity


def _compute_sgd_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    """Computes SGD's change of a weight from the gradient, or from the velocity with momentum."""
    n, is_combined = parameter.numbers, "combined" in parameter.switches
    if "momentum" not in parameter.switches:
        return -n["lr"] * _dampen(parameter, parameter.penalized_gradient), {}
    old_velocity = parameter.slots["momentum_buffer"]
    if is_combined:
        velocity = old_velocity + _dampen(parameter, parameter.gradient)
    else:
        velocity = n["momentum"] * old_velocity + _dampen(parameter, parameter.penalized_gradient)
    step = velocity
    if "nesterov" in parameter.switches:
        step = parameter.penalized_gradient + n["momentum"] * velocity
        if "nesterov" in n:
            step = jnp.where(n["nesterov"] != 0, step, velocity)
    change = -n["lr"] * step
    if is_combined:
        velocity = decay_velocity(n, velocity, parameter.value + change)
    return change, {**parameter.next_step, "momentum_buffer": velocity}


def _dampen(p: Parameter, gradient: jax.Array) -> jax.Array:
    """Returns a gradient times 1 - dampening; a counted first step is not dampened."""
    if "dampening" not in p.switches:
        return gradient
    factor = p.numbers["taken"]
    if "step" in p.slots:
        factor = jnp.where(p.slots["step"] == 0, 1.0, factor)
    return factor * gradient


def decay_velocity(numbers: Numbers, velocity: jax.Array, value: jax.Array) -> jax.Array:
    """Returns a combined velocity between two steps: decayed, with the weight decay of the next.

    Args:
      numbers: of the variable, as the formula of SGD reads them.
      velocity: after the step.
      value: of the variable, after the step.
    """
    velocity = velocity * numbers["momentum"]
    if "weight_decay" not in numbers:
        return velocity
    return velocity + numbers["taken"] * numbers["weight_decay"] * value


SGD = Formula(_sgd_switches, _sgd_numbers, _sgd_slots, _compute_sgd_step)

# --- ASGD -----------------------------------------------------------------------------------------


def _asgd_slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    rate = Slot("eta", 0, float(settings["lr"]))
    return STEP, rate, Slot("mu", 0, 1.0), Slot("ax")


def _compute_asgd_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    n, slots = parameter.numbers, parameter.slots
    step, eta, mu = slots["step"] + 1, slots["eta"], slots["mu"]
    change = -n["lambd"] * eta * parameter.value - eta * parameter.penalized_gradient
    value = parameter.value + change
    mean = jnp.where(mu == 1, value, slots["ax"] + mu * (value - slots["ax"]))
    eta = n["lr"] / (1 + n["lambd"] * n["lr"] * step) ** n["alpha"]
    mu = 1 / jnp.maximum(step - n["t0"], 1.0)
    return change, {"step": step, "eta": eta, "mu": mu, "ax": mean}


ASGD = Formula(
    switches=lambda settings: frozenset(),
    numbers=lambda settings: read_numbers(settings, "lr", "lambd", "alpha", "t0", "weight_decay"),
    slots=_asgd_slots,
    change=_compute_asgd_step,
)

# --- Rprop ----------------------------------------------------------------------------------------


def _rprop_numbers(settings: Settings) -> Keywords:
    slower, faster = settings["etas"]
    smallest, largest = settings["step_sizes"]
    return {"slower": slower, "faster": faster, "smallest": smallest, "largest": largest}


def _rprop_slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    return STEP, Slot("prev"), Slot("step_size", initial=float(settings["lr"]))


def _compute_rprop_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    n, agrees = parameter.numbers, parameter.gradient * parameter.slots["prev"]
    factor = jnp.where(agrees > 0, n["faster"], jnp.where(agrees < 0, n["slower"], 1.0))
    size = jnp.clip(parameter.slots["step_size"] * factor, n["smallest"], n["largest"])
    gradient = jnp.where(agrees < 0, 0.0, parameter.gradient)
    slots = {"step": parameter.slots["step"] + 1, "prev": gradient, "step_size": size}
    return -jnp.sign(gradient) * size, slots


RPROP = Formula(lambda settings: frozenset(), _rprop_numbers, _rprop_slots, _compute_rprop_step)
