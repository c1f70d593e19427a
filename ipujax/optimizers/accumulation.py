"""Gradient accumulation: sums, their dtypes, and checks of the loop and of the optimizer."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike, DTypeLike

from ipujax.ground import IPUError, OptimizerError, PyTree, parse_dtype
from ipujax.host import trace_frames
from ipujax.optimizers.ipu_optimizer import check, is_optax_state
from ipujax.optimizers.reduction_method import GradientAccumulationReductionMethod as Reduction
from lowering import jaxpr, ops

Storage = ops.Storage

_SAME_STATE = "pass the state that opt.init(variables) of this very optimizer gives"


def add_to_accumulator(
    total: jax.Array,
    gradient: ArrayLike,
    method: Reduction,
    count: int,
    num_added: jax.Array | None,
) -> jax.Array:
    """Returns the accumulator after one more gradient, in its own dtype.

    Args:
      total: the accumulator, which begins as zeros.
      gradient: the gradient of one mini-batch.
      method: the reduction of the gradients of all mini-batches.
      count: the number of mini-batches.
      num_added: the number of gradients in `total`; only a running mean reads it.
    """
    term = jnp.asarray(gradient).astype(total.dtype)
    if method is Reduction.MEAN:
        term = term * jnp.asarray(1 / count, term.dtype)
    elif method is Reduction.RUNNING_MEAN and num_added is not None:
        total = total * (num_added / (num_added + 1)).astype(term.dtype)
        term = term * (1 / (num_added + 1)).astype(term.dtype)
    return total + term


def make_dtype_chooser(
    dtype: DTypeLike | Callable[[PyTree], DTypeLike] | None,
    name: str,
    dtype_category: type[np.generic],
    error: type[IPUError],
) -> Callable[[PyTree], np.dtype[np.generic]]:
    """Returns a function from a variable, or its aval, to the dtype of its accumulator.

    Args:
      dtype: None for the variable's own, a dtype, or a function from a variable to one.
      name: the name of the argument.
      dtype_category: the category that the dtype must have, such as `jnp.floating`.
      error: the class to raise, at once or by the function, for any other dtype.

    The accumulator of a complex variable is complex: a real dtype gives the precision of its parts.
    """

    def check_accumulator_dtype(value: Any) -> np.dtype[np.generic]:
        dtype = parse_dtype(value)  # `object` for any class
        if dtype is None or not jnp.issubdtype(dtype, dtype_category):
            fix = (
                f"a dtype that is jnp.{dtype_category.__name__}, or a function from a variable to "
                "one"
            )
            user_line = jaxpr.current_user_line()
            raise error(f"{name} is {value!r}", where=user_line, fix=f"give None, {fix}")
        return jax.dtypes.canonicalize_dtype(dtype)

    def fit_dtype_to_variable(
        variable: PyTree, accumulator_dtype: np.dtype[np.generic]
    ) -> np.dtype[np.generic]:
        if jnp.issubdtype(jnp.result_type(variable), jnp.complexfloating):
            return jnp.promote_types(accumulator_dtype, jnp.complex64)
        if dtype_category is jnp.inexact and jnp.issubdtype(accumulator_dtype, jnp.complexfloating):
            raise error(
                f"{name} is {accumulator_dtype}, for a variable of {jnp.result_type(variable)}",
                where=jaxpr.current_user_line(),
                fix="give a real dtype; the sums of complex variables are complex by themselves",
            )
        return accumulator_dtype

    if dtype is None:
        return jnp.result_type
    if callable(dtype) and not isinstance(dtype, type):
        return lambda variable: fit_dtype_to_variable(
            variable, check_accumulator_dtype(dtype(variable))
        )
    checked_dtype = check_accumulator_dtype(dtype)
    return lambda variable: fit_dtype_to_variable(variable, checked_dtype)


def choose_state_storage(offload: bool | None, is_sharded: bool, error: type[IPUError]) -> Storage:
    """Returns the memory that keeps the optimizer's state between updates, or raises.

    It is streaming memory by default, where there is any, as in the original. `error` is raised for
    a sharded state that is not offloaded.
    """
    if is_sharded and offload is False:
        raise error(
            "replicated_optimizer_state_sharding=True needs the optimizer state to be "
            "offloaded, which offload_weight_update_variables=False forbids",
            where=jaxpr.current_user_line(),
            fix="pass offload_weight_update_variables=True, or leave sharding off",
        )
    return Storage(
        remote=offload is not False,
        sharded=is_sharded,
        what="state",
        by_default=offload is None and not is_sharded,
    )


def store_state_between_updates(
    optimizer: optax.GradientTransformation, storage: Storage, name: str | None
) -> optax.GradientTransformation:
    """Returns an optimizer whose state is kept in a storage between weight updates.

    Args:
      optimizer: the model's optimizer.
      storage: the memory of its state between two updates.
      name: a named scope for what an update computes.
    """

    def update_loaded_state(
        updates: PyTree, state: PyTree, params: PyTree = None
    ) -> tuple[PyTree, PyTree]:
        with jax.named_scope(name) if name else contextlib.nullcontext():
            loaded_state = jax.tree.map(lambda leaf: ops.bring_from_storage(leaf, storage), state)
            new_updates, state = optimizer.update(updates, loaded_state, params)
            return new_updates, jax.tree.map(lambda leaf: ops.move_to_storage(leaf, storage), state)

    return optax.GradientTransformation(optimizer.init, update_loaded_state)


def check_accumulation_loop(name: str, count: int) -> None:
    """Checks that a loop of compiled code repeats a multiple of the mini-batches."""
    trace_frame = trace_frames.current_trace_frame()
    if trace_frame is None:
        return
    if not trace_frame.loops:
        raise check.value_error(
            f"{name} accumulates {count} mini-batches, but is used outside of a loop",
            "call the training step in ipu.loops.repeat",
        )
    iterations = trace_frame.loops[-1]  # None if it is known at run time only
    if iterations is not None and iterations % count:
        raise check.value_error(
            f"{name} accumulates {count} mini-batches in a loop of {iterations} iterations: the "
            "number of mini-batches must evenly divide loop iterations",
            f"repeat the loop a multiple of {count} times",
        )


def cast_state_like(new: PyTree, old: PyTree) -> PyTree:
    """Returns the new state after checking that it has the old structure, shapes, dtypes."""
    old_structure, new_structure = jax.tree.structure(old), jax.tree.structure(new)
    if old_structure != new_structure:
        raise check.value_error(
            f"the wrapped optimizer turns its state from {old_structure} into {new_structure}",
            _SAME_STATE,
        )
    new = jax.tree.map(jnp.asarray, new)
    message_start = "the wrapped optimizer turns a leaf of its state"
    refuse_changed_leaves(message_start, jax.tree.leaves(new), jax.tree.leaves(old), OptimizerError)
    return jax.tree.map(
        lambda leaf, before: jnp.asarray(leaf, before.dtype), new, old
    )  # no weak types


def refuse_changed_leaves(
    message_start: str, new: Sequence[PyTree], old: Sequence[PyTree], error: type[IPUError]
) -> None:
    """Raises `error` if an update changes the number, shapes or dtypes of its leaves.

    Args:
      message_start: the beginning of the message: which function turns which leaf.
      new: arrays or avals after the update.
      old: arrays or avals before the update.
      error: the class to raise.
    """
    for old_leaf, new_leaf in itertools.zip_longest(old, new):
        if _describe_leaf(old_leaf) == _describe_leaf(new_leaf):
            continue
        fix = _SAME_STATE
        if old_leaf is not None and new_leaf is not None and old_leaf.shape == new_leaf.shape:
            fix = (
                f"gradients come in the accumulators' dtype: keep this leaf in {new_leaf.dtype} "
                f"from the start (optax.sgd(..., accumulator_dtype=jnp.{new_leaf.dtype}), mu_dtype "
                "of others), or cast gradients in front of the optimizer: optax.chain("
                "optax.stateless(lambda g, p: optax.tree_utils.tree_cast(g, "
                f"jnp.{old_leaf.dtype})), ...)"
            )
        message = f"{message_start} from {_describe_leaf(old_leaf)} into {_describe_leaf(new_leaf)}"
        raise error(message, where=jaxpr.current_user_line(), fix=fix)


def _describe_leaf(leaf: PyTree) -> str:
    return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"


_SCHEDULES_AND_MOMENTUM = ("EmptyState", "TraceState", "ScaleByScheduleState")
_WRAPPER_STATES = (
    "InjectHyperparamsState",
    "InjectStatefulHyperparamsState",
    "MaskedState",
    "PartitionState",
)


def find_state_beyond_momentum(state: PyTree) -> str | None:
    """Returns the name of a part of a state that gradient descent with momentum lacks."""
    for node in jax.tree.leaves(state, is_leaf=is_optax_state):
        name = type(node).__name__
        if not is_optax_state(node):
            return f"leaf of its own ({name})"
        if name in _SCHEDULES_AND_MOMENTUM:
            continue
        if name not in _WRAPPER_STATES:
            return name
        inner_state = getattr(node, "inner_state", getattr(node, "inner_states", ()))
        if part_name := find_state_beyond_momentum(inner_state):
            return part_name
    return None
