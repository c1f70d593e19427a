"""Keeps values out of the way between uses: in the host's memory, or as a slice per replica."""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.engine.placement import Placement
from ipujax.errors import OptimizerError
from lowering import storage

_REMOTE = "pinned_host"


@dc.dataclass(frozen=True)
class Stored:
    """A value that has been put away.

    Attributes:
      array: the value, or what each replica keeps of it, `[replicas, elements]`.
      shape: of the value, per replica.
      storage: how it is kept.
      placement: the devices of the program.
      ipu: the IPU that it belongs to.
      agreed: whether all replicas had the same value, where each keeps a part of it only.
    """

    array: jax.Array
    shape: tuple[int, ...]
    storage: storage.Storage
    placement: Placement
    ipu: int
    agreed: Any = True


def store(array: jax.Array, storage: storage.Storage, placement: Placement, ipu: int) -> Stored:
    """Puts away an array of an IPU; one that is sharded must be equal on all replicas."""
    agreed: Any = True
    shape = array.shape if placement.replicas == 1 else array.shape[1:]
    sharding = placement.sharding(ipu)
    if storage.sharded and placement.replicas > 1:
        array, agreed = _slices(placement.replicas, sharding)(array)
    if storage.remote and _has_remote_memory(placement, ipu):
        array = jax.device_put(array, sharding.with_memory_kind(_REMOTE))
    return Stored(array, shape, storage, placement, ipu, agreed)


def load(value: Any) -> Any:
    """Brings a value back to its IPU; one that was never put away is there already.

    Raises:
      OptimizerError: (a `ValueError`) it was sharded, and replicas had other values than replica 0.
    """
    if not isinstance(value, Stored):
        return value
    if not value.agreed:
        raise OptimizerError(
            f"{list(value.shape)} numbers of IPU {value.ipu} are sharded over the replicas, and "
            "not all replicas have the same numbers\n"
            "  fix:   average gradients over the replicas (CrossReplicaOptimizer around the "
            "optimizer), or leave replicated_optimizer_state_sharding and "
            "replicated_weight_sharding off"
        )
    array, sharding = value.array, value.placement.sharding(value.ipu)
    if value.storage.remote and _has_remote_memory(value.placement, value.ipu):
        array = jax.device_put(array, sharding)
    if value.storage.sharded and value.placement.replicas > 1:
        array = _whole(value.shape, sharding)(array)
    return array


def _has_remote_memory(placement: Placement, ipu: int) -> bool:
    """Whether the device tells its own memory from the host's; a CPU's are one."""
    device = placement.devices[ipu]
    kinds = {memory.kind for memory in device.addressable_memories()}
    return device.platform != "cpu" and _REMOTE in kinds


@functools.lru_cache(maxsize=256)
def _slices(replicas: int, sharding: Any) -> Any:
    """`[replicas, *shape]` -> `[replicas, elements / replicas]`, padded; whether all were equal."""

    def function(array: Any) -> tuple[Any, Any]:
        flat = array.reshape(replicas, -1)
        padded = jnp.pad(flat, ((0, 0), (0, -flat.shape[1] % replicas)))
        own = padded.reshape(replicas, replicas, -1)
        return own[jnp.arange(replicas), jnp.arange(replicas)], _agree(array)

    return jax.jit(function, out_shardings=(sharding, None))


def _agree(array: Any) -> Any:
    """Whether all rows are the first one, but for rounding that depends on where a row is."""
    first = array[:1]
    same = (array == first) | ((array != array) & (first != first))
    if jnp.issubdtype(array.dtype, jnp.inexact):
        scale = jnp.max(jnp.abs(first), initial=0, where=jnp.isfinite(first))
        same |= jnp.abs(array - first) <= 16 * jnp.finfo(array.dtype).eps * scale
    return same.all()


@functools.lru_cache(maxsize=256)
def _whole(shape: tuple[int, ...], sharding: Any) -> Any:
    """The inverse of `_slices`: every replica gathers all slices."""

    def function(slices: Any) -> Any:
        size = 1
        for extent in shape:
            size *= extent
        whole = slices.reshape(-1)[:size].reshape(shape)
        return jnp.broadcast_to(whole, (slices.shape[0], *shape))

    return jax.jit(function, out_shardings=sharding)
