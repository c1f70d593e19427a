"""The cost of random numbers.

The choice made here: where JAX computes random numbers with counters and hashes (threefry, philox),
an IPU takes them from the generator that each of its tiles has in hardware, as poprand does. So
filling a tensor with random bits costs as much as poprand's Uniform vertex (poplibs:
poprand/poprandCycleEstimators.cpp: 25 + 3 per 64-bit vector worker cycles, seeds saved and
restored), and keys cost next to nothing. Values differ from JAX's only on the chip; the
emulator computes JAX's.
"""

from __future__ import annotations

import dataclasses as dc
import math

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.elementwise_cost import cycles_per_element
from lowering.machine.primitives.rule_helpers import (
    FREE,
    LoopRate,
    Rule,
    largest_shape,
    rules_for_names,
    vector_width,
    worker_set_cost,
    worker_share,
    zero_cost_rule,
)
from lowering.machine.target import Target

START = 25
UNIFORM = LoopRate(3)
REJECTED = 0.05
GAMMA_ROUND = {"erf_inv": 1, "mul": 9, "add": 3, "sub": 4, "log": 2, "lt": 2, "le": 1, "or": 1}
GAMMA_ONCE = {"lt": 1, "select_n": 2, "sub": 2, "sqrt": 1, "div": 2, "log": 1, "mul": 2, "exp": 1}
"""Operations of a round, and before and after all of them; a power makes up for shapes below 1."""


def random_fill_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of random bits: each tile draws those of its elements."""
    shape = largest_shape(op.results)
    if not shape.elements:
        return FREE
    worker = START + UNIFORM.cycles_of_loop(worker_share(shape, target), shape.dtype) * len(
        op.results
    )
    return worker_set_cost(op, target, shape, worker, library="poprand")


def random_gamma_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of Marsaglia and Tsang's rejection sampling (jax/_src/random.py).

    A round draws a normal and a uniform number and accepts at least 95 % of them. All elements wait
    for the last, so there are as many rounds as leave less than one of them.
    """
    shape = largest_shape(op.results)
    if not shape.elements:
        return FREE
    rounds = 1 + math.ceil(math.log(shape.elements) / -math.log(REJECTED))
    cycles_per_round = cycles_per_element(
        GAMMA_ROUND, "float32"
    ) + 2 * UNIFORM.cycles / vector_width("float32")
    all_rounds = rounds * cycles_per_round + cycles_per_element(GAMMA_ONCE, "float32")
    worker = START + worker_share(shape, target) * all_rounds
    cost = worker_set_cost(op, target, shape, worker, library="poprand")
    functions = rounds * sum(GAMMA_ROUND.values()) + sum(GAMMA_ONCE.values())
    return dc.replace(cost, flops=float(functions * shape.elements))


_FILLS = """
iota_2x32_shape philox2x32 philox4x32 ipu_draw_key ipu_random_halves random_bits random_fold_in
random_seed random_split rng_bit_generator rng_uniform threefry2x32 threefry4x32
"""
_KEYS = "random_clone random_unwrap random_wrap from_edtype to_edtype"  # under another type

RULES: dict[str, Rule] = {
    **rules_for_names(random_fill_cost, _FILLS),
    **rules_for_names(zero_cost_rule, _KEYS),
    "random_gamma": random_gamma_cost,
}
