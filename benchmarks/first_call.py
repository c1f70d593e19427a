"""What the first call on the engine `replay` costs, against XLA's compilation by `jax.jit`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import optax

import ipujax as ipu
from benchmarks.lowering_time import transformer_arguments, transformer_step
from benchmarks.measure import Row, print_rows, rows_of_process

LAYERS, PAIRS = 8, 5


def rows() -> list[Row]:
    """The training step of a transformer over four IPUs, on one CPU device and on four."""
    return [row for n in (1, 4) for row in rows_of_process("benchmarks.first_call", devices=n)]


def _measure() -> list[Row]:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    optimizer = optax.adamw(1e-3)
    parameters, tokens = transformer_arguments(LAYERS)
    arguments = parameters, optimizer.init(parameters), tokens

    def step(parameters: Any, state: Any, tokens: Any) -> Any:
        loss, gradients = transformer_step(parameters, tokens)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    def ours() -> Any:
        return jax.block_until_ready(ipu.compile(step, engine="replay")(*arguments))

    def baseline() -> Any:
        return jax.jit(step).lower(*arguments).compile()

    pairs = [(_afresh(ours), _afresh(baseline)) for _ in range(PAIRS)]
    wall, work = ([(a[i], b[i]) for a, b in pairs] for i in (0, 1))
    one, other = (statistics.median(column) for column in zip(*wall, strict=True))
    note = f"{one:.2f} s / {other:.2f} s; work of the processor: {_ratio(work):.2f}"
    count = jax.device_count()
    what = f"a transformer's step: first call on replay / jit's compilation, {count} device"
    return [Row(what + "s" * (count > 1), _ratio(wall), 1.5, note)]


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(mine / theirs for mine, theirs in pairs)


def _afresh(function: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a call that finds nothing compiled: of the clock, and of all cores together."""
    jax.clear_caches()
    clock, work = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - clock, time.process_time() - work


if __name__ == "__main__":
    print_rows(_measure())
