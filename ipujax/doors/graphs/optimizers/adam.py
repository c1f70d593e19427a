"""Adam and its kin: steps of a gradient's mean by the root of its mean square."""

from __future__ import annotations

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
    compute_bias,
    read_numbers,
    read_rate,
    step_count_slots,
)
from ipujax.ground import Keywords

_MEAN, _MEAN_SQUARE = Slot("exp_avg", number=1), Slot("exp_avg_sq", 2, number=2)


def _adam_switches(settings: Settings) -> frozenset[str]:
    return collect_switches(
        amsgrad=settings.get("amsgrad"),
        decoupled=settings.get("decoupled_weight_decay"),
        biased=not settings.get("bias_correction", True),
    )


def _adam_numbers(settings: Settings) -> Keywords:
    first, second = settings["betas"]
    numbers = read_numbers(settings, "lr", "eps", "weight_decay")
    return {**numbers, **read_rate("beta1", first), **read_rate("beta2", second)}


def _adam_slots(settings: Settings, switches: frozenset[str]) -> tuple[Slot, ...]:
    largest = (Slot("max_exp_avg_sq", 2, number=3),) if "amsgrad" in switches else ()
    return *step_count_slots(settings), _MEAN, _MEAN_SQUARE, *largest


def _update_moments(p: Parameter, gradient: jax.Array) -> Slots:
    """Returns the count of steps and both moments, after this gradient."""
    first = average(p, "exp_avg", "beta1", gradient)
    second = average_square(p, "exp_avg_sq", "beta2", gradient)
    return {**p.next_step, "exp_avg": first, "exp_avg_sq": second}


def _apply_weight_decay(p: Parameter) -> tuple[jax.Array, jax.Array | float]:
    """Returns the gradient that the moments are of, and what a decoupled weight decay adds."""
    if "decoupled" not in p.switches:
        return p.penalized_gradient, 0.0
    if "weight_decay" not in p.numbers:
        return p.gradient, 0.0
    return p.gradient, -p.numbers["lr"] * p.numbers["weight_decay"] * p.value


def _bias_corrections(
    parameter: Parameter, slots: Slots
) -> tuple[jax.Array | float, jax.Array | float]:
    if "biased" in parameter.switches:
        return 1.0, 1.0
    return compute_bias(parameter, "beta1", slots["step"]), compute_bias(
        parameter, "beta2", slots["step"]
    )


# --- Adam, AdamW ----------------------------------------------------------------------------------


def _compute_adam_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    gradient, decay = _apply_weight_decay(parameter)
    slots = _update_moments(parameter, gradient)
    first, second = _bias_corrections(parameter, slots)
    square = slots["exp_avg_sq"]
    if "amsgrad" in parameter.switches:
        square = slots["max_exp_avg_sq"] = jnp.maximum(parameter.slots["max_exp_avg_sq"], square)
    size = jnp.sqrt(square) / jnp.sqrt(second) + parameter.numbers["eps"]
    return decay - parameter.numbers["lr"] / first * slots["exp_avg"] / size, slots


ADAM = Formula(_adam_switches, _adam_numbers, _adam_slots, _compute_adam_step)

# --- LAMB (You et al., arXiv 1904.00962, algorithm 2) ---------------------------------------------


def _lamb_switches(settings: Settings) -> frozenset[str]:
    is_regularized = settings.get("decoupled_weight_decay") is False
    return _adam_switches(settings) | collect_switches(regularized=is_regularized)


def _compute_lamb_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    """Computes a step of LAMB: Adam's direction, as long as the parameter or `max_weight_norm`."""
    n, is_regularized = parameter.numbers, "regularized" in parameter.switches
    slots = _update_moments(
        parameter, parameter.penalized_gradient if is_regularized else parameter.gradient
    )
    first, second = _bias_corrections(parameter, slots)
    size = jnp.sqrt(slots["exp_avg_sq"]) / jnp.sqrt(second) + n["eps"]
    direction = slots["exp_avg"] / first / size
    if "weight_decay" in n and not is_regularized:
        direction = direction + n["weight_decay"] * parameter.value
    length = jnp.sqrt(jnp.sum(direction * direction))
    norm = jnp.minimum(jnp.sqrt(jnp.sum(parameter.value * parameter.value)), n["max_weight_norm"])
    is_zero = (norm == 0) | (length == 0)
    trust = jnp.where(is_zero, 1.0, norm / jnp.where(is_zero, 1.0, length))
    return -n["lr"] * trust * direction, slots


LAMB = Formula(
    _lamb_switches,
    lambda s: {**_adam_numbers(s), **read_numbers(s, "max_weight_norm")},
    _adam_slots,
    _compute_lamb_step,
)

# --- Adamax ---------------------------------------------------------------------------------------


def _adamax_switches(settings: Settings) -> frozenset[str]:
    return _adam_switches(settings) | collect_switches(eps_apart=settings.get("eps_apart"))


def _compute_adamax_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    """A step by the largest gradient, to which `eps` is added before it decays, or apart."""
    gradient, decay = _apply_weight_decay(parameter)
    slots, eps = parameter.next_step, parameter.numbers["eps"]
    first = slots["exp_avg"] = average(parameter, "exp_avg", "beta1", gradient)
    size = jnp.abs(gradient) if "eps_apart" in parameter.switches else jnp.abs(gradient) + eps
    largest = jnp.maximum(parameter.numbers["beta2"] * parameter.slots["exp_inf"], size)
    slots["exp_inf"] = largest
    divisor = largest + eps if "eps_apart" in parameter.switches else largest
    change = (
        -parameter.numbers["lr"] / compute_bias(parameter, "beta1", slots["step"]) * first / divisor
    )
    return change if isinstance(decay, float) else decay + change, slots


ADAMAX = Formula(
    _adamax_switches,
    _adam_numbers,
    lambda settings, switches: (*step_count_slots(settings), _MEAN, Slot("exp_inf", 2, number=2)),
    _compute_adamax_step,
)

# --- NAdam ----------------------------------------------------------------------------------------


def _compute_nadam_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    gradient, decay = _apply_weight_decay(parameter)
    n, slots = parameter.numbers, _update_moments(parameter, gradient)
    size = (
        jnp.sqrt(slots["exp_avg_sq"] / compute_bias(parameter, "beta2", slots["step"])) + n["eps"]
    )

    def momentum_at_step(step: jax.Array) -> jax.Array:
        return n["beta1"] * (1 - 0.5 * 0.96 ** (step * n["momentum_decay"]))

    current, following = momentum_at_step(slots["step"]), momentum_at_step(slots["step"] + 1)
    product = slots["mu_product"] = parameter.slots["mu_product"] * current
    fresh = gradient * ((1 - current) / (1 - product))
    ahead = slots["exp_avg"] * (following / (1 - product * following))
    return decay - n["lr"] * (fresh + ahead) / size, slots


NADAM = Formula(
    _adam_switches,
    lambda s: {**_adam_numbers(s), **read_numbers(s, "momentum_decay")},
    lambda s, switches: (*_adam_slots(s, switches), Slot("mu_product", 0, 1.0)),
    _compute_nadam_step,
)

# --- RAdam ----------------------------------------------------------------------------------------


def _one_minus_langevin(x: jax.Array) -> jax.Array:
    """Computes `1 - coth(x) + 1 / x` with all digits of float32."""
    square = x * x
    series = x * (1 / 3 - square * (1 / 45 - square * (2 / 945 - square / 4725)))
    return jnp.where(x < 0.5, 1 - series, 1 / x - 2 / jnp.expm1(2 * x))


def _compute_radam_step(parameter: Parameter) -> tuple[jax.Array, Slots]:
    """Computes a step of RAdam, whose mean has a length that is computed without cancellation.

    The mean's length is `longest - 2 * step * beta2**step / (1 - beta2**step)`, written as two
    short numbers here, of which the first is `start`: the difference of these long ones keeps four
    digits in float32.
    """
    gradient, decay = _apply_weight_decay(parameter)
    n, slots = parameter.numbers, _update_moments(parameter, gradient)
    step, longest = slots["step"], n["longest"]
    length = n["start"] + step * _one_minus_langevin(step * n["beta2_log"] / -2)
    adapts = length > 5  # before, the mean square is not to be trusted
    long = jnp.where(adapts, length, longest)
    part = (long - 4) * (long - 2) * longest / ((longest - 4) * (longest - 2) * long)
    scale = jnp.sqrt(part) * jnp.sqrt(compute_bias(parameter, "beta2", step))
    by_square = scale / (jnp.sqrt(slots["exp_avg_sq"]) + n["eps"])
    first = slots["exp_avg"] / compute_bias(parameter, "beta1", step)
    return decay - n["lr"] * first * jnp.where(adapts, by_square, 1.0), slots


def _radam_numbers(settings: Settings) -> Keywords:
    numbers = _adam_numbers(settings)
    longest = 2 / numbers["beta2_rest"] - 1
    return {**numbers, "longest": longest, "start": longest + 2 / numbers["beta2_log"]}


RADAM = Formula(_adam_switches, _radam_numbers, _adam_slots, _compute_radam_step)
