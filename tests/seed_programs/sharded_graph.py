"""Tutorial, 3.4: the graph sharded over four IPUs, each sum on an IPU of its own."""

from __future__ import annotations

import jax
import numpy as np

import ipujax as ipu
from ipujax.scopes import ipu_scope

NUM_IPUS = 4


def sharded_graph(pa: jax.Array, pb: jax.Array, pc: jax.Array) -> jax.Array:
    with ipu.scopes.ipu_shard(0):
        o1 = pa + pb
    with ipu.scopes.ipu_shard(1):
        o2 = pa + pc
    with ipu.scopes.ipu_shard(2):
        o3 = pb + pc
    with ipu.scopes.ipu_shard(3):
        out = o1 + o2 + o3
        return out


def main() -> tuple[jax.Array]:
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = NUM_IPUS
    cfg.configure_ipu_system()

    pa, pb, pc = np.float32([1, 1]), np.float32([0, 1]), np.float32([1, 5])
    with ipu_scope("/device:IPU:0"):
        result = ipu.ipu_compiler.compile(sharded_graph, [pa, pb, pc])
    print(result)
    return result


if __name__ == "__main__":
    main()
