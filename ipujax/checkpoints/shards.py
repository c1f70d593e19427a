"""Moves the shards of arrays from the devices where they are to the host, and back."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ipujax.checkpoints.checkpoint_checks import check


def has_all_shards(array: jax.Array) -> bool:
    """Returns whether the devices of this process hold all elements of an array."""
    if array.is_fully_addressable:
        return True
    shard_indices = array.sharding.devices_indices_map(array.shape).values()
    local_indices = array.sharding.addressable_devices_indices_map(array.shape).values()
    return set(map(str, shard_indices)) == set(map(str, local_indices))


def copy_to_host(value: Any) -> Any:
    """Returns an array of JAX as NumPy's, one copy of each shard; other values as they are.

    The array keeps no reference to the copy, as it does if NumPy is given the array itself.
    """
    if not isinstance(value, jax.Array) or isinstance(value, Tracer):
        return value
    shards = [shard.data for shard in value.addressable_shards]
    view = jax.make_array_from_single_device_arrays(value.shape, value.sharding, shards)
    return np.asarray(view)


def find_sharding(like: object) -> jax.sharding.Sharding | None:
    """Returns the sharding of an array or a shape; None if it leaves the place to JAX."""
    if isinstance(like, Tracer) or _is_movable(like):
        return None
    sharding = getattr(like, "sharding", None)
    return sharding if isinstance(sharding, jax.sharding.Sharding) else None


def use_device_of(like: object) -> contextlib.AbstractContextManager[object]:
    """Has new arrays be where an array is that JAX may move; else on JAX's default device."""
    if isinstance(like, jax.Array) and _is_movable(like):
        return jax.default_device(next(iter(like.sharding.device_set)))
    return contextlib.nullcontext()


def _is_movable(like: object) -> bool:
    """Returns whether a value is an array on one device that computations may move to others."""
    if not isinstance(like, jax.Array) or isinstance(like, Tracer):
        return False
    return not like.committed and len(like.sharding.device_set) == 1


def move_shards_to_devices(
    name: str,
    numbers: np.ndarray,
    target: jax.ShapeDtypeStruct,
    impl: str | None,
) -> jax.Array:
    """Puts each shard of an array on its device, and no more than that.

    Args:
      name: the leaf's, for errors.
      numbers: the whole array, or the data of typed keys.
      target: shape, dtype and sharding of the result; of devices of several processes, those of
        this one get their shards.
      impl: the implementation of typed keys, or None.

    Raises:
      CheckpointError: a sharding that does not fit the shape, or names no devices.
    """
    sharding = target.sharding
    try:
        index_of_device = sharding.addressable_devices_indices_map(target.shape)
    except ValueError as error:  # of an abstract mesh, or sizes that do not divide
        raise check.value_error(
            f"leaf `{name}` of `like` cannot be sharded as it says: {error}",
            "give a sharding over devices that divides the shape, or none",
        ) from error
    shards = jax.device_put(
        [numbers[index] for index in index_of_device.values()],
        [
            jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
            for device in index_of_device
        ],
    )
    if impl is not None:
        shards = [jax.random.wrap_key_data(shard, impl=impl) for shard in shards]
    return jax.make_array_from_single_device_arrays(
        target.shape, sharding, shards, dtype=target.dtype
    )
