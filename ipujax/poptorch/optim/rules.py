"""Optimizers of torch as optax transformations, whose hyperparameters are data."""

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

from ipujax.doors.graphs import optimizers
from ipujax.doors.graphs.optimizers import Formula, Settings, Slot, Slots
from ipujax.errors import OptimizerStateError
from ipujax.frontends.pytorch.arrays import to_jax, to_torch
from ipujax.poptorch.checks import check
from ipujax.poptorch.optim import popart
from ipujax.poptorch.optim.attributes import Optimizer
from ipujax.poptorch.optim.lamb import LAMB
from ipujax.poptorch.optim.optimizers import AdamW
from ipujax.training.loss_scaling import FACTOR, LossScaling, Scale, scaled

Arrays = dict[str, jax.Array]
"""Arrays by the names of variables."""

State = dict[str, Any]
"""Of a rule: `hyper`, the hyperparameters; `state`, what is kept of each variable by name; and
with automatic loss scaling `scale`."""

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
"""The optimizers that are known."""

_CLIP_EPSILON = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to a norm before it divides by it."""


class Group(NamedTuple):
    """What decides the program of a parameter group.

    Attributes:
      names: of the variables in it.
      on: the switches of the formula that are on.
      maximizes: whether it is to make the loss large.
    """

    names: tuple[str, ...]
    on: frozenset[str]
    maximizes: bool


class Types(NamedTuple):
    """The names of the dtypes in which an optimizer adds up gradients and keeps their moments."""

    accumulated: str
    first: str
    second: str

    def of(self, slot: Slot) -> str:
        """The dtype of what is kept in a slot."""
        return ("float32", self.first, self.second)[slot.order]


@dc.dataclass(frozen=True)
class Rule:
    """How an optimizer of torch changes the variables of a program.

    Two rules that are equal have the same program; only their numbers differ.

    Attributes:
      kind: the name of the optimizer's class.
      formula: of the class.
      groups: its parameter groups.
      types: of what it keeps.
      clips: whether gradients are made shorter where their norm is above `max_grad_norm`.
      names: of the variables, by the `id` of torch's parameters.
      fresh: the optimizer's settings, by group, as they were when the rule was made.
      hypers: what `hyper` gave then.
      scaling: whether, and how, the loss is scaled automatically. There are then variables of
        `factors_in`, whose gradients are the balances that `counted` gives.
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
        """An optax transformation of gradients by name, which takes the variables by name too.

        Gradients are those of the loss times `loss_scale`, and times the factor where there is
        one. Variables in no group do not change.
        """
        plain = optax.GradientTransformation(self._init, self._update)
        return plain if self.scaling is None else scaled(plain, self.scaling)

    def loss_scale(self, state: State) -> jax.Array:
        """By what the loss is to be multiplied before it is differentiated, a float32 scalar."""
        return state["hyper"]["loss_scaling"]

    def hyper(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The hyperparameters of an optimizer that has this rule's structure, as arrays."""
        return _hyper(self.formula, optimizer)

    # --- between torch and here -------------------------------------------------------------------

    def from_torch(self, optimizer: torch.optim.Optimizer) -> State:
        """A state with the optimizer's hyperparameters and what torch keeps of its parameters.

        Parameters of which torch keeps nothing begin anew. What an optimizer of `poptorch.optim`
        has loaded under PopART's names counts before what torch keeps.

        Raises:
          OptimizerStateError: (a `ValueError`) something kept has another shape than the parameter.
        """
        loaded = optimizer.loaded_state if isinstance(optimizer, Optimizer) else {}
        kept: dict[str, Slots] = {}
        for name, parameter, slots in self._slots(optimizer):
            told = {k: v for k, v in optimizer.state.get(parameter, {}).items() if v is not None}
            if told:  # torch counts no steps of SGD, but keeps something only after one
                told.setdefault("step", 1.0)
            kept[name] = {}
            for slot in slots:
                value = told.get(slot.name)
                if loaded:
                    value = loaded.get(popart.name_slot(slot, name), value)
                kept[name][slot.name] = self._filled(slot, name, parameter, value)
        scale = {} if self.scaling is None else {"scale": Scale.begin(loaded.get(FACTOR, 1))}
        return {"hyper": self.hyper(optimizer), "state": kept, **scale}

    def to_torch(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Makes torch's optimizer keep what a state has, so that `state_dict` gives it.

        Torch keeps nothing of a parameter before its first step.
        """
        for name, parameter, slots in self._slots(optimizer):
            kept: Slots = state["state"][name]
            if not slots or float(kept.get("step", 1.0)) == 0:
                optimizer.state.pop(parameter, None)
                continue
            optimizer.state[parameter] = {slot.name: to_torch(kept[slot.name]) for slot in slots}
        if isinstance(optimizer, Optimizer):
            ipu_state = {
                popart.name_slot(slot, name): to_torch(state["state"][name][slot.name])
                for name, _, slots in self._slots(optimizer)
                for slot in slots
            }
            if self.scaling is not None:
                ipu_state[FACTOR] = to_torch(state["scale"].factor)
            optimizer.keep(ipu_state, self._named(state))

    def _named(self, state: State) -> dict[str, torch.Tensor]:
        """The hyperparameters under PopART's names."""
        hyper = jax.device_get(state["hyper"])
        numbers = {
            name: {key: float(value) for key, value in own.items()}
            for group, own in zip(self.groups, hyper["groups"], strict=True)
            for name in group.names
        }
        return popart.parameters(self.kind, numbers, float(hyper["loss_scaling"]))

    def adopted(self, state: State, before: State) -> State:
        """A state with what another one keeps under the same names, in the same shapes.

        For an optimizer of another structure, that is to go on where the last one was.
        """
        kept = {
            name: {
                slot: old.astype(new.dtype)
                if (old := before["state"].get(name, {}).get(slot)) is not None
                and old.shape == new.shape
                else new
                for slot, new in slots.items()
            }
            for name, slots in state["state"].items()
        }
        scale = {key: before.get(key, state[key]) for key in state if key == "scale"}
        return {"hyper": state["hyper"], "state": kept, **scale}

    def _slots(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[str, torch.Tensor, tuple[Slot, ...]]]:
        """Each variable's name, torch's parameter, and what is kept of it."""
        settings = _settings(optimizer)
        for group, own, raw in zip(self.groups, settings, optimizer.param_groups, strict=True):
            slots = self.formula.slots(own, group.on)
            for parameter in raw["params"]:
                name = self.names.get(id(parameter))
                if name in group.names:
                    yield name, parameter, slots

    def _filled(self, slot: Slot, name: str, like: torch.Tensor, value: Any) -> jax.Array:
        """A slot of a variable, of what torch or a file has for it, or None."""
        dtype, shape = self.types.of(slot), tuple(like.shape) if slot.order else ()
        if value is None:
            return optimizers.begin_slot(slot, tuple(like.shape), dtype, like.is_complex())
        if slot.order and like.is_complex():
            dtype = optimizers.COMPLEX
        if isinstance(value, torch.Tensor):
            value = to_jax(value)
        if jnp.shape(value) != shape:
            raise OptimizerStateError(
                f"the optimizer's {slot.name} of {name!r} has shape {jnp.shape(value)}, but must "
                f"have {shape}",
                fix="load a state of an optimizer of the same module",
            )
        return jnp.array(value, dtype)  # a copy: torch changes its tensors in place

    # --- the transformation -----------------------------------------------------------------------

    def _init(self, params: Any) -> State:
        kept: dict[str, Slots] = {}
        for group, settings in zip(self.groups, self.fresh, strict=True):
            slots = self.formula.slots(settings, group.on)
            for name in group.names:
                value = params[name]
                is_complex = bool(jnp.iscomplexobj(value))
                kept[name] = {
                    slot.name: optimizers.begin_slot(
                        slot, value.shape, self.types.of(slot), is_complex
                    )
                    for slot in slots
                }
        return {"hyper": self.hypers, "state": kept}

    def _update(self, updates: Any, state: Any, params: Any = None) -> tuple[Arrays, State]:
        hyper = state["hyper"]
        gradients = self._unscaled(updates, state)
        changes = {name: jnp.zeros_like(value) for name, value in params.items()}
        kept = dict(state["state"])
        for group, numbers in zip(self.groups, hyper["groups"], strict=True):
            for name in group.names:
                if name not in gradients:
                    continue
                gradient = -gradients[name] if group.maximizes else gradients[name]
                changes[name], kept[name] = optimizers.update_variable(
                    self.formula, group.on, numbers, gradient, params[name], kept[name]
                )
        return changes, {"hyper": hyper, "state": kept}

    def _unscaled(self, gradients: Any, state: State) -> Arrays:
        """The gradients of the loss itself, in float32, no longer than they may be.

        Those of complex parameters are as PyTorch has them, the conjugates of JAX's.
        """
        hyper = state["hyper"]
        factor = 1 / hyper["loss_scaling"]
        mine = {name for group in self.groups for name in group.names}
        own = {name: jnp.conj(g) for name, g in gradients.items() if name in mine}
        found = {name: optimizers.to_single(g) * factor for name, g in own.items()}
        if not self.clips:
            return found
        norm = optimizers.joint_norm(found.values()) + _CLIP_EPSILON
        shorter = jnp.minimum(hyper["max_grad_norm"] / norm, 1.0)
        return {name: g * shorter for name, g in found.items()}


def with_hyper(state: State, hyper: Mapping[str, Any]) -> State:
    """The state with other hyperparameters, as `Rule.hyper` gives them."""
    return {**state, "hyper": hyper}


def rule_of(
    optimizer: torch.optim.Optimizer,
    names: Mapping[int, str],
    scaling: LossScaling | None = None,
) -> Rule:
    """The rule of an optimizer.

    Args:
      optimizer: one of torch's or of `poptorch.optim`; a class of your own that derives from them
        may set attributes, but no formula.
      names: of the variables, by the `id` of torch's parameters; parameters without a name, or
        that need no gradient, are left out.
      scaling: how the loss is scaled automatically; None for not at all.

    Raises:
      PopTorchError: (a `ValueError`) an optimizer that is not known, or its parameters cannot be
        trained here.
    """
    check.instance(optimizer, torch.optim.Optimizer, "the optimizer", "an optimizer of torch.optim")
    kind = kind_of(optimizer)
    formula, settings = FORMULAS[kind], _settings(optimizer)
    groups: list[Group] = []
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        trained = [p for p in group["params"] if p.requires_grad and id(p) in names]
        for parameter in trained:
            if not (parameter.is_floating_point() or parameter.is_complex()):
                raise check.refuse(
                    f"parameter {names[id(parameter)]!r} is {parameter.dtype}, which has no "
                    "gradient",
                    "make it a buffer, or cast it to a dtype of float or complex",
                )
        mine = tuple(names[id(p)] for p in trained)
        groups.append(Group(mine, formula.switches(own), bool(group.get("maximize", False))))
    return Rule(
        kind=kind.__name__,
        formula=formula,
        groups=tuple(groups),
        types=dtypes_of(optimizer),
        clips=math.isfinite(getattr(optimizer, "max_grad_norm", math.inf)),
        names=dict(names),
        fresh=settings,
        hypers=_hyper(formula, optimizer),
        scaling=scaling,
    )


def kind_of(optimizer: torch.optim.Optimizer) -> type[torch.optim.Optimizer]:
    """The known class whose formula an optimizer has.

    Raises:
      PopTorchError: (a `ValueError`) there is none.
    """
    own = type(optimizer)
    known = [kind for kind in own.__mro__ if kind in FORMULAS]
    if known and inspect.unwrap(own.step) is inspect.unwrap(known[0].step):
        return known[0]
    what = f"has a `step` of its own beside {known[0].__name__}'s" if known else "is not known"
    listed = ", ".join(sorted({kind.__name__ for kind in FORMULAS}))
    raise check.refuse(
        f"the optimizer {own.__name__} {what}: a program on the IPU cannot run Python's step",
        f"use one of torch.optim or poptorch.optim: {listed}",
    )


def _settings(optimizer: torch.optim.Optimizer) -> tuple[Settings, ...]:
    names = ("bias_correction", "use_tf_variant")
    own = {name: getattr(optimizer, name) for name in names if hasattr(optimizer, name)}
    attributes = getattr(optimizer, "variable_attrs", None)
    changing = () if attributes is None else attributes.variable
    raw = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return tuple({**group, **own, "variable": changing} for group in raw)


def dtypes_of(optimizer: torch.optim.Optimizer) -> Types:
    """The dtypes in which an optimizer adds up gradients and keeps their moments."""

    def name(attribute: str, default: torch.dtype = torch.float32) -> str:
        return str(getattr(optimizer, attribute, default)).removeprefix("torch.")

    velocity = getattr(optimizer, "velocity_accum_type", torch.float32)
    first = name("first_order_momentum_accum_type", velocity)
    return Types(name("accum_type"), first, name("second_order_momentum_accum_type"))


def _hyper(formula: Formula, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    groups = [formula.numbers(settings) for settings in _settings(optimizer)]
    return jax.tree.map(
        lambda number: jnp.asarray(np.float32(number)),
        {
            "groups": groups,
            "loss_scaling": getattr(optimizer, "loss_scaling", 1.0),
            "max_grad_norm": getattr(optimizer, "max_grad_norm", math.inf),
        },
    )
