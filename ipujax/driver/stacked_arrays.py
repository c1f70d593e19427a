"""Arrays whose rows are on the devices of several IPUs: one array outside, parts in a program.

Outside it is one array that is sharded over one more mesh axis in front, `ROWS_AXIS`: no device has
rows of another IPU, and the parts are its shards.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
import weakref
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from lowering import RowSplit

ROWS_AXIS = "ipu"


def split_rows(array: Any, split: RowSplit) -> list[Any]:
    """Returns the rows of each IPU.

    Args:
      array: one that `join_rows` made, or that is sharded likewise, is taken apart without a copy;
        any other is sliced.
      split: which rows are whose.
    """
    parts = _PARTS_OF_JOINED.get(id(array), ())
    if len(parts) == len(split.ipus):
        return list(parts)
    sharding = getattr(array, "sharding", None)
    if isinstance(sharding, NamedSharding):
        shardings = _shardings_of_parts(sharding, len(split.ipus))
        if shardings is not None:
            return _take_apart(array, shardings)
    return [array[start:stop] for start, stop in split.ranges]


def join_rows(parts: Sequence[jax.Array]) -> jax.Array:
    """Returns one array, without a copy if each part is on devices of its own, sharded alike."""
    parts = _shard_alike(parts)
    sharding = _sharding_of_joined(tuple(part.sharding for part in parts))
    if sharding is None:
        return jnp.concatenate(jax.device_put(list(parts), parts[0].sharding))
    shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
    shards = [shard for part in parts for shard in _list_shards(part)]
    joined = jax.make_array_from_single_device_arrays(shape, sharding, shards)
    _PARTS_OF_JOINED[id(joined)] = tuple(parts)
    weakref.finalize(joined, _PARTS_OF_JOINED.pop, id(joined)).atexit = False
    return joined


# Of the arrays that are alive, by identity. JAX takes half a millisecond to take an array apart,
# and most arguments are results of the last call.
_PARTS_OF_JOINED: dict[int, tuple[jax.Array, ...]] = {}


def _shard_alike(parts: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Returns parts on meshes with the sharding of the first, each over its own mesh.

    XLA may have chosen another one for some of them.
    """
    shardings: list[Any] = [part.sharding for part in parts]
    if not all(isinstance(sharding, NamedSharding) for sharding in shardings):
        return parts
    spec = shardings[0].spec
    if all(sharding.spec == spec for sharding in shardings):
        return parts
    return jax.device_put(list(parts), [NamedSharding(s.mesh, spec) for s in shardings])


def _list_shards(part: jax.Array) -> list[jax.Array]:
    """Returns the arrays of a part, one for each of its devices."""
    if isinstance(part.sharding, SingleDeviceSharding):
        return [part]
    return [shard.data for shard in part.addressable_shards]


def _take_apart(array: jax.Array, shardings: Sequence[Any]) -> list[jax.Array]:
    """Returns the parts of a joined array, given the sharding of each."""
    data = {shard.device: shard.data for shard in array.addressable_shards}
    shape = (array.shape[0] // len(shardings), *array.shape[1:])
    parts: list[jax.Array] = []
    for sharding in shardings:
        if isinstance(sharding, SingleDeviceSharding):
            parts += [data[device] for device in sharding.device_set]
        else:
            shards = [data[device] for device in list_devices(sharding.mesh)]
            parts.append(jax.make_array_from_single_device_arrays(shape, sharding, shards))
    return parts


@functools.lru_cache(maxsize=1024)
def _sharding_of_joined(shardings: tuple[Any, ...]) -> NamedSharding | None:
    """Returns the sharding of an array whose parts have these; None if there is no such one."""
    first = shardings[0]
    if len(set(map(_kind_of_sharding, shardings))) > 1:
        return None
    devices = [device for sharding in shardings for device in sharding.device_set]
    if len(set(devices)) < len(devices):
        return None
    if isinstance(first, SingleDeviceSharding):
        return NamedSharding(Mesh(np.array(devices), (ROWS_AXIS,)), PartitionSpec(ROWS_AXIS))
    if not isinstance(first, NamedSharding):
        return None
    stacked = np.stack([_grid_of_devices(sharding.mesh) for sharding in shardings])
    mesh = Mesh(stacked, (ROWS_AXIS, *first.mesh.axis_names))
    axes_of_rows, *other_axes = tuple(first.spec) or (None,)
    rows = (ROWS_AXIS, *_list_axes(axes_of_rows))
    return NamedSharding(mesh, PartitionSpec(rows if len(rows) > 1 else ROWS_AXIS, *other_axes))


def list_devices(mesh: Any) -> list[Any]:
    """Returns the JAX devices of a mesh, in order."""
    return list(_grid_of_devices(mesh).flat)


def _grid_of_devices(mesh: Any) -> np.ndarray:
    return mesh.devices


def _kind_of_sharding(sharding: Any) -> Hashable:
    """Returns what the shardings of all parts have in common."""
    if isinstance(sharding, NamedSharding):
        return sharding.spec, tuple(sharding.mesh.shape.items())
    return type(sharding)


def _list_axes(entry: Any) -> tuple[str, ...]:
    """Returns the mesh axes in one entry of a `PartitionSpec`."""
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


@functools.lru_cache(maxsize=1024)
def _shardings_of_parts(sharding: NamedSharding, count: int) -> tuple[Any, ...] | None:
    """Returns the shardings of the parts of a joined array; None if it is no such one."""
    mesh, names = sharding.mesh, sharding.mesh.axis_names
    if names[:1] != (ROWS_AXIS,) or mesh.shape[ROWS_AXIS] != count or not sharding.spec:
        return None
    axes_of_rows, *other_axes = sharding.spec
    first, *inner_axes = _list_axes(axes_of_rows) or (None,)
    if first != ROWS_AXIS:
        return None
    if len(names) == 1:
        return tuple(map(SingleDeviceSharding, list_devices(mesh)))
    spec = PartitionSpec(tuple(inner_axes) or None, *other_axes)
    return tuple(NamedSharding(Mesh(part, names[1:]), spec) for part in _grid_of_devices(mesh))


@dc.dataclass(frozen=True)
class StackedArrays:
    """The flat arguments and results of a function that its program takes and gives in parts.

    Attributes:
      arguments: the split of each flat argument, or None; () if none is split.
      results: the split of each flat result, or None; () if none is split.
    """

    arguments: tuple[RowSplit | None, ...] = ()
    results: tuple[RowSplit | None, ...] = ()

    def __bool__(self) -> bool:
        """Returns whether anything is split."""
        return bool(self.arguments or self.results)

    def split_arguments(self, flat: Sequence[Any]) -> list[Any]:
        """Returns flat arguments with the parts of those that are split.

        Those of another shape are left to the program, which refuses them.
        """
        parts: list[Any] = []
        for array, split in itertools.zip_longest(flat, self.arguments):
            if split is None:
                parts.append(array)
            elif np.shape(array)[:1] == split.bounds[-1:]:
                parts += split_rows(array, split)
            else:
                parts += [array] * len(split.ipus)
        return parts

    def join_arguments(self, parts: Sequence[Any]) -> list[Any]:
        """Returns flat arguments, given what `split_arguments` made of them."""
        return _join_parts(parts, self.arguments)

    def join_results(self, parts: Sequence[Any]) -> list[Any]:
        """Returns flat results, the parts of each in one array."""
        return _join_parts(parts, self.results)

    def numbers_in_program(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Returns the numbers that some flat arguments, or their parts, have in the program."""
        if not self.arguments:
            return tuple(numbers)
        counts = [1 if split is None else len(split.ipus) for split in self.arguments]
        starts = list(itertools.accumulate(counts, initial=0))
        return tuple(part for n in numbers for part in range(starts[n], starts[n + 1]))

    def name_arguments(self, names: Sequence[str]) -> Iterator[str]:
        """Yields the name of each flat argument, or those of its parts: `params['w'][0:2]`."""
        return _name_parts(names, self.arguments)

    def name_results(self, names: Sequence[str]) -> Iterator[str]:
        """Yields the name of each flat result, or those of its parts."""
        return _name_parts(names, self.results)


def _join_parts(parts: Sequence[Any], splits: Sequence[RowSplit | None]) -> list[Any]:
    remaining = iter(parts)
    joined = [
        next(remaining) if split is None else join_rows([next(remaining) for _ in split.ipus])
        for split in splits
    ]
    return [*joined, *remaining]


def _name_parts(names: Sequence[str], splits: Sequence[RowSplit | None]) -> Iterator[str]:
    for number, name in enumerate(names):
        split = splits[number] if number < len(splits) else None
        if split is None:
            yield name
        else:
            yield from (f"{name}[{start}:{stop}]" for start, stop in split.ranges)
