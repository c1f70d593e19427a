"""The formula by which an optimizer changes one variable, as a function of JAX."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ipujax.ground import Keywords

Settings: TypeAlias = Mapping[str, Any]
"""The settings of an optimizer for a variable, under the names that PyTorch has for them.

Numbers are floats, or arrays where they are data of the program. Beside PyTorch's names there are
`variable`, the names of those that are 0 but may become something else, and `counts_steps`, whether
formulas count steps of which they need no number; by default they do, as PyTorch's.
"""

NAMES_ON_IPU = {
    "lr": "learningRate",
    "weight_decay": "weightDecay",
    "momentum": "momentum",
    "beta1": "beta1",
    "beta2": "beta2",
    "alpha": "alpha",
    "eps": "eps",
    "max_weight_norm": "maxWeightNorm",
}
"""The names of numbers in programs on an IPU, by PyTorch's."""

Numbers: TypeAlias = Mapping[str, Any]
"""The numbers that a formula reads: arrays, or floats that are constants of the program."""

Slots: TypeAlias = dict[str, jax.Array]
"""The arrays that are kept of one variable from step to step, under PyTorch's names."""


class Slot(NamedTuple):
    """An array that is kept of a variable.

    Attributes:
      name: as in the `state` of PyTorch's optimizer.
      order: 1 or 2, of the moment that it is, as of a gradient or its square; 0 for one number,
        where moments have the variable's shape.
      initial: its value before the first step.
      number: 1 to 3, of the accumulator that it is on an IPU; 0 for the count of steps, and for
        what no IPU keeps.
    """

    name: str
    order: int = 1
    initial: float = 0.0
    number: int = 0


STEP = Slot("step", 0)
"""The number of steps so far, in float32 as PyTorch counts them."""


class Parameter(NamedTuple):
    """A parameter, its gradient and its slots at one step. All arrays are float32.

    Attributes:
      gradient: the gradient of what is to become small.
      value: the value before the step.
      slots: the slots before the step. Where `step` is not among them, no steps are counted.
      numbers: the numbers of its settings, as `Formula.numbers` names them. Where `weight_decay` is
        not among them, there is none.
      switches: the names of the switches that are on.
    """

    gradient: jax.Array
    value: jax.Array
    slots: Slots
    numbers: Numbers
    switches: frozenset[str]

    @property
    def penalized_gradient(self) -> jax.Array:
        """The gradient with that of the L2 penalty."""
        if "weight_decay" not in self.numbers:
            return self.gradient
        return self.gradient + self.numbers["weight_decay"] * self.value

    @property
    def next_step(self) -> Slots:
        """The slot that counts steps, after this one; empty where no steps are counted."""
        return {"step": self.slots["step"] + 1} if "step" in self.slots else {}


@dc.dataclass(frozen=True)
class Formula:
    """The formula of one kind of optimizer.

    Attributes:
      switches: the names of what the settings switch on, each of which is another program.
      numbers: the numbers that the formula reads, of the settings. Floats are computed with in
        double precision on the host, as `1 - 0.999` keeps four digits in float32.
      slots: what is kept of each variable.
      change: what is to be added to a variable, and its slots after the step.
    """

    switches: Callable[[Settings], frozenset[str]]
    numbers: Callable[[Settings], dict[str, Any]]
    slots: Callable[[Settings, frozenset[str]], tuple[Slot, ...]]
    change: Callable[[Parameter], tuple[jax.Array, Slots]]


def collect_switches(**switches: object) -> frozenset[str]:
    """Returns the names of the switches that are on."""
    return frozenset(name for name, is_on in switches.items() if is_on)


def step_count_slots(settings: Settings) -> tuple[Slot, ...]:
    """Returns the slot that counts steps; empty where the settings have none counted."""
    return (STEP,) if settings.get("counts_steps", True) else ()


def is_in_use(settings: Settings, name: str) -> bool:
    """Returns whether a number is other than 0, or may become so without another program."""
    return name in settings["variable"] or bool(settings[name] != 0)


def read_numbers(settings: Settings, *names: str) -> Keywords:
    """Returns the settings of these names; PyTorch has some of them as tensors of one element."""
    return {name: _read_number_setting(settings[name]) for name in names if name in settings}


def read_rate(name: str, value: object) -> Keywords:
    """Returns a moving average's rate, its complement, and a logarithm for `compute_bias`."""
    rate = _read_number_setting(value)
    numbers = {name: rate, f"{name}_rest": 1 - rate}
    if isinstance(rate, jax.Array):
        return numbers
    return {**numbers, f"{name}_log": math.log(rate) if rate > 0 else -math.inf}


def _read_number_setting(value: Any) -> float | jax.Array:
    return value if isinstance(value, jax.Array) else float(value)


def compute_bias(parameter: Parameter, name: str, step: jax.Array) -> jax.Array:
    """Computes the bias correction of a moving average after some steps: `1 - rate ** step`.

    As `expm1` computes it, all digits of float32 are right for rates next to 1, too.
    """
    logarithm = parameter.numbers.get(f"{name}_log")
    return -jnp.expm1(step * (jnp.log(parameter.numbers[name]) if logarithm is None else logarithm))


def average(p: Parameter, slot: str, name: str, sample: jax.Array) -> jax.Array:
    """Returns the moving average in a slot after one more sample."""
    mean = p.slots[slot]
    return mean + p.numbers[f"{name}_rest"] * (sample - mean)


def average_square(p: Parameter, slot: str, name: str, sample: jax.Array) -> jax.Array:
    """Returns the moving average of squares in a slot after one more sample."""
    return p.numbers[name] * p.slots[slot] + p.numbers[f"{name}_rest"] * (sample * sample)
