"""Arrays over the devices of two instances, saved, and restored by each for its devices."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ipujax as ipu

directory = sys.argv[1]
ipu.popdist.init()
index = ipu.popdist.getInstanceIndex()
mesh = Mesh(np.array(jax.devices()), ("a",))
assert len(jax.devices()) == 2
numbers = np.arange(8, dtype=np.float32).reshape(4, 2)


def spread(*spec: str | None) -> jax.Array:
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.make_array_from_callback(numbers.shape, sharding, numbers.__getitem__)


def shards(array: jax.Array) -> list[Any]:
    return [np.asarray(shard.data).tolist() for shard in array.addressable_shards]


told: dict[str, Any] = {"index": index}
rows, everywhere = spread("a"), spread()
try:
    told["path of half"] = ipu.checkpoint.save(directory, 0, {"rows": rows})
except ipu.errors.CheckpointError as error:
    told["error"] = str(error)
gathered = multihost_utils.process_allgather(rows, tiled=True)
ipu.checkpoint.save(directory, 1, {"rows": gathered, "everywhere": everywhere})
multihost_utils.sync_global_devices("saved")

keys = {"rows": rows, "everywhere": everywhere}
first = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), PartitionSpec())
likes = {
    "arrays": keys,
    "columns": {
        name: jax.ShapeDtypeStruct(
            (4, 2), np.float32, sharding=NamedSharding(mesh, PartitionSpec(None, "a"))
        )
        for name in keys
    },
    "first": {name: jax.ShapeDtypeStruct((4, 2), np.float32, sharding=first) for name in keys},
}
for name, like in likes.items():
    restored = ipu.checkpoint.restore(directory, like=like)
    assert all(restored[leaf].sharding == like[leaf].sharding for leaf in keys)
    told[name] = {leaf: shards(restored[leaf]) for leaf in keys}
print(json.dumps(told), flush=True)
