"""Keeps values out of the way between uses: in the host's memory, or as a slice per replica."""

from __future__ import annotations

import dataclasses as dc
import functools
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.engine.placement import Placement
from lowering import storage

_REMOTE = "pinned_host"


@dc.dataclass(frozen=True)
class Stored:
    """A value that has been put away.

    Attributes:
      array: the value, or what each replica keeps of it, `[replicas, elements]`.
      shape: of the value, per replica.
      storage: how it is kept.
    """

    array: jax.Array
    shape: tuple[int, ...]
    storage: storage.Storage


def store(array: jax.Array, storage: storage.Storage, placement: Placement, ipu: int) -> Stored:
    """Puts away an array of an IPU; one that is sharded must be equal on all replicas."""
    shape = array.shape if placement.replicas == 1 else array.shape[1:]
    sharding = placement.sharding(ipu)
    if storage.sharded and placement.replicas > 1:
        array = _slices(placement.replicas, sharding)(array)
    if storage.remote and _has_remote_memory(placement, ipu):
        array = jax.device_put(array, sharding.with_memory_kind(_REMOTE))
    return Stored(array, shape, storage)


def load(value: Any, placement: Placement, ipu: int) -> Any:
    """Brings a value back to its IPU; one that was never put away is there already."""
    if not isinstance(value, Stored):
        return value
    array, sharding = value.array, placement.sharding(ipu)
    if value.storage.remote and _has_remote_memory(placement, ipu):
        array = jax.device_put(array, sharding)
    if value.storage.sharded and placement.replicas > 1:
        array = _whole(value.shape, sharding)(array)
    return array


def _has_remote_memory(placement: Placement, ipu: int) -> bool:
    """Whether the device tells its own memory from the host's; a CPU's are one."""
    device = placement.devices[ipu]
    kinds = {memory.kind for memory in device.addressable_memories()}
    return device.platform != "cpu" and _REMOTE in kinds


@functools.lru_cache(maxsize=256)
def _slices(replicas: int, sharding: Any) -> Any:
    """`[replicas, *shape]`, all equal -> `[replicas, elements / replicas]`, padded."""

    def function(array: Any) -> Any:
        flat = array.reshape(replicas, -1)
        padded = jnp.pad(flat, ((0, 0), (0, -flat.shape[1] % replicas)))
        own = padded.reshape(replicas, replicas, -1)
        return own[jnp.arange(replicas), jnp.arange(replicas)]

    return jax.jit(function, out_shardings=sharding)


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
