"""Adam and its kin: steps of a gradient's mean by the root of its mean square."""

from __future__ import annotations

from typing import Any

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
    bias,
    collect_switches,
    read_numbers,
    read_rate,
    steps_of,
)

_MEAN, _MEAN_SQUARE = Slot("exp_avg", number=1), Slot("exp_avg_sq", 2, number=2)


def _switches(settings: Settings) -> frozenset[str]:
    return collect_switches(
        amsgrad=settings.get("amsgrad"),
        decoupled=settings.get("decoupled_weight_decay"),
        biased=not settings.get("bias_correction", True),
    )


def _numbers(settings: Settings) -> dict[str, Any]:
    first, second = settings["betas"]
    others = read_numbers(settings, "lr", "eps", "weight_decay")
    return {**others, **read_rate("beta1", first), **read_rate("beta2", second)}


def _slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    largest = (Slot("max_exp_avg_sq", 2, number=3),) if "amsgrad" in switches else ()
    return *steps_of(settings), _MEAN, _MEAN_SQUARE, *largest


def _moments(p: Parameter, gradient: jax.Array) -> Slots:
    """Returns the count of steps and both moments, after this gradient."""
    first = average(p, "exp_avg", "beta1", gradient)
    second = average_square(p, "exp_avg_sq", "beta2", gradient)
    return {**p.next_step, "exp_avg": first, "exp_avg_sq": second}


def _penalize(p: Parameter) -> tuple[jax.Array, jax.Array | float]:
    """Returns the gradient that the moments are of, and what a decoupled weight decay adds."""
    if "decoupled" not in p.switches:
        return p.decayed, 0.0
    if "weight_decay" not in p.numbers:
        return p.gradient, 0.0
    return p.gradient, -p.numbers["lr"] * p.numbers["weight_decay"] * p.value


def _corrections(p: Parameter, slots: Slots) -> tuple[jax.Array | float, jax.Array | float]:
    if "biased" in p.switches:
        return 1.0, 1.0
    return bias(p, "beta1", slots["step"]), bias(p, "beta2", slots["step"])


# --- Adam, AdamW ----------------------------------------------------------------------------------


def _adam(p: Parameter) -> tuple[jax.Array, Slots]:
    gradient, decay = _penalize(p)
    slots = _moments(p, gradient)
    first, second = _corrections(p, slots)
    square = slots["exp_avg_sq"]
    if "amsgrad" in p.switches:
        square = slots["max_exp_avg_sq"] = jnp.maximum(p.slots["max_exp_avg_sq"], square)
    size = jnp.sqrt(square) / jnp.sqrt(second) + p.numbers["eps"]
    return decay - p.numbers["lr"] / first * slots["exp_avg"] / size, slots


ADAM = Formula(_switches, _numbers, _slots, _adam)

# --- LAMB (You et al., arXiv 1904.00962, algorithm 2) ---------------------------------------------


def _lamb_switches(settings: Settings) -> frozenset[str]:
    is_regularized = settings.get("decoupled_weight_decay") is False
    return _switches(settings) | collect_switches(regularized=is_regularized)


def _lamb(p: Parameter) -> tuple[jax.Array, Slots]:
    """A step of Adam as long as the variable itself is, or `max_weight_norm` if that is less."""
    n, is_regularized = p.numbers, "regularized" in p.switches
    slots = _moments(p, p.decayed if is_regularized else p.gradient)
    first, second = _corrections(p, slots)
    size = jnp.sqrt(slots["exp_avg_sq"]) / jnp.sqrt(second) + n["eps"]
    direction = slots["exp_avg"] / first / size
    if "weight_decay" in n and not is_regularized:
        direction = direction + n["weight_decay"] * p.value
    length = jnp.sqrt(jnp.sum(direction * direction))
    wanted = jnp.minimum(jnp.sqrt(jnp.sum(p.value * p.value)), n["max_weight_norm"])
    fits = (wanted == 0) | (length == 0)
    trust = jnp.where(fits, 1.0, wanted / jnp.where(fits, 1.0, length))
    return -n["lr"] * trust * direction, slots


LAMB = Formula(
    _lamb_switches, lambda s: {**_numbers(s), **read_numbers(s, "max_weight_norm")}, _slots, _lamb
)

# --- Adamax ---------------------------------------------------------------------------------------


def _adamax_switches(settings: Settings) -> frozenset[str]:
    return _switches(settings) | collect_switches(eps_apart=settings.get("eps_apart"))


def _adamax(p: Parameter) -> tuple[jax.Array, Slots]:
    """A step by the largest gradient, to which `eps` is added before it decays, or apart."""
    gradient, decay = _penalize(p)
    slots, eps = p.next_step, p.numbers["eps"]
    first = slots["exp_avg"] = average(p, "exp_avg", "beta1", gradient)
    size = jnp.abs(gradient) if "eps_apart" in p.switches else jnp.abs(gradient) + eps
    largest = jnp.maximum(p.numbers["beta2"] * p.slots["exp_inf"], size)
    slots["exp_inf"] = largest
    divisor = largest + eps if "eps_apart" in p.switches else largest
    change = -p.numbers["lr"] / bias(p, "beta1", slots["step"]) * first / divisor
    return change if isinstance(decay, float) else decay + change, slots


ADAMAX = Formula(
    _adamax_switches,
    _numbers,
    lambda settings, switches: (*steps_of(settings), _MEAN, Slot("exp_inf", 2, number=2)),
    _adamax,
)

# --- NAdam ----------------------------------------------------------------------------------------


def _nadam(p: Parameter) -> tuple[jax.Array, Slots]:
    gradient, decay = _penalize(p)
    n, slots = p.numbers, _moments(p, gradient)
    size = jnp.sqrt(slots["exp_avg_sq"] / bias(p, "beta2", slots["step"])) + n["eps"]

    def momentum(step: jax.Array) -> jax.Array:
        return n["beta1"] * (1 - 0.5 * 0.96 ** (step * n["momentum_decay"]))

    current, following = momentum(slots["step"]), momentum(slots["step"] + 1)
    product = slots["mu_product"] = p.slots["mu_product"] * current
    fresh = gradient * ((1 - current) / (1 - product))
    ahead = slots["exp_avg"] * (following / (1 - product * following))
    return decay - n["lr"] * (fresh + ahead) / size, slots


NADAM = Formula(
    _switches,
    lambda s: {**_numbers(s), **read_numbers(s, "momentum_decay")},
    lambda s, switches: (*_slots(s, switches), Slot("mu_product", 0, 1.0)),
    _nadam,
)

# --- RAdam ----------------------------------------------------------------------------------------


def _shortfall(x: jax.Array) -> jax.Array:
    """Returns `1 - coth(x) + 1 / x`, all digits of float32."""
    square = x * x
    series = x * (1 / 3 - square * (1 / 45 - square * (2 / 945 - square / 4725)))
    return jnp.where(x < 0.5, 1 - series, 1 / x - 2 / jnp.expm1(2 * x))


def _radam(p: Parameter) -> tuple[jax.Array, Slots]:
    """A step by the root of the mean square, once enough gradients are in it.

    The mean's length is `longest - 2 * step * beta2**step / (1 - beta2**step)`, written as two
    short numbers here, of which the first is `start`: the difference of these long ones keeps four
    digits in float32.
    """
    gradient, decay = _penalize(p)
    n, slots = p.numbers, _moments(p, gradient)
    step, longest = slots["step"], n["longest"]
    length = n["start"] + step * _shortfall(step * n["beta2_log"] / -2)
    adapts = length > 5  # before, the mean square is not to be trusted
    long = jnp.where(adapts, length, longest)
    part = (long - 4) * (long - 2) * longest / ((longest - 4) * (longest - 2) * long)
    scale = jnp.sqrt(part) * jnp.sqrt(bias(p, "beta2", step))
    by_square = scale / (jnp.sqrt(slots["exp_avg_sq"]) + n["eps"])
    first = slots["exp_avg"] / bias(p, "beta1", step)
    return decay - n["lr"] * first * jnp.where(adapts, by_square, 1.0), slots


def _radam_numbers(settings: Settings) -> dict[str, Any]:
    numbers = _numbers(settings)
    longest = 2 / numbers["beta2_rest"] - 1
    return {**numbers, "longest": longest, "start": longest + 2 / numbers["beta2_log"]}


RADAM = Formula(_switches, _radam_numbers, _slots, _radam)
