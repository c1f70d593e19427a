"""Trains four IPUs on meshes of two CPU devices, all of one process or of several."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import ipujax as ipu

ipu.popdist.init()
meshes = ipu.meshes(4, {"data": 2})
weights = [np.random.RandomState(seed).randn(8, 8).astype(np.float32) / 3 for seed in range(4)]


def loss_fn(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    h = x
    for number, weight in enumerate(weights):
        with ipu.scopes.ipu_shard(number):
            h = jax.lax.with_sharding_constraint(jnp.tanh(h @ weight), P("data", None))
    with ipu.scopes.ipu_shard(3):
        return (h**2).mean()


@ipu.compile(meshes=meshes)
def step(weights: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    loss, grads = jax.value_and_grad(loss_fn)(weights, x)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], loss


x = jnp.ones((4, 8))
state, loss = step(list(map(jnp.asarray, weights)), x)
for _ in range(2):
    state, loss = step(state, x)
own = [w for w in state if len(w.sharding.device_set) == 2]
assert len(own) == 4 // ipu.popdist.getNumInstances()
state, loss = ipu.popdist.gather((state, loss))
index = ipu.popdist.getInstanceIndex()
numbers = [float(loss), *(float(jnp.sum(w)) for w in state)]
print(json.dumps({"index": index, "numbers": [round(number, 5) for number in numbers]}), flush=True)
