"""Stores values between uses: in the host's memory, or as one slice per replica.

The replicas of a process share a value among themselves (fact distributed.global_replication).
"""

from __future__ import annotations

import dataclasses as dc
import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ipujax.engine.device_placement import Placement
from ipujax.engine.task_compilation import Compiled
from ipujax.ground import OptimizerError
from lowering import ir

if TYPE_CHECKING:
    from ipujax.engine.replay import Machine

_REMOTE = "pinned_host"


@dc.dataclass(frozen=True)
class Stored:
    """A value that is stored in streaming memory or as slices.

    Attributes:
      array: the value, or each replica's slice of it, `[replicas, elements]`.
      by: the step that stored it.
      agreed: whether all replicas had the same value, where each keeps a part of it only.
    """

    array: jax.Array
    by: Storing
    agreed: bool | jax.Array = True


class Storing:
    """The step that stores one value of an IPU; a sharded value must be equal on all replicas.

    Args:
      machine: runs the program, and gets what this compiles.
      node: names the value, its IPU, and how it is stored.
    """

    def __init__(self, machine: Machine, node: ir.Store):
        placement, ipu = machine.placement, node.ipu
        aval, sharing = machine.program.avals[node.value], len(placement.replicas_of_process)
        self.shape, self.ipu = aval.shape, ipu
        self.sharding = placement.sharding(ipu)
        # By default the modelled machine offloads, and JAX's device does not: it has more memory
        # than tiles have, and the way to the host's costs it time.
        uses_remote_memory = node.storage.remote and not node.storage.by_default
        self.remote = uses_remote_memory and _has_remote_memory(placement, ipu)
        self.slices: Compiled | None = None
        self.whole: Compiled | None = None
        if node.storage.sharded and sharing > 1:
            part = jax.ShapeDtypeStruct((-(-math.prod(aval.shape) // sharing),), aval.dtype)
            self.slices = machine.compilation.add_function(
                functools.partial(_split_into_replica_slices, sharing),
                [placement.array_struct(aval, ipu)],
                out_shardings=(self.sharding, placement.sharding(ipu, None)),
            )
            self.whole = machine.compilation.add_function(
                functools.partial(_join_replica_slices, sharing, self.shape),
                [placement.array_struct(part, ipu)],
                out_shardings=self.sharding,
            )

    def __call__(self, array: jax.Array) -> Stored:
        """Stores the value."""
        agreed: bool | jax.Array = True
        if self.slices is not None:
            array, agreed = self.slices(array)
        if self.remote:
            array = jax.device_put(array, self.sharding.with_memory_kind(_REMOTE))
        return Stored(array, self, agreed)


def load_stored_value(value: Any) -> Any:
    """Loads a stored value back to its IPU; returns any other value as it is.

    Raises:
      OptimizerError: (a `ValueError`) it was sharded, and replicas had other values than replica 0.
    """
    if not isinstance(value, Stored):
        return value
    by = value.by
    if not value.agreed:
        raise OptimizerError(
            f"{list(by.shape)} numbers of IPU {by.ipu} are sharded over the replicas, and "
            "not all replicas have the same numbers",
            fix="average gradients over the replicas (CrossReplicaOptimizer around the "
            "optimizer), or leave replicated_optimizer_state_sharding and "
            "replicated_weight_sharding off",
        )
    array = jax.device_put(value.array, by.sharding) if by.remote else value.array
    return array if by.whole is None else by.whole(array)


def _has_remote_memory(placement: Placement, ipu: int) -> bool:
    """Returns whether a device has host memory apart from its own; a CPU does not."""
    device = placement.devices[ipu]
    kinds = {memory.kind for memory in device.addressable_memories()}
    return device.platform != "cpu" and _REMOTE in kinds


def _split_into_replica_slices(sharing: int, array: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cuts `[replicas, *shape]` into padded slices per replica, and compares the replicas."""
    replicas = jnp.arange(array.shape[0])
    flat = array.reshape(array.shape[0], -1)
    padded = jnp.pad(flat, ((0, 0), (0, -flat.shape[1] % sharing)))
    parts = padded.reshape(array.shape[0], sharing, -1)
    return parts[replicas, replicas % sharing], _rows_agree(array)


def _rows_agree(array: jax.Array) -> jax.Array:
    """Returns whether all rows equal the first one up to rounding errors."""
    first = array[:1]
    same = (array == first) | ((array != array) & (first != first))
    if jnp.issubdtype(array.dtype, jnp.inexact):
        scale = jnp.max(jnp.abs(first), initial=0, where=jnp.isfinite(first))
        same |= jnp.abs(array - first) <= 16 * jnp.finfo(array.dtype).eps * scale
    return same.all()


def _join_replica_slices(sharing: int, shape: tuple[int, ...], slices: jax.Array) -> jax.Array:
    """Joins the slices of the replicas that share a value: undoes `_split_into_replica_slices`."""
    groups = slices.shape[0] // sharing
    wholes = slices.reshape(groups, 1, -1)[:, :, : math.prod(shape)]
    return jnp.broadcast_to(wholes, (groups, sharing, math.prod(shape))).reshape(-1, *shape)
