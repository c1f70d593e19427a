"""The wrapper that all optimizers derive from, and the two parts of a training step."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import optax

from ipujax.ground import IPUError, PyTree
from ipujax.optimizers.trained_leaves import (
    check,
    check_gradients,
    has_gradient,
    is_none,
    map_trained_gradients,
    run_step_on_trained,
)


@check.guard
class IpuOptimizer(optax.GradientTransformationExtraArgs):
    """An optax transformation that wraps another one and passes everything on to it.

    Your own wrappers derive from this class and override `compute_gradients` (done for each
    mini-batch), `apply_gradients` (done once per update) or `init`. The explicit state of
    optax replaces the variables of the original. Leaves of the variables that are neither of float
    nor of complex have no gradient: they are replaced by `optax.MaskedNode()`.

    Args:
      opt: an `optax.GradientTransformation`, or any object with its `init` and `update`.
      name: the named scope of applying gradients; none by default.

    Raises:
      OptimizerTypeError: (a `TypeError`) `opt` is no transformation.

    Attributes:
      wrapped: `opt`.
      name: the named scope of applying gradients.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns an optax pair of functions that call the methods."""
        del args, kwargs
        instances: list[IpuOptimizer] = []

        def call_init(params: PyTree) -> PyTree:
            return instances[0].init(params)

        def call_update(
            updates: PyTree, state: PyTree, params: PyTree = None, **extra: object
        ) -> PyTree:
            return instances[0].update(updates, state, params, **extra)

        instances.append(super().__new__(cls, call_init, call_update))
        return instances[0]

    def __init__(self, opt: optax.GradientTransformation, name: str | None = None):
        self.wrapped: Any = check_transformation(opt, type(self).__name__)
        self.name = check.require_text(name, f"the name of {type(self).__name__}", optional=True)

    def __getnewargs__(self) -> tuple[PyTree, ...]:
        return ()  # copies get functions of their own

    def __repr__(self) -> str:
        wrapped_text = (
            repr(self.wrapped) if isinstance(self.wrapped, IpuOptimizer) else self.get_name()
        )
        return f"{type(self).__name__}({wrapped_text})"

    def init(self, params: PyTree) -> PyTree:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Returns the initial state of the wrapped optimizer, for parameters of any structure."""
        return self.wrapped.init(params)

    def update(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, updates: PyTree, state: PyTree, params: PyTree = None, **extra: object
    ) -> PyTree:
        """Makes one step: `compute_gradients`, then `apply_gradients`.

        Args:
          updates: gradients, in the structure of the parameters; leaves may be None.
          state: the state of this optimizer.
          params: the parameters, if the wrapped transformation wants them.
          extra: passed on; dropped where a transformation takes none, as `optax.chain` does.

        Returns:
          `(updates, state)`; the updates are for `optax.apply_updates`.
        """
        gradients = compute_gradients(self, updates, params)
        return apply_gradients(self, gradients, state, params, **extra)

    def compute_gradients(
        self, gradients: PyTree, variables: PyTree, *args: Any, **kwargs: Any
    ) -> PyTree:
        """Maps the gradients of one mini-batch, by default as the wrapped optimizer does.

        Args:
          gradients: in the structure of the variables; leaves may be None.
          variables: the parameters; None if `update` got none.
          args: further arguments for wrappers that take some.
          kwargs: the same by keyword.

        Returns:
          Gradients of the same structure and shapes.

        Raises:
          OptimizerTypeError: (a `TypeError`) further arguments that no wrapped optimizer takes.
          OptimizerError: (a `ValueError`) gradients that do not belong to the variables.
        """
        check_gradients(f"compute_gradients of {type(self).__name__}", gradients, variables)
        return compute_gradients(self.wrapped, gradients, variables, *args, **kwargs)

    def apply_gradients(
        self, gradients: PyTree, state: PyTree, params: PyTree = None, **extra: object
    ) -> PyTree:
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

    def state_of_wrapped_optimizer(self, state: PyTree) -> PyTree:
        """Returns the wrapped optimizer's part of this optimizer's state: by default all of it."""
        return state

    def get_name(self) -> str:
        """Returns the name of the function that made the innermost transformation.

        Optax's transformations have no names of their own: `optax.adam(0.1)` is a `chain`.
        """
        if isinstance(self.wrapped, IpuOptimizer):
            return self.wrapped.get_name()
        return _name_of_optimizer(self.wrapped)

    def get_slot(self, state: PyTree, name: str) -> PyTree:
        """Returns a field of the innermost transformation's state, by its name.

        Args:
          state: the state of this optimizer; the original kept it in variables.
          name: a field of one of the named tuples that optax's states are, such as `trace`.

        Returns:
          The field, usually a pytree like the parameters; None if there is none.

        Raises:
          OptimizerError: (a `ValueError`) several fields have that name.
        """
        slots = [value for field, value in self._list_slots(state) if field == name]
        if len(slots) > 1:
            raise check.value_error(
                f"{len(slots)} parts of the optimizer's state have a slot {name!r}",
                "choose one with optax.tree_utils.tree_get and its `filtering`",
            )
        return slots[0] if slots else None

    def get_slot_names(self, state: PyTree) -> list[str]:
        """Returns the names that `get_slot` takes, such as `["count", "mu", "nu"]` for Adam.

        Args:
          state: of this optimizer.
        """
        return list(dict.fromkeys(field for field, _ in self._list_slots(state)))

    def variables(self, state: PyTree) -> list[PyTree]:
        """Returns all arrays of the innermost transformation's state.

        Args:
          state: of this optimizer.
        """
        wrapped_part = self.state_of_wrapped_optimizer(state)
        if isinstance(self.wrapped, IpuOptimizer):
            return self.wrapped.variables(wrapped_part)
        return jax.tree.leaves(wrapped_part)

    def _list_slots(self, state: PyTree) -> list[tuple[str, PyTree]]:
        wrapped_part = self.state_of_wrapped_optimizer(state)
        if isinstance(self.wrapped, IpuOptimizer):
            return self.wrapped._list_slots(wrapped_part)
        return list(_iterate_fields(wrapped_part))


@check.guard
def compute_gradients(
    opt: optax.GradientTransformation,
    gradients: PyTree,
    variables: PyTree,
    *args: object,
    **kwargs: object,
) -> PyTree:
    """Maps the gradients of one mini-batch: the first part of a training step.

    Args:
      opt: an `IpuOptimizer`, or a transformation of optax, which leaves gradients unchanged.
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

        def map_with_optimizer(gradients: PyTree, variables: PyTree) -> PyTree:
            return opt.compute_gradients(gradients, variables, *args, **kwargs)

        return map_trained_gradients(map_with_optimizer, gradients, variables)
    if args or kwargs:
        raise check.type_error(
            f"compute_gradients was given {_describe_extra_arguments(args, kwargs)}, but a "
            "transformation of optax computes no gradients and takes no arguments for it",
            "leave them out, or derive from IpuOptimizer and override compute_gradients",
        )
    return gradients


@check.guard
def apply_gradients(
    opt: optax.GradientTransformation,
    gradients: PyTree,
    state: PyTree,
    params: PyTree = None,
    *args: object,
    **kwargs: object,
) -> PyTree:
    """Turns mapped gradients into updates: the second part of a training step.

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
    check_gradients(f"apply_gradients of {_name_of_optimizer(opt)}", gradients, params)
    if isinstance(opt, IpuOptimizer):

        def apply_in_scope(gradients: PyTree, state: PyTree, params: PyTree) -> PyTree:
            with jax.named_scope(opt.name) if opt.name else contextlib.nullcontext():
                return opt.apply_gradients(gradients, state, params, *args, **kwargs)

        return run_step_on_trained(apply_in_scope, opt, gradients, state, params)
    check_transformation(opt, "apply_gradients")
    if args or (kwargs and not takes_extra_args(opt)):
        raise check.type_error(
            f"apply_gradients was given {_describe_extra_arguments(args, kwargs)}, which the "
            "update of this transformation of optax does not take",
            "leave them out, or use an optax.GradientTransformationExtraArgs and keywords",
        )

    def update_with_optax(gradients: PyTree, state: PyTree, params: PyTree) -> PyTree:
        try:
            return opt.update(gradients, state, params, **kwargs)
        except (IPUError, jax.errors.JAXTypeError):
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise check.value_error(
                f"the update of {_name_of_optimizer(opt)} failed ({type(error).__name__}: {error})",
                "give gradients in the structure of the variables, and the state that "
                "opt.init(variables) of this very optimizer gives"
                + (", and the variables, as `params`" if params is None else ""),
            ) from error

    return run_step_on_trained(update_with_optax, opt, gradients, state, params)


def check_transformation(
    opt: optax.GradientTransformation, wrapper: str
) -> optax.GradientTransformation:
    """Returns the optimizer to wrap, checked to have optax's two functions."""
    functions = (getattr(opt, name, None) for name in ("init", "update"))
    if not isinstance(opt, type) and all(map(callable, functions)):
        return opt
    hint = " it is a function, which may still have to be called:" if callable(opt) else ""
    raise check.type_error(
        f"{wrapper} wraps an optax.GradientTransformation, not {opt!r}, of type "
        f"{type(opt).__name__}",
        f"give an optimizer of optax:{hint} {wrapper}(optax.sgd(0.01), ...)",
    )


def takes_extra_args(opt: optax.GradientTransformation) -> bool:
    """Returns whether the transformation's update takes optax's extra keyword arguments."""
    if isinstance(opt, optax.GradientTransformation):
        return isinstance(opt, optax.GradientTransformationExtraArgs)
    try:
        parameters = inspect.signature(opt.update).parameters.values()
    except (TypeError, ValueError):  # builtins may hide their signature
        return False
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


@check.guard
def maps_gradients(opt: optax.GradientTransformation) -> bool:
    """Returns whether `compute_gradients` of an optimizer changes gradients.

    An optimizer inside another transformation of optax, such as `optax.chain`, cannot be seen; it
    acts once per update.
    """
    if not isinstance(opt, IpuOptimizer):
        return False
    is_overridden = type(opt).compute_gradients is not IpuOptimizer.compute_gradients
    return is_overridden or maps_gradients(opt.wrapped)


def _name_of_optimizer(opt: optax.GradientTransformation) -> str:
    """Returns the name of an optimizer for messages."""
    if isinstance(opt, IpuOptimizer):
        return type(opt).__name__
    function = getattr(opt.update, "__func__", opt.update) if hasattr(opt, "update") else opt
    return getattr(function, "__qualname__", type(opt).__name__).partition(".")[0]


def map_gradients(function: Callable[..., PyTree], gradients: PyTree, *others: PyTree) -> PyTree:
    """Maps a function over gradients; None, and leaves not of float or complex, stay."""

    def map_one_gradient(gradient: PyTree, *other_leaves: PyTree) -> PyTree:
        if gradient is None or not has_gradient(gradient):
            return gradient
        return function(gradient, *other_leaves)

    return jax.tree.map(
        map_one_gradient,
        gradients,
        *others,
        is_leaf=is_none,
    )


def _describe_extra_arguments(args: tuple[PyTree, ...], kwargs: dict[str, PyTree]) -> str:
    count = len(args)
    positional = [f"{count} further positional argument{'' if count == 1 else 's'}"] if args else []
    return " and ".join([*positional, *(f"`{name}`" for name in kwargs)])


def is_optax_state(node: PyTree) -> bool:
    """Returns whether a node of a state is one of optax's own named tuples."""
    is_named_tuple = isinstance(node, tuple) and hasattr(node, "_fields")
    return is_named_tuple and type(node).__name__.endswith("State")


def _iterate_fields(state: PyTree) -> Iterator[tuple[str, PyTree]]:
    """Yields names and values of the innermost states' fields, in the order of the state."""
    for node in jax.tree.leaves(state, is_leaf=is_optax_state):
        if not is_optax_state(node):
            continue
        for name, value in zip(node._fields, node, strict=True):
            nested_nodes = jax.tree.leaves(value, is_leaf=is_optax_state)
            if any(map(is_optax_state, nested_nodes)):
                yield from _iterate_fields(value)
            elif nested_nodes:
                yield name, value
