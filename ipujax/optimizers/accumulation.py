"""Accumulation: sums and their dtypes; what it asks of the loop and of the wrapped optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.checks.arguments import dtype_of
from ipujax.driver import tracing
from ipujax.errors import IPUError, OptimizerError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipujax.optimizers.ipu_optimizer import check, is_state
from lowering import jaxpr, ops

_SAME_STATE = "pass the state that opt.init(variables) of this very optimizer gives"


def added(
    total: jax.Array, gradient: ArrayLike, method: Reduction, count: int, done: jax.Array | None
) -> jax.Array:
    """The accumulator after one gradient more, in its own dtype.

    Args:
      total: the accumulator, which begins as zeros.
      gradient: of one mini-batch.
      method: what the accumulated gradients of all mini-batches are to be.
      count: how many of them there are.
      done: how many are in `total`; not read unless it is a running mean.
    """
    term = jnp.asarray(gradient).astype(total.dtype)
    if method is Reduction.MEAN:
        term = term * jnp.asarray(1 / count, term.dtype)
    elif method is Reduction.RUNNING_MEAN and done is not None:
        total = total * (done / (done + 1)).astype(term.dtype)
        term = term * (1 / (done + 1)).astype(term.dtype)
    return total + term


def dtype_chooser(
    dtype: Any, name: str, kind: Any, error: type[IPUError]
) -> Callable[[Any], np.dtype[Any]]:
    """A function from a variable, or its aval, to the dtype of its accumulator.

    Args:
      dtype: None for its own, a dtype, or a function from a variable to one.
      name: of the argument.
      kind: what the dtype must be, such as `jnp.floating`.
      error: the class to raise, at once or by the function, for anything else.

    What a complex variable is given is complex, too: a dtype says how precise its parts are.
    """

    def checked(value: Any) -> np.dtype[Any]:
        dtype = dtype_of(value)  # `object` for any class
        if dtype is None or not jnp.issubdtype(dtype, kind):
            fix = f"a dtype that is jnp.{kind.__name__}, or a function from a variable to one"
            where = jaxpr.current_user_line()
            raise error(f"{name} is {value!r}", where=where, fix=f"give None, {fix}")
        return jax.dtypes.canonicalize_dtype(dtype)

    def fitting(variable: Any, chosen: np.dtype[Any]) -> np.dtype[Any]:
        if jnp.issubdtype(jnp.result_type(variable), jnp.complexfloating):
            return jnp.promote_types(chosen, jnp.complex64)
        if kind is jnp.inexact and jnp.issubdtype(chosen, jnp.complexfloating):
            raise error(
                f"{name} is {chosen}, for a variable of {jnp.result_type(variable)}",
                where=jaxpr.current_user_line(),
                fix="give a real dtype; the sums of complex variables are complex by themselves",
            )
        return chosen

    if dtype is None:
        return jnp.result_type
    if callable(dtype) and not isinstance(dtype, type):
        return lambda variable: fitting(variable, checked(dtype(variable)))
    chosen = checked(dtype)
    return lambda variable: fitting(variable, chosen)


def storage_of(offload: bool | None, sharded: bool, error: type[IPUError]) -> ops.Storage:
    """Where the optimizer's state waits between updates; raises `error` if that is nowhere.

    That is remote memory by default, where there is any, as in the original.
    """
    if sharded and offload is False:
        raise error(
            "replicated_optimizer_state_sharding=True needs the optimizer state to be "
            "offloaded, which offload_weight_update_variables=False forbids",
            where=jaxpr.current_user_line(),
            fix="pass offload_weight_update_variables=True, or leave sharding off",
        )
    return ops.Storage(
        remote=offload is not False,
        sharded=sharded,
        what="state",
        by_default=offload is None and not sharded,
    )


def check_loop(name: str, count: int) -> None:
    """Checks the loop around an accumulation; only compiled code knows of one."""
    frame = tracing.current()
    if frame is None:
        return
    if not frame.loops:
        raise check.refuse(
            f"{name} accumulates {count} mini-batches, but is used outside of a loop",
            "call the training step in ipu.loops.repeat",
        )
    iterations = frame.loops[-1]  # None if it is known at run time only
    if iterations is not None and iterations % count:
        raise check.refuse(
            f"{name} accumulates {count} mini-batches in a loop of {iterations} iterations: the "
            "number of mini-batches must evenly divide loop iterations",
            f"repeat the loop a multiple of {count} times",
        )


def like(new: Any, old: Any) -> Any:
    """The new state, once it is known to have the old one's structure, shapes and dtypes."""
    before, after = jax.tree.structure(old), jax.tree.structure(new)
    if before != after:
        raise check.refuse(
            f"the wrapped optimizer turns its state from {before} into {after}",
            _SAME_STATE,
        )
    new = jax.tree.map(jnp.asarray, new)
    turned = "the wrapped optimizer turns a leaf of its state"
    check_leaves(turned, jax.tree.leaves(new), jax.tree.leaves(old), OptimizerError)
    return jax.tree.map(lambda x, before: jnp.asarray(x, before.dtype), new, old)  # no weak types


def check_leaves(what: str, new: Sequence[Any], old: Sequence[Any], error: type[IPUError]) -> None:
    """Raises `error` if an update changes the number, shapes or dtypes of what it updates.

    Args:
      what: the beginning of the message: who turns a leaf of what.
      new: arrays or avals after the update.
      old: those before it.
      error: the class to raise.
    """
    for before, after in itertools.zip_longest(old, new):
        if _text(before) == _text(after):
            continue
        fix = _SAME_STATE
        if before is not None and after is not None and before.shape == after.shape:
            fix = (
                f"gradients come in the accumulators' dtype: keep this leaf in {after.dtype} from "
                f"the start (optax.sgd(..., accumulator_dtype=jnp.{after.dtype}), mu_dtype of "
                "others), or cast gradients in front of the optimizer: optax.chain("
                "optax.stateless(lambda g, p: optax.tree_utils.tree_cast(g, "
                f"jnp.{before.dtype})), ...)"
            )
        turned = f"{what} from {_text(before)} into {_text(after)}"
        raise error(turned, where=jaxpr.current_user_line(), fix=fix)


def _text(leaf: Any) -> str:
    return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"


_SCHEDULES_AND_MOMENTUM = ("EmptyState", "TraceState", "ScaleByScheduleState")
_AROUND_OTHERS = (
    "InjectHyperparamsState",
    "InjectStatefulHyperparamsState",
    "MaskedState",
    "PartitionState",
)


def other_than_momentum(state: Any) -> str | None:
    """The name of a part of a state that gradient descent with momentum does not have."""
    for node in jax.tree.leaves(state, is_leaf=is_state):
        name = type(node).__name__
        if not is_state(node):
            return f"leaf of its own ({name})"
        if name in _SCHEDULES_AND_MOMENTUM:
            continue
        if name not in _AROUND_OTHERS:
            return name
        inner = getattr(node, "inner_state", getattr(node, "inner_states", ()))
        if other := other_than_momentum(inner):
            return other
    return None
