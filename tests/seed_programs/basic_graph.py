"""Tutorial, 3.2: a basic graph. Adds some numbers on one IPU."""

from __future__ import annotations

import jax
import numpy as np

import ipujax as ipu
from ipujax.scopes import ipu_scope


def basic_graph(pa: jax.Array, pb: jax.Array, pc: jax.Array) -> jax.Array:
    o1 = pa + pb
    o2 = pa + pc
    return o1 + o2


def main() -> jax.Array:
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()

    with ipu_scope("/device:IPU:0"):
        run = ipu.compile(basic_graph)

    pa, pb, pc = np.float32([1, 1]), np.float32([0, 1]), np.float32([1, 5])
    result = run(pa, pb, pc)
    print(result)
    return result


if __name__ == "__main__":
    main()
