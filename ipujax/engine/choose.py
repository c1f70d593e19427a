"""Picks the faster reader for the devices and the program at hand."""

from __future__ import annotations

import jax

from ipujax.engine.placement import Placement
from ipujax.errors import ConfigError
from lowering import ir, jaxpr

ENGINES = ("auto", "fused", "replay")

# What one dispatched kernel and its copies cost the host, in seconds, and what one JAX device
# computes in a second (a few CPU cores; more on accelerators, where overlap pays later).
# Measured by `benchmarks/engines.py`; only their ratio to one another matters.
DISPATCH_SECONDS = 60e-6
OPERATIONS_PER_SECOND = {"cpu": 2e10}
_ACCELERATOR_OPERATIONS_PER_SECOND = 5e13


def check_engine(engine: str) -> str:
    """The engine's name, if there is such an engine.

    Raises:
      ConfigError: otherwise.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine={engine!r}: choose one of {', '.join(map(repr, ENGINES))}")
    return engine


def choose_engine(engine: str, program: ir.Program, placement: Placement) -> str:
    """`fused` or `replay`, whichever is faster if the user leaves it to us.

    One device gains nothing from separate kernels. With several, `replay` wins where the work
    that can overlap is longer than the extra dispatches take.
    """
    if engine != "auto":
        return engine
    if placement.uses_one_device or placement.ipus == 1:
        return "fused"
    saved = _overlapped_seconds(program)
    kernels = sum(isinstance(node, ir.Execute) for node in ir.walk(program.body))
    return "replay" if saved > 2 * DISPATCH_SECONDS * kernels else "fused"


def _overlapped_seconds(program: ir.Program) -> float:
    """Time that kernels of different IPUs could run side by side, over one pass of the program."""
    rate = OPERATIONS_PER_SECOND.get(jax.default_backend(), _ACCELERATOR_OPERATIONS_PER_SECOND)
    total = 0.0
    finish: dict[int, float] = {}
    free = dict.fromkeys(range(program.ipus), 0.0)
    for node in ir.walk(program.body):
        if isinstance(node, ir.Execute):
            seconds = jaxpr.operations(node.kernel.jaxpr.jaxpr) / rate
            ready = max((finish.get(value, 0.0) for value in node.reads), default=0.0)
            end = max(ready, free[node.ipu]) + seconds
            free[node.ipu] = end
            finish.update(dict.fromkeys(node.writes, end))
            total += seconds
    return total - max(free.values(), default=0.0)
