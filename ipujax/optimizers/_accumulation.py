"""What accumulating optimizers ask of the loop around them and of the optimizer inside."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipujax import _tracing
from ipujax.optimizers._checks import refuse
from ipujax.optimizers.ipu_optimizer import is_state
from lowering import storage


def storage_of(offload: bool | None, sharded: bool | None) -> storage.Storage:
    """Where the optimizer's state waits between updates."""
    if sharded is None:
        sharded = bool(offload)
    if sharded and offload is False:
        raise refuse(
            "replicated_optimizer_state_sharding=True with offload_weight_update_variables=False: "
            "the optimizer state must be offloaded to be sharded",
            "pass offload_weight_update_variables=True, or leave sharding off",
        )
    return storage.Storage(remote=bool(offload) or sharded, sharded=sharded)


def check_loop(name: str, count: int) -> None:
    """Checks the loop around an accumulation; only compiled code knows of one."""
    frame = _tracing.current()
    if frame is None:
        return
    if not frame.loops:
        raise refuse(
            f"{name} accumulates {count} mini-batches, but is used outside of a loop",
            "call the training step in ipu.loops.repeat",
        )
    iterations = frame.loops[-1]  # None if it is known at run time only
    if iterations is not None and iterations % count:
        raise refuse(
            f"{name} accumulates {count} mini-batches in a loop of {iterations} iterations: the "
            "number of mini-batches must evenly divide loop iterations",
            f"repeat the loop a multiple of {count} times",
        )


def like(new: Any, old: Any) -> Any:
    """The new state, once it is known to have the old one's structure, shapes and dtypes."""
    before, after = jax.tree.structure(old), jax.tree.structure(new)
    if before != after:
        raise refuse(
            f"the wrapped optimizer turns its state from {before} into {after}",
            "pass the state that `init` of this very optimizer made",
        )
    return jax.tree.map(_checked_leaf, new, old)


def _checked_leaf(new: Any, old: Any) -> Any:
    array = jnp.asarray(new)
    if (array.shape, array.dtype) != (old.shape, old.dtype):
        raise refuse(
            f"the wrapped optimizer turns a leaf of its state from {old.dtype}{list(old.shape)} "
            f"into {array.dtype}{list(array.shape)}: gradients come in the accumulators' dtype",
            "cast them in front of it: optax.chain(optax.stateless(lambda g, p: "
            f"optax.tree_utils.tree_cast(g, jnp.{old.dtype})), ...)",
        )
    return jnp.asarray(array, old.dtype)  # never a weak type


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
        found = other_than_momentum(getattr(node, "inner_state", getattr(node, "inner_states", ())))
        if found:
            return found
    return None
