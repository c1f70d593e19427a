"""The base class of optimizers: hyperparameters as data of the program, slots, loss scaling."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike

from ipujax.doors.graphs import NAMES_ON_IPU, Formula, Slot, make_initial_slot, update_variable
from ipujax.ground import Keywords, PyTree
from ipujax.popart.optimizers.clipping import ClipNormSettings
from ipujax.popart.optimizers.hyperparameter_values import (
    NamedValues,
    OptimizerValue,
    OptimizerValueMap,
    parse_value,
)
from ipujax.popart.optimizers.scalars import DIVISOR, Scalar
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import DataType

Array = jax.Array
Slots = dict[str, Array]
"""The values that an optimizer keeps for a weight, by the prefix of their names."""

PREVIOUS_SCALING = "PreviousLossScaling___specific___"
PREFIXES = ("Accl___", "Accl1___", "Accl2___", "Accl3___", "Step___", PREVIOUS_SCALING)
"""The prefixes of slots' names, before the weight's name."""

LOSS_SCALING = "lossScaling"
_NAMES = {on_ipu: name for name, on_ipu in NAMES_ON_IPU.items()}


class _Plan(NamedTuple):
    """The settings and slots of a weight that the formula takes.

    Attributes:
      switches: the names of the formula's switches that are on.
      numbers: the weight's hyperparameters.
      slots: the slots, by the beginning of their names.
    """

    switches: frozenset[str]
    numbers: dict[str, Any]
    slots: dict[str, Slot]


class Hyper:
    """The hyperparameters of a weight in a step: numbers where they are constant, else arrays."""

    def __init__(self, optimizer: Optimizer, weight: str, state: Mapping[str, object]):
        self._optimizer, self._weight, self._state = optimizer, weight, state

    def __call__(self, name: str) -> Any:
        """Returns a hyperparameter, by its name without `default`."""
        values = self._optimizer.values[name]
        value = values.get_value_for_weight(self._weight)
        if value.constant:
            return value.value
        key = f"{name}/{self._weight}" if self._weight in values.specific else name
        return self._state[key]

    def may_differ_from_zero(self, name: str) -> bool:
        """Returns whether a hyperparameter is, or may become, other than 0."""
        value = self._optimizer.values[name].get_value_for_weight(self._weight)
        return not value.constant or value.value != 0


@check.guard
class Optimizer(abc.ABC):
    """A base class of optimizers, whose state holds the hyperparameters that may change.

    Attributes:
      values: the hyperparameters by name, without the prefix `default`.
      accumulator_type: the data type of accumulated gradients; UNDEFINED for the weight's.
      keeps_scaled: whether slots are scaled as the loss is.
    """

    accumulator_type: DataType = DataType.UNDEFINED
    keeps_scaled: bool = False
    defaults: ClassVar[dict[str, float]]
    positive: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[tuple[str, ...]] = (LOSS_SCALING,)  # with no `default` before their names
    older: ClassVar[dict[str, str]] = {}  # older names of values, and those that they have now
    _slot_types: tuple[DataType, ...] = ()  # of the accumulators, by their number less 1

    def __init__(self, values: NamedValues, clipping: Sequence[ClipNormSettings] = ()):
        user_values = check.require_instance(
            values, Mapping, f"the values of {type(self).__name__}"
        )
        values_by_key = {self.older.get(key, key): value for key, value in user_values.items()}
        keys = {self._user_key(name): name for name in self.defaults}
        for key in values_by_key:
            check.require_one_of(key, tuple(keys), f"a value of {type(self).__name__}")
        self.values = {
            name: OptimizerValueMap(
                self._check_hyperparameter(name, parse_value(values_by_key[key], key))
                if key in values_by_key
                else OptimizerValue(self.defaults[name])
            )
            for key, name in keys.items()
        }
        self._check_values_together({n: values.getDefault() for n, values in self.values.items()})
        self._clipping = [
            check.require_instance(settings, ClipNormSettings, "each of the clip norm settings")
            for settings in check.require_iterable(
                clipping, "clip_norm_settings", "ClipNormSettings"
            )
        ]

    def getLossScalingVal(self) -> float:
        """Returns the factor of the loss before it is differentiated."""
        return self.values[LOSS_SCALING].getDefault().value

    def learningRates(self) -> OptimizerValueMap:
        """The learning rates of all weights."""
        return self.values["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """The weight decays of all weights."""
        return self.values["weightDecay"]

    def insertSpecific(self, id: str, pyd: NamedValues) -> None:
        """Sets hyperparameters of one weight; those left out are the current defaults.

        Args:
          id: the name of the weight.
          pyd: values by name, without the prefix `default`.

        Raises:
          PopARTError: (a `ValueError`) values that cannot be, or a weight that has some already.
        """
        check.require_text(id, "the weight")
        if any(id in values.specific for values in self.values.values()):
            raise check.value_error(
                f"weight {id!r} has values of its own already", "give them all in one call"
            )
        names = tuple(name for name in self.defaults if name != LOSS_SCALING)
        for name in check.require_instance(pyd, Mapping, "the values"):
            check.require_one_of(name, names, f"a value of {type(self).__name__}.insertSpecific")
        specific_values = {
            name: self._check_hyperparameter(name, parse_value(pyd[name], name))
            if name in pyd
            else self.values[name].getDefault()
            for name in names
        }
        self._check_values_together(specific_values)
        for name, value in specific_values.items():
            self.values[name].specific[id] = value

    def check_replacement(self, replacement: object) -> None:
        """Checks that another optimizer can replace this one without compilation.

        Raises:
          PopARTError: (a `ValueError`) another kind, or constants that change.
        """
        if type(replacement) is not type(self):
            raise check.value_error(
                f"the session has {type(self).__name__}, and the new optimizer is "
                f"{type(replacement).__name__}",
                "create a session for it",
            )
        if self._list_constant_settings() != replacement._list_constant_settings():
            raise check.value_error(
                f"the new {type(self).__name__} has other settings than the session's",
                "change nothing but values that are not constant",
            )
        for name, values in self.values.items():
            values.check_replacement(replacement.values[name], name)

    def collect_variable_values(self) -> dict[str, np.ndarray]:
        """Returns the hyperparameters that may change, as float32 scalars."""
        scalars_by_name: dict[str, np.ndarray] = {}
        for name, values in self.values.items():
            if not values.getDefault().constant:
                scalars_by_name[name] = np.float32(values.getDefault().value)  # pyright: ignore
            for weight, value in values.specific.items():
                if not value.constant:
                    scalars_by_name[f"{name}/{weight}"] = np.float32(value.value)  # pyright: ignore
        return scalars_by_name

    def compute_scalars(
        self, weights: Mapping[str, str], loss: str, count: int
    ) -> dict[str, float]:
        """Computes the scalars that the original's programs read for hyperparameters, by name.

        Args:
          weights: the data types of weights, such as `"FLOAT"`, by name.
          loss: the data type of the loss, which is part of the name `lossScaling_FLOAT`.
          count: the number that a sum of gradients is divided by.
        """
        scaling = self.values[LOSS_SCALING].getDefault()
        scalars_by_name = {} if scaling.constant else {f"{LOSS_SCALING}_{loss}": scaling.value}
        divisor = OptimizerValue(scaling.value * count, scaling.constant)
        for weight, kind in weights.items():
            weight_values = {
                name: values.get_value_for_weight(weight) for name, values in self.values.items()
            }
            weight_values[DIVISOR] = divisor
            is_specific = any(weight in values.specific for values in self.values.values())
            suffix = f"specific___{weight}" if is_specific else f"default___{kind}"
            for scalar in self._select_scalars(weight_values):
                read = [weight_values[name] for name in scalar.reads]
                if not all(value.constant for value in read):
                    values = [value.value for value in read]
                    scalars_by_name[f"{scalar.name}___{suffix}"] = scalar.value(*values)
        return scalars_by_name

    def build_transformation(self) -> optax.GradientTransformation:
        """Builds the optax transformation; its state is `{"hyper": ..., "slots": ...}`.

        Slots have PopART's names, such as `Accl1___w`. Gradients come multiplied by the loss
        scaling.
        """
        return optax.GradientTransformation(self._init_state, self._update_weights)

    # --- methods of subclasses --------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def _formula(self) -> Formula:
        """The formula of the kind."""

    @abc.abstractmethod
    def _formula_settings(self, hyper: Hyper) -> Keywords:
        """The settings of a weight as the formula reads them, but those that all kinds have."""

    @abc.abstractmethod
    def _select_scalars(self, values: Mapping[str, OptimizerValue]) -> tuple[Scalar, ...]:
        """Returns the scalars of a weight with these hyperparameters; see `compute_scalars`."""

    def _check_values_together(self, values: Mapping[str, OptimizerValue]) -> None:
        """Checks that the hyperparameters of all weights, or of one weight, go together."""
        del values  # most do

    def _list_constant_settings(self) -> object:
        """Returns the settings, other than hyperparameters, that must not change."""
        return self._clipping

    # --- internals --------------------------------------------------------------------------------

    def _user_key(self, name: str) -> str:
        return name if name in self.plain else f"default{name[0].upper()}{name[1:]}"

    def _check_hyperparameter(self, name: str, value: OptimizerValue) -> OptimizerValue:
        kind = type(self).__name__
        if name == LOSS_SCALING:
            if not value.value:
                raise check.value_error(
                    "Loss scaling cannot be 0", "leave it out, or give another one"
                )
            return value
        if value.value < 0 or (name in self.positive and value.value == 0):
            sign = "Non-positive" if name in self.positive else "Negative"
            raise check.value_error(f"{sign} {name} ({value.value}) in {kind}", "give one above 0")
        if name == "learningRate" and value == (0, True):
            raise check.value_error(
                f"Constant, zero learning rate in {kind}", "give one above 0, or a variable one"
            )
        return value

    def _slot_prefix(self, slot: Slot) -> str:
        return f"Accl{slot.number}___" if slot.number else "Step___"

    def _slot_scale(self, hyper: Hyper) -> float | jax.Array:
        """Returns the factor of slots as they are stored; a mean square takes its square."""
        del hyper
        return 1.0

    def _plan_weight_update(self, hyper: Hyper) -> _Plan:
        acting = [name for name in self.values if hyper.may_differ_from_zero(name)]
        settings: dict[str, Any] = {
            **{_NAMES.get(name, name): hyper(name) for name in self.values},
            "variable": acting,
            "counts_steps": False,
            **self._formula_settings(hyper),
        }
        if "weightDecay" not in acting:
            del settings["weight_decay"]
        switches = self._formula.switches(settings)
        slots = sorted(self._formula.slots(settings, switches), key=lambda slot: slot.number or 4)
        prefixes = {self._slot_prefix(slot): slot for slot in slots}
        return _Plan(switches, self._formula.numbers(settings), prefixes)

    def _make_initial_slots(self, hyper: Hyper, weight: Array) -> Slots:
        """The slots of a weight to begin with."""
        return {
            prefix: make_initial_slot(slot, weight.shape, self._slot_dtype(slot, weight))
            for prefix, slot in self._plan_weight_update(hyper).slots.items()
        }

    def _slot_dtype(self, slot: Slot, weight: Array) -> DTypeLike:
        kind = self._slot_types[slot.number - 1] if slot.number else DataType.FLOAT
        return weight.dtype if kind is DataType.UNDEFINED else kind.value

    def _init_state(self, params: Any) -> PyTree:
        hyper = self.collect_variable_values()
        slots = {
            prefix + weight: value
            for weight, array in params.items()
            for prefix, value in self._make_initial_slots(
                Hyper(self, weight, hyper), jnp.asarray(array)
            ).items()
        }
        return {"hyper": hyper, "slots": slots}

    def _update_weights(
        self, updates: Any, state: Any, params: Any = None
    ) -> tuple[PyTree, PyTree]:
        hyper, slots = state["hyper"], dict(state["slots"])
        scale = Hyper(self, "", hyper)(LOSS_SCALING)
        gradients = {name: g.astype(jnp.float32) / scale for name, g in updates.items()}
        for settings in self._clipping:
            gradients = settings.clip_gradients(gradients)
        changes: dict[str, Array] = {}
        for name, gradient in gradients.items():
            old_slots = {
                prefix: slots[key] for prefix in PREFIXES if (key := prefix + name) in slots
            }
            change, new_slots = self._compute_weight_change(
                Hyper(self, name, hyper), gradient, params[name], old_slots
            )
            changes[name] = jnp.asarray(change, params[name].dtype)
            slots |= {prefix + name: value for prefix, value in new_slots.items()}
        return changes, {"hyper": hyper, "slots": slots}

    def _compute_weight_change(
        self, hyper: Hyper, gradient: Array, weight: Array, slots: Slots
    ) -> tuple[Array, Slots]:
        """Returns the change that is added to a weight, and the new slots of the weight."""
        plan, scale = self._plan_weight_update(hyper), self._slot_scale(hyper)
        previous: object = slots.get(PREVIOUS_SCALING, scale)
        old_slots = {
            slot.name: _scale_slot(
                slots[prefix].astype(jnp.float32), previous, -self._scale_power_of_slot(slot)
            )
            for prefix, slot in plan.slots.items()
        }
        change, new_slots = update_variable(
            self._formula, plan.switches, plan.numbers, gradient, weight, old_slots
        )
        stored_slots = {
            prefix: _scale_slot(
                new_slots[slot.name], scale, self._scale_power_of_slot(slot)
            ).astype(slots[prefix].dtype)
            for prefix, slot in plan.slots.items()
        }
        if PREVIOUS_SCALING in slots:
            stored_slots[PREVIOUS_SCALING] = jnp.asarray(scale, jnp.float32)
        return change, stored_slots

    def _scale_power_of_slot(self, slot: Slot) -> int:
        """The power of the slots' scale by which a slot is multiplied."""
        return slot.order


def _scale_slot(array: Array, scale: Any, power: int) -> Array:
    is_plain = not isinstance(scale, jax.Array) and scale == 1
    return array if is_plain else array * scale**power


def check_slot_type(kind: Any, argument_name: str) -> DataType:
    """Checks that slots may have a data type.

    Raises:
      PopARTError: (a `ValueError`) it is none of FLOAT, FLOAT16, UNDEFINED.
    """
    check.require_instance(kind, DataType, argument_name)
    names = [member.name for member in (DataType.FLOAT, DataType.FLOAT16, DataType.UNDEFINED)]
    return DataType[check.require_one_of(kind.name, names, argument_name)]
