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

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.vertices import (
    FREE,
    Rate,
    Rule,
    largest,
    on_worker,
    one_phase,
    spread,
    supervisor,
)
from lowering.machine.target import Target

START = 25
UNIFORM = Rate(3)
GAMMA = Rate(30)
GAMMA_ROUNDS = 4


def fill(op: Operation, target: Target) -> Cost:
    """Each tile draws the bits of its elements."""
    shape = largest(op.results)
    if not shape.elements:
        return FREE
    share = on_worker(spread(shape, target).most_elements, target)
    worker = START + UNIFORM.loop(share, shape.dtype) * len(op.results)
    return one_phase(op, target, shape, supervisor(worker, target), library="poprand")


def same_key(op: Operation, target: Target) -> Cost:
    """A key's words, under another type."""
    return FREE


def gamma(op: Operation, target: Target) -> Cost:
    """Draws by rejection: four rounds of normal and uniform numbers and a logarithm, assumed."""
    shape = largest(op.results)
    if not shape.elements:
        return FREE
    share = on_worker(spread(shape, target).most_elements, target)
    worker = START + GAMMA_ROUNDS * GAMMA.loop(share, shape.dtype)
    cost = one_phase(op, target, shape, supervisor(worker, target), library="poprand")
    return dc.replace(cost, flops=10.0 * GAMMA_ROUNDS * shape.elements, source="default")


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "iota_2x32_shape",
            "philox2x32",
            "philox4x32",
            "ipu_draw_key",
            "ipu_random_halves",
            "random_bits",
            "random_fold_in",
            "random_seed",
            "random_split",
            "rng_bit_generator",
            "rng_uniform",
            "threefry2x32",
            "threefry4x32",
        ),
        fill,
    ),
    "random_gamma": gamma,
    **dict.fromkeys(
        ("random_clone", "random_unwrap", "random_wrap", "from_edtype", "to_edtype"), same_key
    ),
}
