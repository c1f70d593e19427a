"""Stochastic gradient descent, with momentum; averaged; and by the gradient's sign alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ipujax.poptorch.optim.methods.method import (
    STEP,
    Kept,
    Method,
    Parameter,
    Settings,
    Slot,
    in_use,
    numbers_of,
    switched,
)

# --- SGD ------------------------------------------------------------------------------------------


def _sgd_switches(settings: Settings) -> frozenset[str]:
    momentum = in_use(settings, "momentum")
    dampening = momentum and in_use(settings, "dampening")
    return switched(momentum=momentum, dampening=dampening, nesterov=settings["nesterov"])


def _sgd_numbers(settings: Settings) -> dict[str, float]:
    numbers = numbers_of(settings, "lr", "momentum", "weight_decay")
    taken = 1 - float(settings["dampening"]) if settings["momentum"] else 1.0
    return {**numbers, "taken": taken}


def _sgd_slots(settings: Settings, on: frozenset[str]) -> tuple[Slot, ...]:
    velocity = (Slot("momentum_buffer"),) if "momentum" in on else ()
    return (*velocity, STEP) if "dampening" in on else velocity


def _sgd(p: Parameter) -> tuple[jax.Array, Kept]:
    gradient, numbers = p.decayed, p.numbers
    if "momentum" not in p.on:
        return -numbers["lr"] * gradient, {}
    kept: Kept = {}
    taken = gradient
    if "dampening" in p.on:  # the first gradient is taken whole
        kept["step"] = p.kept["step"] + 1
        taken = jnp.where(p.kept["step"] == 0, 1.0, numbers["taken"]) * gradient
    velocity = numbers["momentum"] * p.kept["momentum_buffer"] + taken
    kept["momentum_buffer"] = velocity
    ahead = gradient + numbers["momentum"] * velocity if "nesterov" in p.on else velocity
    return -numbers["lr"] * ahead, kept


SGD = Method(_sgd_switches, _sgd_numbers, _sgd_slots, _sgd)

# --- ASGD -----------------------------------------------------------------------------------------


def _asgd_slots(settings: Settings, on: frozenset[str]) -> tuple[Slot, ...]:
    rate = Slot("eta", 0, float(settings["lr"]))
    return STEP, rate, Slot("mu", 0, 1.0), Slot("ax")


def _asgd(p: Parameter) -> tuple[jax.Array, Kept]:
    n, kept = p.numbers, p.kept
    step, eta, mu = kept["step"] + 1, kept["eta"], kept["mu"]
    change = -n["lambd"] * eta * p.value - eta * p.decayed
    value = p.value + change
    average = jnp.where(mu == 1, value, kept["ax"] + mu * (value - kept["ax"]))
    eta = n["lr"] / (1 + n["lambd"] * n["lr"] * step) ** n["alpha"]
    mu = 1 / jnp.maximum(step - n["t0"], 1.0)
    return change, {"step": step, "eta": eta, "mu": mu, "ax": average}


ASGD = Method(
    switches=lambda settings: frozenset(),
    numbers=lambda settings: numbers_of(settings, "lr", "lambd", "alpha", "t0", "weight_decay"),
    slots=_asgd_slots,
    change=_asgd,
)

# --- Rprop ----------------------------------------------------------------------------------------


def _rprop_numbers(settings: Settings) -> dict[str, float]:
    slower, faster = settings["etas"]
    smallest, largest = settings["step_sizes"]
    return {"slower": slower, "faster": faster, "smallest": smallest, "largest": largest}


def _rprop_slots(settings: Settings, on: frozenset[str]) -> tuple[Slot, ...]:
    return STEP, Slot("prev"), Slot("step_size", initial=float(settings["lr"]))


def _rprop(p: Parameter) -> tuple[jax.Array, Kept]:
    n, agrees = p.numbers, p.gradient * p.kept["prev"]
    factor = jnp.where(agrees > 0, n["faster"], jnp.where(agrees < 0, n["slower"], 1.0))
    size = jnp.clip(p.kept["step_size"] * factor, n["smallest"], n["largest"])
    gradient = jnp.where(agrees < 0, 0.0, p.gradient)
    kept = {"step": p.kept["step"] + 1, "prev": gradient, "step_size": size}
    return -jnp.sign(gradient) * size, kept


RPROP = Method(lambda settings: frozenset(), _rprop_numbers, _rprop_slots, _rprop)
