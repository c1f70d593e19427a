"""Whether `engine="auto"` picks the faster reader: on four CPU devices, small work and large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, print_rows, rows_of_process, seconds

SIZES = (32, 256, 768)


def rows() -> list[Row]:
    """Measured on four CPU devices."""
    return rows_of_process("benchmarks.engines", devices=4)


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
    print_rows(_measure())
