"""Adam and its kin: steps of a gradient's mean by the root of its mean square."""

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
    bias,
    mean,
    mean_square,
    numbers_of,
    rate,
    switched,
)


def _switches(settings: Settings) -> frozenset[str]:
    return switched(
        amsgrad=settings.get("amsgrad"),
        decoupled=settings.get("decoupled_weight_decay"),
        biased=not settings.get("bias_correction", True),
    )


def _numbers(settings: Settings) -> dict[str, float]:
    first, second = settings["betas"]
    others = numbers_of(settings, "lr", "eps", "weight_decay")
    return {**others, **rate("beta1", first), **rate("beta2", second)}


def _slots(settings: Settings, on: frozenset[str]) -> tuple[Slot, ...]:
    largest = (Slot("max_exp_avg_sq", 2),) if "amsgrad" in on else ()
    return STEP, Slot("exp_avg"), Slot("exp_avg_sq", 2), *largest


def _moments(p: Parameter, gradient: jax.Array) -> Kept:
    """The count of steps and both moments, after this gradient."""
    first = mean(p, "exp_avg", "beta1", gradient)
    second = mean_square(p, "exp_avg_sq", "beta2", gradient)
    return {"step": p.kept["step"] + 1, "exp_avg": first, "exp_avg_sq": second}


def _penalized(p: Parameter) -> tuple[jax.Array, jax.Array | float]:
    """The gradient that the moments are of, and what a decoupled weight decay adds."""
    if "decoupled" not in p.on:
        return p.decayed, 0.0
    return p.gradient, -p.numbers["lr"] * p.numbers["weight_decay"] * p.value


def _corrections(p: Parameter, step: jax.Array) -> tuple[jax.Array | float, jax.Array | float]:
    if "biased" in p.on:
        return 1.0, 1.0
    return bias(p, "beta1", step), bias(p, "beta2", step)


# --- Adam, AdamW ----------------------------------------------------------------------------------


def _adam(p: Parameter) -> tuple[jax.Array, Kept]:
    gradient, decay = _penalized(p)
    kept = _moments(p, gradient)
    first, second = _corrections(p, kept["step"])
    square = kept["exp_avg_sq"]
    if "amsgrad" in p.on:
        square = kept["max_exp_avg_sq"] = jnp.maximum(p.kept["max_exp_avg_sq"], square)
    size = jnp.sqrt(square) / jnp.sqrt(second) + p.numbers["eps"]
    return decay - p.numbers["lr"] / first * kept["exp_avg"] / size, kept


ADAM = Method(_switches, _numbers, _slots, _adam)

# --- LAMB (You et al., arXiv 1904.00962, algorithm 2) ---------------------------------------------


def _lamb(p: Parameter) -> tuple[jax.Array, Kept]:
    """A step of Adam as long as the parameter itself is, or `max_weight_norm` if that is less."""
    n, kept = p.numbers, _moments(p, p.gradient)
    first, second = _corrections(p, kept["step"])
    size = jnp.sqrt(kept["exp_avg_sq"]) / jnp.sqrt(second) + n["eps"]
    direction = kept["exp_avg"] / first / size + n["weight_decay"] * p.value
    length = jnp.sqrt(jnp.sum(direction * direction))
    wanted = jnp.minimum(jnp.sqrt(jnp.sum(p.value * p.value)), n["max_weight_norm"])
    fits = (wanted == 0) | (length == 0)
    trust = jnp.where(fits, 1.0, wanted / jnp.where(fits, 1.0, length))
    return -n["lr"] * trust * direction, kept


LAMB = Method(
    _switches, lambda s: {**_numbers(s), **numbers_of(s, "max_weight_norm")}, _slots, _lamb
)

# --- Adamax ---------------------------------------------------------------------------------------


def _adamax(p: Parameter) -> tuple[jax.Array, Kept]:
    gradient, step = p.decayed, p.kept["step"] + 1
    first = mean(p, "exp_avg", "beta1", gradient)
    largest = jnp.maximum(
        p.numbers["beta2"] * p.kept["exp_inf"], jnp.abs(gradient) + p.numbers["eps"]
    )
    change = -p.numbers["lr"] / bias(p, "beta1", step) * first / largest
    return change, {"step": step, "exp_avg": first, "exp_inf": largest}


ADAMAX = Method(
    lambda settings: frozenset(),
    _numbers,
    lambda settings, on: (STEP, Slot("exp_avg"), Slot("exp_inf", 2)),
    _adamax,
)

# --- NAdam ----------------------------------------------------------------------------------------


def _nadam(p: Parameter) -> tuple[jax.Array, Kept]:
    gradient, decay = _penalized(p)
    n, kept = p.numbers, _moments(p, gradient)
    size = jnp.sqrt(kept["exp_avg_sq"] / bias(p, "beta2", kept["step"])) + n["eps"]

    def momentum(step: jax.Array) -> jax.Array:
        return n["beta1"] * (1 - 0.5 * 0.96 ** (step * n["momentum_decay"]))

    now, after = momentum(kept["step"]), momentum(kept["step"] + 1)
    product = kept["mu_product"] = p.kept["mu_product"] * now
    fresh = gradient * ((1 - now) / (1 - product))
    ahead = kept["exp_avg"] * (after / (1 - product * after))
    return decay - n["lr"] * (fresh + ahead) / size, kept


NADAM = Method(
    _switches,
    lambda s: {**_numbers(s), **numbers_of(s, "momentum_decay")},
    lambda s, on: (*_slots(s, on), Slot("mu_product", 0, 1.0)),
    _nadam,
)

# --- RAdam ----------------------------------------------------------------------------------------


def _shortfall(x: jax.Array) -> jax.Array:
    """`1 - coth(x) + 1 / x`, all digits of float32."""
    square = x * x
    series = x * (1 / 3 - square * (1 / 45 - square * (2 / 945 - square / 4725)))
    return jnp.where(x < 0.5, 1 - series, 1 / x - 2 / jnp.expm1(2 * x))


def _radam(p: Parameter) -> tuple[jax.Array, Kept]:
    """The mean's length is `longest - 2 * step * beta2**step / (1 - beta2**step)`.

    Written as two short numbers here, of which the first is `start`: the difference of these long
    ones keeps four digits in float32.
    """
    gradient, decay = _penalized(p)
    n, kept = p.numbers, _moments(p, gradient)
    step, longest = kept["step"], n["longest"]
    length = n["start"] + step * _shortfall(step * n["beta2_log"] / -2)
    adapts = length > 5  # before, the mean square is not to be trusted
    long = jnp.where(adapts, length, longest)
    part = (long - 4) * (long - 2) * longest / ((longest - 4) * (longest - 2) * long)
    scale = jnp.sqrt(part) * jnp.sqrt(bias(p, "beta2", step))
    by_square = scale / (jnp.sqrt(kept["exp_avg_sq"]) + n["eps"])
    first = kept["exp_avg"] / bias(p, "beta1", step)
    return decay - n["lr"] * first * jnp.where(adapts, by_square, 1.0), kept


def _radam_numbers(settings: Settings) -> dict[str, float]:
    numbers = _numbers(settings)
    longest = 2 / numbers["beta2_rest"] - 1
    return {**numbers, "longest": longest, "start": longest + 2 / numbers["beta2_log"]}


RADAM = Method(_switches, _radam_numbers, _slots, _radam)
