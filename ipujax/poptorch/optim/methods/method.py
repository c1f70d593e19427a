"""What an optimizer of torch does to one parameter, as a function of JAX."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

Settings: TypeAlias = Mapping[str, Any]
"""A parameter group without its parameters, and the optimizer's own attributes beside it.

`variable` is in it too: the names of those attributes that PopTorch was told will change.
"""

Kept: TypeAlias = dict[str, jax.Array]
"""What is kept of one parameter from step to step, under torch's names."""


class Slot(NamedTuple):
    """A thing to keep.

    Attributes:
      name: as in the `state` of torch's optimizer.
      order: 1 or 2, of the moment that it is, as of a gradient or its square; 0 for one number,
        where moments have the parameter's shape.
      initial: what it is before the first step.
    """

    name: str
    order: int = 1
    initial: float = 0.0


STEP = Slot("step", 0)
"""How many steps there were, as torch counts them: in float32."""


class Parameter(NamedTuple):
    """A parameter at one step. All arrays are float32.

    Attributes:
      gradient: of what is to become small.
      value: before the step.
      kept: before it too.
      numbers: of its group, as `Method.numbers` names them.
      on: the switches of its group that are on.
    """

    gradient: jax.Array
    value: jax.Array
    kept: Kept
    numbers: Mapping[str, jax.Array]
    on: frozenset[str]

    @property
    def decayed(self) -> jax.Array:
        """The gradient with that of the L2 penalty."""
        return self.gradient + self.numbers["weight_decay"] * self.value


@dc.dataclass(frozen=True)
class Method:
    """One kind of optimizer.

    Attributes:
      switches: the names of what a group's settings switch on, each of which is another program.
      numbers: what the formula reads of a group's settings; made on the host in double precision,
        as `1 - 0.999` keeps four digits in float32.
      slots: what it keeps of each parameter of a group.
      change: what is to be added to a parameter, and what is kept of it after.
    """

    switches: Callable[[Settings], frozenset[str]]
    numbers: Callable[[Settings], dict[str, float]]
    slots: Callable[[Settings, frozenset[str]], tuple[Slot, ...]]
    change: Callable[[Parameter], tuple[jax.Array, Kept]]


def switched(**switches: Any) -> frozenset[str]:
    """The names of the switches that are on."""
    return frozenset(name for name, on in switches.items() if on)


def in_use(settings: Settings, name: str) -> bool:
    """Whether a number is other than 0, or may become so without another program."""
    return bool(settings[name] != 0) or name in settings["variable"]


def numbers_of(settings: Settings, *names: str) -> dict[str, float]:
    """The settings of these names, which torch also takes as tensors of one element."""
    return {name: float(settings[name]) for name in names}


def rate(name: str, value: Any) -> dict[str, float]:
    """A moving average's rate, its complement, and its logarithm for `bias`."""
    kept = float(value)
    logarithm = math.log(kept) if kept > 0 else -math.inf
    return {name: kept, f"{name}_rest": 1 - kept, f"{name}_log": logarithm}


def bias(p: Parameter, name: str, step: jax.Array) -> jax.Array:
    """What a moving average over some steps lacks to be one: `1 - rate ** step`.

    As `expm1` computes it, all digits of float32 are right for rates next to 1, too.
    """
    return -jnp.expm1(step * p.numbers[f"{name}_log"])


def mean(p: Parameter, slot: str, name: str, sample: jax.Array) -> jax.Array:
    """The moving average after one more sample."""
    before = p.kept[slot]
    return before + p.numbers[f"{name}_rest"] * (sample - before)


def mean_square(p: Parameter, slot: str, name: str, sample: jax.Array) -> jax.Array:
    """The moving average of squares after one more sample."""
    return p.numbers[name] * p.kept[slot] + p.numbers[f"{name}_rest"] * (sample * sample)
