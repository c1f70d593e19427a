"""Tutorial, 3.3: the basic graph, compiled and run by `ipu_compiler.compile`."""

from __future__ import annotations

import jax
import numpy as np

from ipujax import ipu_compiler
from ipujax.config import IPUConfig
from ipujax.scopes import ipu_scope


def basic_graph(pa: jax.Array, pb: jax.Array, pc: jax.Array) -> jax.Array:
    o1 = pa + pb
    o2 = pa + pc
    return o1 + o2


def main() -> tuple[jax.Array]:
    cfg = IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()

    pa, pb, pc = np.float32([1, 1]), np.float32([0, 1]), np.float32([1, 5])
    with ipu_scope("/device:IPU:0"):
        result = ipu_compiler.compile(basic_graph, [pa, pb, pc])
    print(result)
    return result


if __name__ == "__main__":
    main()
