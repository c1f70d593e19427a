"""Arrays that one process of a program has, as all of its processes see them.

They are JAX's own global arrays, on a device of their process: everywhere they have a shape and a
dtype, and what `jax.jit` computes with them is computed where they are. Their sharding tells them
from arrays that every process has, also in the process that holds them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ipujax.distribution.wire import wire
from lowering import is_number

_AXIS = "ipujax_holder"
_numbers = itertools.count()


def holder(leaf: object) -> int | None:
    """The process that alone has an array; None if it is like any other."""
    home = getattr(leaf, "sharding", None)
    if isinstance(home, NamedSharding) and home.mesh.axis_names == (_AXIS,):
        device: Any = next(iter(home.device_set))
        return device.process_index
    return None


def may_be_held(aval: Any) -> bool:
    """Whether an array may be one process's own: keys, and weak types, are everybody's."""
    return aval.size > 0 and not aval.weak_type and is_number(aval.dtype)


def held(process: int, aval: Any, own: jax.Array | None) -> jax.Array:
    """An array that a process has.

    Args:
      process: which.
      aval: its shape and dtype.
      own: the array, on this process's first device, if this is the process.
    """
    shards = [] if own is None else [own]
    return jax.make_array_from_single_device_arrays(
        aval.shape, _home(process), shards, dtype=aval.dtype
    )


def brought_together(leaves: Sequence[Any], holders: Sequence[int | None] = ()) -> list[Any]:
    """Gives all processes what one of them has. All have to ask, in the same order.

    Args:
      leaves: of any kind, alike in all processes.
      holders: of each the process with which it may stay.
    """
    together = list(leaves)
    for place, (leaf, stays) in enumerate(zip_longest(leaves, holders)):
        process = holder(leaf)
        if process not in (None, stays):
            together[place] = _everywhere(leaf, process, next(_numbers))
    return together


def _everywhere(array: jax.Array, process: int, number: int) -> jax.Array:
    here = jax.process_index()
    if process == here:
        own = array.addressable_data(0)
        for other in range(jax.process_count()):
            if other != here:
                wire().offer(("together", number, other), [own])
        return own
    device = SingleDeviceSharding(jax.local_devices()[0])
    struct = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=device)
    return wire().ask(process, ("together", number, here), [struct])[0]


@functools.cache
def _home(process: int) -> NamedSharding:
    device = next(d for d in jax.devices() if d.process_index == process)
    return NamedSharding(Mesh(np.array([device]), (_AXIS,)), PartitionSpec())
