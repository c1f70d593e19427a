"""Random numbers.

The choice made here: whatever JAX computes with counters and hashes (threefry, philox), an IPU
takes from the generator that each of its tiles has in hardware, as poprand does. So filling a
tensor with random bits costs what poprand's Uniform vertex costs (poplibs:
poprand/poprandCycleEstimators.cpp: 25 + 3 per 64-bit vector worker cycles, seeds saved and
restored), and keys cost next to nothing. Values differ from JAX's only on the chip; what the
emulator computes is JAX's.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.elementwise import cycles_of
from lowering.machine.primitives.vertices import (
    FREE,
    Rate,
    Rule,
    alike,
    by_workers,
    free,
    largest,
    share_of,
    width,
)
from lowering.machine.target import Target

START = 25
UNIFORM = Rate(3)
REJECTED = 0.05
GAMMA_ROUND = {"erf_inv": 1, "mul": 9, "add": 3, "sub": 4, "log": 2, "lt": 2, "le": 1, "or": 1}
GAMMA_ONCE = {"lt": 1, "select_n": 2, "sub": 2, "sqrt": 1, "div": 2, "log": 1, "mul": 2, "exp": 1}
"""Operations of a round, and before and after all of them; a power makes up for shapes below 1."""


def fill(op: Operation, target: Target) -> Cost:
    """Each tile draws the bits of its elements."""
    shape = largest(op.results)
    if not shape.elements:
        return FREE
    worker = START + UNIFORM.loop(share_of(shape, target), shape.dtype) * len(op.results)
    return by_workers(op, target, shape, worker, library="poprand")


def gamma(op: Operation, target: Target) -> Cost:
    """Marsaglia and Tsang's draws by rejection, as JAX makes them (jax/_src/random.py).

    A round draws a normal and a uniform number and accepts at least 95 % of them. All elements wait
    for the last, so there are as many rounds as leave less than one of them.
    """
    shape = largest(op.results)
    if not shape.elements:
        return FREE
    rounds = 1 + math.ceil(math.log(shape.elements) / -math.log(REJECTED))
    each = cycles_of(GAMMA_ROUND, "float32") + 2 * UNIFORM.cycles / width("float32")
    all_rounds = rounds * each + cycles_of(GAMMA_ONCE, "float32")
    worker = START + share_of(shape, target) * all_rounds
    cost = by_workers(op, target, shape, worker, library="poprand")
    functions = rounds * sum(GAMMA_ROUND.values()) + sum(GAMMA_ONCE.values())
    return dc.replace(cost, flops=float(functions * shape.elements))


_FILLS = """
iota_2x32_shape philox2x32 philox4x32 ipu_draw_key ipu_random_halves random_bits random_fold_in
random_seed random_split rng_bit_generator rng_uniform threefry2x32 threefry4x32
"""
_KEYS = "random_clone random_unwrap random_wrap from_edtype to_edtype"  # under another type

RULES: dict[str, Rule] = {
    **alike(fill, _FILLS),
    **alike(free, _KEYS),
    "random_gamma": gamma,
}
