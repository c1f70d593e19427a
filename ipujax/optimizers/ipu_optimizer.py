"""The wrapper that all optimizers derive from, and the two moments of a training step."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import optax

from ipujax.errors import IPUError
from ipujax.optimizers.trained_leaves import (
    check,
    check_gradients,
    is_trained,
    map_trained,
    step_trained,
)


@check.guard
class IpuOptimizer(optax.GradientTransformationExtraArgs):
    """Wraps an optax transformation, passes everything on to it, and is one itself.

    Wrappers of your own derive from this class and override `compute_gradients` (done for each
    mini-batch), `apply_gradients` (done once per update) or `init`. Where the original took a
    variable, there is the explicit state of optax. Leaves of the variables that are neither of
    float nor of complex have no gradient: in their places stands `optax.MaskedNode()`.

    Args:
      opt: an `optax.GradientTransformation`, or any object with its `init` and `update`.
      name: a named scope for what applying gradients computes; none by default.

    Raises:
      OptimizerTypeError: (a `TypeError`) `opt` is no transformation.

    Attributes:
      wrapped: `opt`.
      name: as given.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A pair of functions, which is what optax takes apart, that call the methods."""
        del args, kwargs
        made: list[IpuOptimizer] = []

        def init(params: Any) -> Any:
            return made[0].init(params)

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
            return made[0].update(updates, state, params, **extra)

        made.append(super().__new__(cls, init, update))
        return made[0]

    def __init__(self, opt: Any, name: str | None = None):
        self.wrapped: Any = checked_transformation(opt, type(self).__name__)
        self.name = check.text(name, f"the name of {type(self).__name__}", optional=True)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return ()  # copies get functions of their own

    def __repr__(self) -> str:
        inner = repr(self.wrapped) if isinstance(self.wrapped, IpuOptimizer) else self.get_name()
        return f"{type(self).__name__}({inner})"

    def init(self, params: Any) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The initial state, for parameters of any structure: the wrapped one's."""
        return self.wrapped.init(params)

    def update(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> Any:
        """One step with the gradients of one mini-batch: `compute_gradients`, `apply_gradients`.

        Args:
          updates: gradients, in the structure of the parameters; leaves may be None.
          state: of this optimizer.
          params: the parameters, if the wrapped transformation wants them.
          extra: handed on; dropped where a transformation takes none, as `optax.chain` does.

        Returns:
          `(updates, state)`; the updates are for `optax.apply_updates`.
        """
        gradients = compute_gradients(self, updates, params)
        return apply_gradients(self, gradients, state, params, **extra)

    def compute_gradients(self, gradients: Any, variables: Any, *args: Any, **kwargs: Any) -> Any:
        """Maps the gradients of one mini-batch: here, as the wrapped optimizer does.

        Args:
          gradients: in the structure of the variables; leaves may be None.
          variables: the parameters; None if nobody gave any.
          args: further arguments for wrappers that take some.
          kwargs: the same by keyword.

        Returns:
          Gradients of the same structure and shapes.

        Raises:
          OptimizerTypeError: (a `TypeError`) further arguments that nothing takes.
          OptimizerError: (a `ValueError`) gradients that do not belong to the variables.
        """
        check_gradients(f"compute_gradients of {type(self).__name__}", gradients, variables)
        return compute_gradients(self.wrapped, gradients, variables, *args, **kwargs)

    def apply_gradients(self, gradients: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        """Turns gradients into updates: `update` without `compute_gradients`.

        Args:
          gradients: mapped already, of one mini-batch or of several.
          state: of this optimizer.
          params: the parameters, if the wrapped transformation wants them.
          extra: as in `update`.

        Returns:
          `(updates, state)`.

        Raises:
          OptimizerError: (a `ValueError`) gradients whose names, shapes or kinds of numbers are not
            those of `params`, or a state that is not of this optimizer.
        """
        check_gradients(f"apply_gradients of {type(self).__name__}", gradients, params)
        if not takes_extra_args(self.wrapped):
            extra = {}
        return apply_gradients(self.wrapped, gradients, state, params, **extra)

    def wrapped_state(self, state: Any) -> Any:
        """The part of this optimizer's state that is the wrapped one's: all of it, here."""
        return state

    def get_name(self) -> str:
        """The name of the function that made the innermost transformation.

        Optax gives its transformations no names of their own: `optax.adam(0.1)` is a `chain`.
        """
        if isinstance(self.wrapped, IpuOptimizer):
            return self.wrapped.get_name()
        return _name_of(self.wrapped)

    def get_slot(self, state: Any, name: str) -> Any:
        """What the innermost transformation keeps under a name.

        Args:
          state: of this optimizer; the original kept it in variables.
          name: a field of one of the named tuples that optax's states are, such as `trace`.

        Returns:
          The field, usually a pytree like the parameters; None if there is none.

        Raises:
          OptimizerError: (a `ValueError`) there are several of that name.
        """
        slots = [value for field, value in self._slots(state) if field == name]
        if len(slots) > 1:
            raise check.refuse(
                f"{len(slots)} parts of the optimizer's state have a slot {name!r}",
                "choose one with optax.tree_utils.tree_get and its `filtering`",
            )
        return slots[0] if slots else None

    def get_slot_names(self, state: Any) -> list[str]:
        """The names that `get_slot` takes, such as `["count", "mu", "nu"]` for Adam.

        Args:
          state: of this optimizer.
        """
        return list(dict.fromkeys(field for field, _ in self._slots(state)))

    def variables(self, state: Any) -> list[Any]:
        """All arrays of the innermost transformation's state.

        Args:
          state: of this optimizer.
        """
        inner = self.wrapped_state(state)
        if isinstance(self.wrapped, IpuOptimizer):
            return self.wrapped.variables(inner)
        return jax.tree.leaves(inner)

    def _slots(self, state: Any) -> list[tuple[str, Any]]:
        inner = self.wrapped_state(state)
        if isinstance(self.wrapped, IpuOptimizer):
            return self.wrapped._slots(inner)
        return list(_fields(inner))


@check.guard
def compute_gradients(opt: Any, gradients: Any, variables: Any, *args: Any, **kwargs: Any) -> Any:
    """The first moment of a step: maps the gradients of one mini-batch.

    Args:
      opt: an `IpuOptimizer`, or a transformation of optax, which leaves them as they are.
      gradients: in the structure of the variables; leaves may be None.
      variables: the parameters, or None.
      args: further arguments of the optimizer's `compute_gradients`.
      kwargs: the same by keyword.

    Returns:
      Gradients of the same structure.

    Raises:
      OptimizerTypeError: (a `TypeError`) further arguments for a transformation of optax.
    """
    if isinstance(opt, IpuOptimizer):

        def mapped(gradients: Any, variables: Any) -> Any:
            return opt.compute_gradients(gradients, variables, *args, **kwargs)

        return map_trained(mapped, gradients, variables)
    if args or kwargs:
        raise check.refuse_type(
            f"compute_gradients was given {_listed(args, kwargs)}, but a transformation of optax "
            "computes no gradients and takes no arguments for it",
            "leave them out, or derive from IpuOptimizer and override compute_gradients",
        )
    return gradients


@check.guard
def apply_gradients(
    opt: Any, gradients: Any, state: Any, params: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """The second moment of a step: turns gradients into updates, without mapping them (again).

    Args:
      opt: an `IpuOptimizer`, or a transformation of optax.
      gradients: in the structure of the parameters.
      state: of `opt`.
      params: the parameters, or None.
      args: further arguments of an `IpuOptimizer`'s `apply_gradients`.
      kwargs: the same by keyword; for optax, extra arguments of `update`.

    Returns:
      `(updates, state)`.

    Raises:
      OptimizerTypeError: (a `TypeError`) further arguments that the transformation does not take.
      OptimizerError: (a `ValueError`) gradients or a state that do not belong to the variables.
    """
    check_gradients(f"apply_gradients of {_name_of(opt)}", gradients, params)
    if isinstance(opt, IpuOptimizer):

        def apply(gradients: Any, state: Any, params: Any) -> Any:
            with jax.named_scope(opt.name) if opt.name else contextlib.nullcontext():
                return opt.apply_gradients(gradients, state, params, *args, **kwargs)

        return step_trained(apply, opt, gradients, state, params)
    checked_transformation(opt, "apply_gradients")
    if args or (kwargs and not takes_extra_args(opt)):
        raise check.refuse_type(
            f"apply_gradients was given {_listed(args, kwargs)}, which the update of this "
            "transformation of optax does not take",
            "leave them out, or use an optax.GradientTransformationExtraArgs and keywords",
        )

    def update(gradients: Any, state: Any, params: Any) -> Any:
        try:
            return opt.update(gradients, state, params, **kwargs)
        except (IPUError, jax.errors.JAXTypeError):
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise check.refuse(
                f"the update of {_name_of(opt)} failed ({type(error).__name__}: {error})",
                "give gradients in the structure of the variables, and the state that "
                "opt.init(variables) of this very optimizer gives"
                + (", and the variables, as `params`" if params is None else ""),
            ) from error

    return step_trained(update, opt, gradients, state, params)


def checked_transformation(opt: Any, wrapper: str) -> Any:
    """What an optimizer wraps: an optax transformation, or anything that has its two functions."""
    functions = (getattr(opt, name, None) for name in ("init", "update"))
    if not isinstance(opt, type) and all(map(callable, functions)):
        return opt
    called = " it is a function, which may still have to be called:" if callable(opt) else ""
    raise check.refuse_type(
        f"{wrapper} wraps an optax.GradientTransformation, not {opt!r}, of type "
        f"{type(opt).__name__}",
        f"give an optimizer of optax:{called} {wrapper}(optax.sgd(0.01), ...)",
    )


def takes_extra_args(opt: Any) -> bool:
    """Whether the transformation's update takes optax's extra keyword arguments."""
    if isinstance(opt, optax.GradientTransformation):
        return isinstance(opt, optax.GradientTransformationExtraArgs)
    try:
        parameters = inspect.signature(opt.update).parameters.values()
    except (TypeError, ValueError):  # builtins may hide their signature
        return False
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


@check.guard
def maps_gradients(opt: Any) -> bool:
    """Whether `compute_gradients` of this optimizer does anything.

    What is inside another transformation of optax, such as `optax.chain`, cannot be seen; it acts
    once per update.
    """
    if not isinstance(opt, IpuOptimizer):
        return False
    overridden = type(opt).compute_gradients is not IpuOptimizer.compute_gradients
    return overridden or maps_gradients(opt.wrapped)


def _name_of(opt: Any) -> str:
    """The name of an optimizer for messages."""
    if isinstance(opt, IpuOptimizer):
        return type(opt).__name__
    function = getattr(opt.update, "__func__", opt.update) if hasattr(opt, "update") else opt
    return getattr(function, "__qualname__", type(opt).__name__).partition(".")[0]


def is_none(leaf: object) -> bool:
    """Whether there is no gradient in this place."""
    return leaf is None


def map_gradients(function: Any, gradients: Any, *others: Any) -> Any:
    """`jax.tree.map` over gradients; None, and what is no number of float or complex, stays."""

    def apply(gradient: Any, *rest: Any) -> Any:
        if gradient is None or not is_trained(gradient):
            return gradient
        return function(gradient, *rest)

    return jax.tree.map(
        apply,
        gradients,
        *others,
        is_leaf=is_none,
    )


def _listed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    count = len(args)
    positional = [f"{count} further positional argument{'' if count == 1 else 's'}"] if args else []
    return " and ".join([*positional, *(f"`{name}`" for name in kwargs)])


def is_state(node: Any) -> bool:
    """Whether a part of a state is one of optax's own named tuples, and not of the parameters'."""
    named = isinstance(node, tuple) and hasattr(node, "_fields")
    return named and type(node).__name__.endswith("State")


def _fields(state: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the innermost states' fields, in the order of the state."""
    for node in jax.tree.leaves(state, is_leaf=is_state):
        if not is_state(node):
            continue
        for name, value in zip(node._fields, node, strict=True):
            inner = jax.tree.leaves(value, is_leaf=is_state)
            if any(map(is_state, inner)):
                yield from _fields(value)
            elif inner:
                yield name, value
