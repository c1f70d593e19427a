"""Arrays that one process of a program holds, as global arrays that all of its processes see.

They are JAX's own global arrays, on a device of their process: everywhere they have a shape and a
dtype, and `jax.jit` computes with them on that device. Their sharding distinguishes them
from arrays that every process has, also in the process that holds them. An array on a mesh of
devices stays there as it is, and its process remembers that it alone has it.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ipujax.distribution.wire import get_wire
from ipujax.ground import PyTree
from lowering import is_numeric_dtype

_AXIS = "ipujax_holder"
_numbers = itertools.count()
_held_on_meshes: weakref.WeakValueDictionary[int, jax.Array] = weakref.WeakValueDictionary()
"""The arrays on meshes that this process alone holds, by their `id`."""


def process_holding_array(leaf: object) -> int | None:
    """Returns the process that alone holds an array; None for other arrays."""
    if _held_on_meshes.get(id(leaf)) is leaf:
        return jax.process_index()
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding) and sharding.mesh.axis_names == (_AXIS,):
        device: Any = next(iter(sharding.device_set))
        return device.process_index
    return None


def can_be_held_by_one_process(aval: Any) -> bool:
    """Returns whether one process alone may hold an array: not keys or weak types."""
    return aval.size > 0 and not aval.weak_type and is_numeric_dtype(aval.dtype)


def make_held_array(process: int, aval: Any, local_array: jax.Array | None) -> jax.Array:
    """Returns the global array that one process holds.

    Args:
      process: the number of the process.
      aval: its shape and dtype.
      local_array: the array, on this process's first device or on a mesh, if this is that process.
    """
    if local_array is not None and isinstance(local_array.sharding, NamedSharding):
        _held_on_meshes[id(local_array)] = local_array
        return local_array
    shards = [] if local_array is None else [local_array]
    return jax.make_array_from_single_device_arrays(
        aval.shape, _sharding_of_holder(process), shards, dtype=aval.dtype
    )


def share_held_arrays(leaves: Sequence[Any], holders: Sequence[int | None] = ()) -> list[PyTree]:
    """Gives all processes the arrays that one of them holds. All have to call it, in order.

    Args:
      leaves: leaves of any kind, alike in all processes.
      holders: for each leaf, the process that may go on holding it.
    """
    shared_leaves = list(leaves)
    for position, (leaf, allowed_holder) in enumerate(zip_longest(leaves, holders)):
        process = process_holding_array(leaf)
        if process not in (None, allowed_holder):
            shared_leaves[position] = _send_to_all_processes(leaf, process, next(_numbers))
    return shared_leaves


def _send_to_all_processes(array: jax.Array, process: int, number: int) -> jax.Array:
    this_process = jax.process_index()
    if process == this_process:
        is_on_mesh = _held_on_meshes.get(id(array)) is array
        local_array = jnp.asarray(np.asarray(array)) if is_on_mesh else array.addressable_data(0)
        for other_process in range(jax.process_count()):
            if other_process != this_process:
                get_wire().offer_arrays(("together", number, other_process), [local_array])
        return local_array
    device = SingleDeviceSharding(jax.local_devices()[0])
    struct = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=device)
    return get_wire().request_arrays(process, ("together", number, this_process), [struct])[0]


@functools.cache
def _sharding_of_holder(process: int) -> NamedSharding:
    device = next(d for d in jax.devices() if d.process_index == process)
    return NamedSharding(Mesh(np.array([device]), (_AXIS,)), PartitionSpec())
