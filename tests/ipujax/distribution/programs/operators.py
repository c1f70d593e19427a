"""What replicas say to one another, and its derivatives: of each kind, or in `every` way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from shared import configured, tell_replicas

import ipujax as ipu
from ipujax.all_to_all_op import all_gather, all_to_all
from ipujax.cross_replica_ops import (
    assume_equal_across_replicas,
    cross_replica_mean,
    cross_replica_sum,
)
from ipujax.reduce_scatter_op import reduce_scatter
from ipujax.replication_ops import replication_index, replication_normalise

EVERY = "every" in sys.argv
GROUPS = (1, 2, 4) if EVERY else (2, 4)
FEW = "ADD", "MAX"
MORE = "MUL", "MIN", "LOGICAL_AND", "LOGICAL_OR", "SQUARE_ADD", "LOCAL", "MEAN"
OPS = (*FEW, *MORE) if EVERY else FEW

config = ipu.config.IPUConfig()
config.norms.experimental.distributed_batch_norm_replica_group_size = 2
configured(ipus=1, config=config)
ipu.utils.reset_ipu_seed(7)


def floats(*shape: int) -> jax.Array:
    """Numbers that differ between replicas."""
    key = jax.random.fold_in(jax.random.key(3), replication_index())
    return jax.random.normal(key, shape)


def each_group(operator: Callable[..., Any], *arguments: Any) -> list[Any]:
    return [operator(*arguments, size) for size in GROUPS]


def differentiated(operator: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """The gradient of the result's sum, in which each replica weighs it otherwise."""
    weights = floats(*jax.eval_shape(operator, x).shape)
    return jax.grad(lambda x: (weights * operator(x)).sum())(x)


def said() -> dict[str, Any]:
    x, counts = floats(4, 8), 1 + jnp.arange(6) + replication_index()
    flat = x.reshape(-1)[:7]
    return {
        "index": replication_index(),
        "normalised": replication_normalise(x),
        "sum": [cross_replica_sum(x), *each_group(cross_replica_sum, x)],
        "sum of integers": each_group(cross_replica_sum, counts),
        "sum of halves": each_group(cross_replica_sum, x.astype(jnp.float16)),
        "mean": [
            cross_replica_mean(x),
            cross_replica_mean(x, 0),
            *each_group(cross_replica_mean, x),
        ],
        "equal": assume_equal_across_replicas(cross_replica_sum(x)),
        "gathered": [each_group(all_gather, x), all_gather([x, counts, counts > 3], 2)],
        "dealt": [
            all_to_all(x, *axes, size) for axes in ((0, 0), (0, 1), (1, 0)) for size in GROUPS
        ],
        "scattered": [
            reduce_scatter(flat, size, f"COLLECTIVE_OP_{op}") for op in OPS for size in GROUPS
        ],
        "scattered integers": [reduce_scatter(counts, 4, f"COLLECTIVE_OP_{op}") for op in OPS],
    }


def learned() -> dict[str, Any]:
    x = floats(4, 8)
    flat = x.reshape(-1)[:7]
    operators = {
        "sum": cross_replica_sum,
        "mean": cross_replica_mean,
        "gather": all_gather,
        "deal": lambda x, size: all_to_all(x, 0, 1, size),
    }
    gradients = {
        f"gradient of {name}": [differentiated(lambda x, f=f, n=n: f(x, n), x) for n in GROUPS]
        for name, f in operators.items()
    }
    gradients["gradient of scatter"] = [
        differentiated(lambda x, n=n, op=op: reduce_scatter(x, n, f"COLLECTIVE_OP_{op}"), flat)
        for n in GROUPS
        for op in OPS
        if "LOGICAL" not in op and op != "MIN"
    ]
    second = jax.grad(lambda x: differentiated(lambda y: cross_replica_sum(y**3, 2), x).sum())
    return {**gradients, "second derivative": second(x)}


def normed() -> dict[str, Any]:
    def norm(x: jax.Array) -> Any:
        return ipu.normalization_ops.batch_norm(x, gamma=None, beta=None)

    x = floats(6, 3)
    return {
        "batch norm": norm(x),
        "gradient of batch norm": differentiated(lambda x: norm(x)[0], x),
    }


def drawn() -> dict[str, Any]:
    def body(total: jax.Array) -> jax.Array:
        return total + ipu.rand_ops.dropout(jnp.ones(16), 0.5)

    return {
        "draws": [ipu.rand_ops.dropout(jnp.ones((2, 16)), 0.25) for _ in range(2)],
        "draws of a loop": ipu.loops.repeat(3, body, [jnp.zeros(16)]),
    }


def on_host(x: jax.Array) -> jax.Array:
    """What the host makes of the first replica's values."""
    with ipu.scopes.outside_compilation_scope():
        mean = x.reshape(2, 2).mean(0)
        key = jax.random.fold_in(jax.random.key(3), jnp.sign(mean[0]).astype(int))
    return mean * x[:2] + jax.random.uniform(key, (2,))


def steered() -> dict[str, Any]:
    x, index = floats(4), replication_index()
    shared = cross_replica_sum(jnp.int32(1))

    @ipu.functional_ops.outlined_function
    def outlined(x: jax.Array) -> jax.Array:
        return cross_replica_sum(x, 2) * x

    return {
        "outlined": [outlined(x), outlined(2 * x)],
        "on the host": on_host(x),
        "condition on own": jax.lax.cond(index % 2 == 0, jnp.sin, jnp.cos, x),
        "sum under a condition": jax.lax.cond(index > 1, cross_replica_sum, jnp.negative, x),
        "loop of other lengths with a sum": jax.lax.while_loop(
            lambda c: c[0] < 9, lambda c: c + 1 + cross_replica_sum(jnp.abs(c), 2), x
        ),
        "condition on all": jax.lax.cond(shared > 2, jnp.sin, jnp.cos, x),
        "loop of own length": jax.lax.fori_loop(0, index, lambda _, x: 2 * x, x),
        "loop": jax.lax.fori_loop(0, 3, lambda _, x: cross_replica_mean(x) + x / 2, x),
        "scan": jax.lax.scan(lambda c, y: (c + all_gather(y, 4)[0], c * y), jnp.float32(0), x),
    }


outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


@ipu.compile
def program() -> None:
    outfeed.enqueue({**said(), **learned(), **normed(), **drawn(), **steered()})


for _ in range(2):  # draws other numbers
    program()
tell_replicas(outfeed.dequeue())
