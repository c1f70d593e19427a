"""RMSprop, Adagrad and Adadelta: steps by the size of the gradients so far."""

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
    mean,
    mean_square,
    numbers_of,
    rate,
    switched,
)

# --- RMSprop --------------------------------------------------------------------------------------


def _rmsprop_switches(settings: Settings) -> frozenset[str]:
    return switched(
        momentum=in_use(settings, "momentum"),
        centered=settings["centered"],
        tensorflow=settings.get("use_tf_variant"),
    )


def _rmsprop_numbers(settings: Settings) -> dict[str, float]:
    others = numbers_of(settings, "lr", "eps", "weight_decay", "momentum")
    return {**others, **rate("alpha", settings["alpha"])}


def _rmsprop_slots(settings: Settings, on: frozenset[str]) -> tuple[Slot, ...]:
    square = Slot("square_avg", 2, 1.0 if "tensorflow" in on else 0.0)
    average = (Slot("grad_avg"),) if "centered" in on else ()
    velocity = (Slot("momentum_buffer"),) if "momentum" in on else ()
    return STEP, square, *average, *velocity


def _rmsprop(p: Parameter) -> tuple[jax.Array, Kept]:
    n, gradient, tensorflow = p.numbers, p.decayed, "tensorflow" in p.on
    square = mean_square(p, "square_avg", "alpha", gradient)
    kept: Kept = {"step": p.kept["step"] + 1, "square_avg": square}
    if "centered" in p.on:
        average = kept["grad_avg"] = mean(p, "grad_avg", "alpha", gradient)
        square = square - average * average
    size = jnp.sqrt(square + n["eps"]) if tensorflow else jnp.sqrt(square) + n["eps"]
    step = gradient / size
    if "momentum" not in p.on:
        return -n["lr"] * step, kept
    inside, outside = (n["lr"], 1.0) if tensorflow else (1.0, n["lr"])
    velocity = n["momentum"] * p.kept["momentum_buffer"] + inside * step
    kept["momentum_buffer"] = velocity
    return -outside * velocity, kept


RMSPROP = Method(_rmsprop_switches, _rmsprop_numbers, _rmsprop_slots, _rmsprop)

# --- Adagrad --------------------------------------------------------------------------------------


def _adagrad_slots(settings: Settings, on: frozenset[str]) -> tuple[Slot, ...]:
    return STEP, Slot("sum", 2, float(settings["initial_accumulator_value"]))


def _adagrad(p: Parameter) -> tuple[jax.Array, Kept]:
    n, gradient, before = p.numbers, p.decayed, p.kept["step"]
    total = p.kept["sum"] + gradient * gradient
    rate = n["lr"] / (1 + before * n["lr_decay"])
    change = -rate * gradient / (jnp.sqrt(total) + n["eps"])
    return change, {"step": before + 1, "sum": total}


ADAGRAD = Method(
    switches=lambda settings: frozenset(),
    numbers=lambda settings: numbers_of(settings, "lr", "lr_decay", "eps", "weight_decay"),
    slots=_adagrad_slots,
    change=_adagrad,
)

# --- Adadelta -------------------------------------------------------------------------------------


def _adadelta(p: Parameter) -> tuple[jax.Array, Kept]:
    n, gradient = p.numbers, p.decayed
    square = mean_square(p, "square_avg", "rho", gradient)
    delta = jnp.sqrt(p.kept["acc_delta"] + n["eps"]) / jnp.sqrt(square + n["eps"]) * gradient
    moved = mean_square(p, "acc_delta", "rho", delta)
    kept = {"step": p.kept["step"] + 1, "square_avg": square, "acc_delta": moved}
    return -n["lr"] * delta, kept


ADADELTA = Method(
    switches=lambda settings: frozenset(),
    numbers=lambda s: {**numbers_of(s, "lr", "eps", "weight_decay"), **rate("rho", s["rho"])},
    slots=lambda settings, on: (STEP, Slot("square_avg", 2), Slot("acc_delta", 2)),
    change=_adadelta,
)
