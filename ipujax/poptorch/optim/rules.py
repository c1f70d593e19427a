"""The torch optimizers as optax transformations, whose hyperparameters are data."""

from __future__ import annotations

import dataclasses as dc
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from ipujax.doors.graphs import Formula, Settings, Slot, Slots, optimizers
from ipujax.doors.torch import to_jax, to_torch
from ipujax.ground import Keywords, OptimizerStateError
from ipujax.poptorch.optim import popart_names as popart
from ipujax.poptorch.optim.attributes import Optimizer
from ipujax.poptorch.optim.lamb import LAMB
from ipujax.poptorch.optim.torch_optimizers import AdamW
from ipujax.poptorch.poptorch_checks import check
from ipujax.training import FACTOR, LossScaling, Scale, wrap_with_loss_scaling

Arrays = dict[str, jax.Array]
"""Arrays by the names of variables."""

State = dict[str, Any]
"""The state of a rule: `hyper`, the hyperparameters; `state`, the slots of each
variable by name; and with automatic loss scaling `scale`."""

FORMULAS: dict[type[torch.optim.Optimizer], Formula] = {
    torch.optim.SGD: optimizers.SGD,
    torch.optim.Adam: optimizers.ADAM,
    torch.optim.AdamW: optimizers.ADAM,
    AdamW: optimizers.ADAM,
    torch.optim.RMSprop: optimizers.RMSPROP,
    LAMB: optimizers.LAMB,
    torch.optim.Adagrad: optimizers.ADAGRAD,
    torch.optim.Adadelta: optimizers.ADADELTA,
    torch.optim.Adamax: optimizers.ADAMAX,
    torch.optim.NAdam: optimizers.NADAM,
    torch.optim.RAdam: optimizers.RADAM,
    torch.optim.ASGD: optimizers.ASGD,
    torch.optim.Rprop: optimizers.RPROP,
}
"""The formulas of the supported optimizers."""

_CLIP_EPSILON = 1e-6
"""The number that `torch.nn.utils.clip_grad_norm_` adds to a norm before it divides by it."""


class Group(NamedTuple):
    """The part of a parameter group that determines its program.

    Attributes:
      names: of the variables in it.
      switches: the switches of the formula that are on.
      maximizes: whether it is to make the loss large.
    """

    names: tuple[str, ...]
    switches: frozenset[str]
    maximizes: bool


class Types(NamedTuple):
    """The names of the dtypes in which an optimizer accumulates gradients and stores moments."""

    accumulated: str
    first: str
    second: str

    def dtype_of_slot(self, slot: Slot) -> str:
        """Returns the dtype of a slot."""
        return ("float32", self.first, self.second)[slot.order]


@dc.dataclass(frozen=True)
class Rule:
    """The rule by which a torch optimizer changes the variables of a program.

    Equal rules have the same program; only their numbers differ.

    Attributes:
      kind: the name of the optimizer's class.
      formula: of the class.
      groups: its parameter groups.
      types: of what it keeps.
      clips: whether gradients are made shorter where their norm is above `max_grad_norm`.
      names: of the variables, by the `id` of torch's parameters.
      fresh: the optimizer's settings, by group, as they were when the rule was made.
      hypers: what `read_hyperparameters` gave then.
      scaling: whether, and how, the loss is scaled automatically. There are then variables of
        `select_loss_scale_factors`, whose gradients are the balances of `pass_and_count_gradient`.
    """

    kind: str
    formula: Formula = dc.field(compare=False)
    groups: tuple[Group, ...]
    types: Types
    clips: bool
    names: Mapping[int, str] = dc.field(compare=False, repr=False)
    fresh: tuple[Settings, ...] = dc.field(compare=False, repr=False)
    hypers: dict[str, Any] = dc.field(compare=False, repr=False)
    scaling: LossScaling | None = None

    @property
    def accumulator(self) -> str:
        """The name of the dtype in which the gradients of micro-batches are added up."""
        return self.types.accumulated

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optax transformation of gradients by name, which takes the variables by name too.

        Gradients are those of the loss times `loss_scale`, and times the factor where there is
        one. Variables in no group do not change.
        """
        plain = optax.GradientTransformation(self._init_rule_state, self._compute_changes)
        return plain if self.scaling is None else wrap_with_loss_scaling(plain, self.scaling)

    def loss_scale(self, state: State) -> jax.Array:
        """Returns the factor of the loss before it is differentiated, a float32 scalar."""
        return state["hyper"]["loss_scaling"]

    def read_hyperparameters(self, optimizer: torch.optim.Optimizer) -> Keywords:
        """Reads the hyperparameters of an optimizer with this rule's structure, as arrays."""
        return _hyperparameter_arrays(self.formula, optimizer)

    # --- conversion of states ---------------------------------------------------------------------

    def load_torch_state(self, optimizer: torch.optim.Optimizer) -> State:
        """Builds a state from the optimizer's hyperparameters and torch's state of its parameters.

        Parameters without a state in torch begin anew. A state that an optimizer of
        `poptorch.optim` has loaded under PopART's names takes precedence over torch's.

        Raises:
          OptimizerStateError: (a `ValueError`) a slot has another shape than its parameter.
        """
        loaded = optimizer.loaded_state if isinstance(optimizer, Optimizer) else {}
        slots_of_variables: dict[str, Slots] = {}
        for name, parameter, slots in self._iterate_slots(optimizer):
            torch_state = {
                k: v for k, v in optimizer.state.get(parameter, {}).items() if v is not None
            }
            if torch_state:  # torch counts no steps of SGD, but keeps something only after one
                torch_state.setdefault("step", 1.0)
            slots_of_variables[name] = {}
            for slot in slots:
                value = torch_state.get(slot.name)
                if loaded:
                    value = loaded.get(popart.name_slot(slot, name), value)
                slots_of_variables[name][slot.name] = self._fill_slot(slot, name, parameter, value)
        scale = (
            {}
            if self.scaling is None
            else {"scale": Scale.make_initial_scale(loaded.get(FACTOR, 1))}
        )
        return {"hyper": self.read_hyperparameters(optimizer), "state": slots_of_variables, **scale}

    def store_torch_state(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Stores a state in torch's optimizer, so that its `state_dict` returns it.

        Torch has no state of a parameter before its first step.
        """
        for name, parameter, slots in self._iterate_slots(optimizer):
            slot_values: Slots = state["state"][name]
            if not slots or float(slot_values.get("step", 1.0)) == 0:
                optimizer.state.pop(parameter, None)
                continue
            optimizer.state[parameter] = {
                slot.name: to_torch(slot_values[slot.name]) for slot in slots
            }
        if isinstance(optimizer, Optimizer):
            ipu_state = {
                popart.name_slot(slot, name): to_torch(state["state"][name][slot.name])
                for name, _, slots in self._iterate_slots(optimizer)
                for slot in slots
            }
            if self.scaling is not None:
                ipu_state[FACTOR] = to_torch(state["scale"].factor)
            optimizer.store_ipu_state(ipu_state, self._name_hyperparameters(state))

    def _name_hyperparameters(self, state: State) -> dict[str, torch.Tensor]:
        """Returns the hyperparameters under PopART's names."""
        hyper = jax.device_get(state["hyper"])
        numbers = {
            name: {key: float(value) for key, value in group_numbers.items()}
            for group, group_numbers in zip(self.groups, hyper["groups"], strict=True)
            for name in group.names
        }
        return popart.name_numbers_for_popart(self.kind, numbers, float(hyper["loss_scaling"]))

    def adopt_state(self, state: State, old_state: State) -> State:
        """Returns a state with another state's slots, where names and shapes are equal.

        An optimizer of another structure continues with them.
        """
        slots_of_variables = {
            name: {
                slot: old.astype(new.dtype)
                if (old := old_state["state"].get(name, {}).get(slot)) is not None
                and old.shape == new.shape
                else new
                for slot, new in slots.items()
            }
            for name, slots in state["state"].items()
        }
        scale = {key: old_state.get(key, state[key]) for key in state if key == "scale"}
        return {"hyper": state["hyper"], "state": slots_of_variables, **scale}

    def _iterate_slots(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[str, torch.Tensor, tuple[Slot, ...]]]:
        """Yields each variable's name, torch's parameter, and its slots."""
        settings = _collect_settings(optimizer)
        for group, group_settings, torch_group in zip(
            self.groups, settings, optimizer.param_groups, strict=True
        ):
            slots = self.formula.slots(group_settings, group.switches)
            for parameter in torch_group["params"]:
                name = self.names.get(id(parameter))
                if name in group.names:
                    yield name, parameter, slots

    def _fill_slot(self, slot: Slot, name: str, like: torch.Tensor, value: Any) -> jax.Array:
        """Fills a slot of a variable with a value of torch's or of a file; None begins anew."""
        dtype, shape = self.types.dtype_of_slot(slot), tuple(like.shape) if slot.order else ()
        if value is None:
            return optimizers.make_initial_slot(slot, tuple(like.shape), dtype, like.is_complex())
        if slot.order and like.is_complex():
            dtype = optimizers.COMPLEX
        if isinstance(value, torch.Tensor):
            value = to_jax(value)
        if jnp.shape(value) != shape:
            raise OptimizerStateError(
                f"the optimizer's {slot.name} of {name!r} has shape {jnp.shape(value)}, but must "
                f"have {shape}",
                fix="load the state of an optimizer for a model with these parameter shapes",
            )
        return jnp.array(value, dtype)  # a copy: torch changes its tensors in place

    # --- the transformation -----------------------------------------------------------------------

    def _init_rule_state(self, params: Any) -> State:
        slots_of_variables: dict[str, Slots] = {}
        for group, settings in zip(self.groups, self.fresh, strict=True):
            slots = self.formula.slots(settings, group.switches)
            for name in group.names:
                value = params[name]
                is_complex = bool(jnp.iscomplexobj(value))
                slots_of_variables[name] = {
                    slot.name: optimizers.make_initial_slot(
                        slot, value.shape, self.types.dtype_of_slot(slot), is_complex
                    )
                    for slot in slots
                }
        return {"hyper": self.hypers, "state": slots_of_variables}

    def _compute_changes(
        self, updates: Any, state: Any, params: Any = None
    ) -> tuple[Arrays, State]:
        hyper = state["hyper"]
        gradients = self._unscale_gradients(updates, state)
        changes = {name: jnp.zeros_like(value) for name, value in params.items()}
        slots_of_variables = dict(state["state"])
        for group, numbers in zip(self.groups, hyper["groups"], strict=True):
            for name in group.names:
                if name not in gradients:
                    continue
                gradient = -gradients[name] if group.maximizes else gradients[name]
                changes[name], slots_of_variables[name] = optimizers.update_variable(
                    self.formula,
                    group.switches,
                    numbers,
                    gradient,
                    params[name],
                    slots_of_variables[name],
                )
        return changes, {"hyper": hyper, "state": slots_of_variables}

    def _unscale_gradients(self, gradients: Any, state: State) -> Arrays:
        """Removes the loss scaling from gradients, converts them to float32 and clips them.

        Gradients of complex parameters are PyTorch's, the conjugates of JAX's.
        """
        hyper = state["hyper"]
        factor = 1 / hyper["loss_scaling"]
        own_names = {name for group in self.groups for name in group.names}
        own_gradients = {name: jnp.conj(g) for name, g in gradients.items() if name in own_names}
        unscaled = {
            name: optimizers.to_float32_parts(g) * factor for name, g in own_gradients.items()
        }
        if not self.clips:
            return unscaled
        norm = optimizers.joint_norm(unscaled.values()) + _CLIP_EPSILON
        shorter = jnp.minimum(hyper["max_grad_norm"] / norm, 1.0)
        return {name: g * shorter for name, g in unscaled.items()}


def replace_state_hyperparameters(state: State, hyper: Mapping[str, object]) -> State:
    """Returns the state with other hyperparameters."""
    return {**state, "hyper": hyper}


def build_rule(
    optimizer: torch.optim.Optimizer,
    names: Mapping[int, str],
    scaling: LossScaling | None = None,
) -> Rule:
    """Builds the rule of an optimizer.

    Args:
      optimizer: one of torch's or of `poptorch.optim`; a subclass of the user's may set attributes,
        but not change the formula.
      names: the names of the variables, by the `id` of torch's parameters; parameters without a
        name, or that need no gradient, are left out.
      scaling: the settings of automatic loss scaling; None without it.

    Raises:
      PopTorchError: (a `ValueError`) an optimizer that is not known, or its parameters cannot be
        trained here.
    """
    check.require_instance(
        optimizer, torch.optim.Optimizer, "the optimizer", "an optimizer of torch.optim"
    )
    kind = find_known_class(optimizer)
    formula, settings = FORMULAS[kind], _collect_settings(optimizer)
    groups: list[Group] = []
    for group, group_settings in zip(optimizer.param_groups, settings, strict=True):
        trained = [p for p in group["params"] if p.requires_grad and id(p) in names]
        for parameter in trained:
            if not (parameter.is_floating_point() or parameter.is_complex()):
                raise check.value_error(
                    f"parameter {names[id(parameter)]!r} is {parameter.dtype}, which has no "
                    "gradient",
                    "make it a buffer, or cast it to a dtype of float or complex",
                )
        own_names = tuple(names[id(p)] for p in trained)
        groups.append(
            Group(own_names, formula.switches(group_settings), bool(group.get("maximize", False)))
        )
    return Rule(
        kind=kind.__name__,
        formula=formula,
        groups=tuple(groups),
        types=get_accumulator_dtypes(optimizer),
        clips=math.isfinite(getattr(optimizer, "max_grad_norm", math.inf)),
        names=dict(names),
        fresh=settings,
        hypers=_hyperparameter_arrays(formula, optimizer),
        scaling=scaling,
    )


def find_known_class(optimizer: torch.optim.Optimizer) -> type[torch.optim.Optimizer]:
    """Returns the supported class whose formula an optimizer has.

    Raises:
      PopTorchError: (a `ValueError`) no supported class has it.
    """
    user_class = type(optimizer)
    known_classes = [kind for kind in user_class.__mro__ if kind in FORMULAS]
    if known_classes and inspect.unwrap(user_class.step) is inspect.unwrap(known_classes[0].step):
        return known_classes[0]
    problem = (
        f"has a `step` of its own beside {known_classes[0].__name__}'s"
        if known_classes
        else "is not known"
    )
    supported = ", ".join(sorted({kind.__name__ for kind in FORMULAS}))
    raise check.value_error(
        f"the optimizer {user_class.__name__} {problem}: a program on the IPU cannot run Python's "
        "step",
        f"use one of torch.optim or poptorch.optim: {supported}",
    )


def _collect_settings(optimizer: torch.optim.Optimizer) -> tuple[Settings, ...]:
    names = ("bias_correction", "use_tf_variant")
    extra_settings = {name: getattr(optimizer, name) for name in names if hasattr(optimizer, name)}
    attributes = getattr(optimizer, "variable_attrs", None)
    changing = () if attributes is None else attributes.variable
    group_settings = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return tuple({**group, **extra_settings, "variable": changing} for group in group_settings)


def get_accumulator_dtypes(optimizer: torch.optim.Optimizer) -> Types:
    """Returns the dtypes in which an optimizer accumulates gradients and stores moments."""

    def accumulator_dtype_name(attribute: str, default: torch.dtype = torch.float32) -> str:
        return str(getattr(optimizer, attribute, default)).removeprefix("torch.")

    velocity = getattr(optimizer, "velocity_accum_type", torch.float32)
    first = accumulator_dtype_name("first_order_momentum_accum_type", velocity)
    return Types(
        accumulator_dtype_name("accum_type"),
        first,
        accumulator_dtype_name("second_order_momentum_accum_type"),
    )


def _hyperparameter_arrays(formula: Formula, optimizer: torch.optim.Optimizer) -> Keywords:
    groups = [formula.numbers(settings) for settings in _collect_settings(optimizer)]
    return jax.tree.map(
        lambda number: jnp.asarray(np.float32(number)),
        {
            "groups": groups,
            "loss_scaling": getattr(optimizer, "loss_scaling", 1.0),
            "max_grad_norm": getattr(optimizer, "max_grad_norm", math.inf),
        },
    )
