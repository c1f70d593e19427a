"""Whether `engine="auto"` picks the faster reader: on four CPU devices, small work and large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, seconds

_FLAG = "--xla_force_host_platform_device_count=4"
SIZES = (32, 256, 768)


def rows() -> list[Row]:
    """Measured in a process of its own, since JAX counts its devices once."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}"
    command = [sys.executable, "-m", "benchmarks.engines"]
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return [Row(**fields) for fields in json.loads(done.stdout)]


def _measure() -> list[Row]:
    import jax
    import jax.numpy as jnp

    import ipujax as ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    def work(x: Any) -> Any:
        for _ in range(6):
            x = jnp.tanh(x @ x)
        return x

    def two_shards(a: Any, b: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = work(a)
        with ipu.scopes.ipu_shard(1):
            return y.sum() + work(b).sum()

    def timed(engine: str, argument: Any) -> Callable[[], Any]:
        run = ipu.compile(two_shards, engine=engine)
        return lambda: jax.block_until_ready(run(argument, argument))

    found: list[Row] = []
    for size in SIZES:
        argument = jnp.ones((size, size)) / size
        runs = [timed(engine, argument) for engine in ("auto", "fused", "replay")]
        for run in runs:
            run()
        times = sorted(_ratio(runs) for _ in range(11))
        what = f"engine=auto / the faster engine, two shards of {size} x {size}"
        found.append(Row(what, times[len(times) // 2], 1.2))
    return found


def _ratio(runs: list[Callable[[], Any]]) -> float:
    auto, fused, replay = (seconds(run, 3) for run in runs)
    return auto / min(fused, replay)


if __name__ == "__main__":
    import dataclasses

    print(json.dumps([dataclasses.asdict(r) for r in _measure()]))
