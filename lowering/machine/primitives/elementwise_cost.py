"""Elementwise operations: every tile works on the elements that it holds.

The formulas are those of docs/hardware.md, Elementwise vertices; the inner loops are in `rates`.
Nothing is exchanged: the kernel model charges the rearrangement of operands that lie elsewhere.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.primitives.complex_numbers import COMPLEX
from lowering.machine.primitives.constant_folding import simplify_constant_operand
from lowering.machine.primitives.rates import (
    BINARY,
    BROADCAST,
    UNARY,
    has_own_rates,
    rate_for_dtype,
    rate_of_cast,
    table_name_of,
)
from lowering.machine.primitives.rule_helpers import (
    FREE,
    LAUNCH,
    LoopRate,
    Rule,
    is_float,
    largest_shape,
    vector_width,
    worker_set_cost,
    worker_share,
)
from lowering.machine.primitives.special import COMPOSED, INTEGER, SPECIAL, Counts, add_counts
from lowering.machine.target import Target

UNARY_LAUNCH = 20
UNARY_START = 17
EXP_START = 33
BINARY_START = {"half": 26}
BINARY_START_OTHERS = 29
BROADCAST_START = 20
CAST_START = 37
CAST_LAUNCH = 12
SELECT_START = 6
SELECT_EACH = LoopRate(5, 1)
DEFAULT_EACH = LoopRate(10, 1)
"""Cycles per element of an operation that no table knows; chosen, not measured."""


@dc.dataclass(frozen=True, slots=True)
class WorkerLoops:
    """The loops that a worker runs for one elementwise operation.

    Attributes:
      start: cycles before its loops.
      rates: the rates of its loops, each with how often it runs: one per function of a chain.
      dtype: the type of the numbers that they work on.
      launch: tile cycles for starting the workers.
      known: whether all rates are from the tables.
      reads: arrays that it reads, scalars not counted.
    """

    start: float
    rates: tuple[tuple[int, LoopRate], ...]
    dtype: str
    launch: int = LAUNCH
    known: bool = True
    reads: int = 1

    def cycles_for_elements(self, elements: int) -> float:
        """Returns the cycles of a worker for so many elements."""
        loops = sum(
            times * loop_rate.cycles_of_loop(elements, self.dtype)
            for times, loop_rate in self.rates
        )
        return self.start + loops

    @property
    def operations_per_element(self) -> int:
        """The number of operations that an element takes."""
        return sum(times for times, _ in self.rates)


def worker_loops_of_operation(op: Operation) -> WorkerLoops:
    """Returns the loops of an operation of one result; of an unknown one, the default's."""
    name, dtype = op.name, computing_dtype(op)
    reads = sum(1 for shape in op.operands if shape.dims) or 1
    if name == "convert_element_type":
        start, loop = CAST_START, rate_of_cast(dtype, op.first_result.dtype)
        return WorkerLoops(start, ((1, loop),), dtype, CAST_LAUNCH, has_own_rates(dtype))
    counts, counted_dtype = _decompose_operation(op, dtype)
    if counts is not None:
        return _loops_of_chain(counts, counted_dtype, reads)
    if name == "select_n":
        return WorkerLoops(SELECT_START, ((1, SELECT_EACH),), dtype, reads=reads)
    if name in UNARY:
        start = EXP_START if name == "exp" else UNARY_START
        loops = ((1, rate_for_dtype(UNARY[name], dtype)),)
        return WorkerLoops(start, loops, dtype, UNARY_LAUNCH, has_own_rates(dtype))
    if name in BINARY:
        return _loops_of_binary(op, dtype, reads)
    return WorkerLoops(BINARY_START_OTHERS, ((1, DEFAULT_EACH),), dtype, known=False, reads=reads)


def computing_dtype(op: Operation) -> str:
    """Returns the element type that an operation computes with."""
    shapes = op.operands or op.results
    return shapes[0 if op.name == "pow" else -1].dtype  # an exponent may be a whole number


def _decompose_operation(op: Operation, dtype: str) -> tuple[Counts | None, str]:
    """Returns the counts and type of the chain that an operation is, or None if tables have it."""
    name = op.name
    if name == "integer_pow":
        counts = _counts_of_power(int(op.param("y", 2)))
        if not dtype.startswith("complex"):
            return counts, dtype
        return add_counts(
            *(add_counts(COMPLEX[part], times=n) for part, n in counts.items())
        ), _float_part_of(dtype)
    if dtype.startswith("complex") and name in COMPLEX:
        return COMPLEX[name], _float_part_of(dtype)
    if name in SPECIAL:
        return SPECIAL[name], "float64" if dtype == "float64" else "float32"
    if name in INTEGER:
        return INTEGER[name], "int32"
    return COMPOSED.get(name), dtype


def _float_part_of(dtype: str) -> str:
    return "float64" if dtype == "complex128" else "float32"


def _loops_of_binary(op: Operation, dtype: str, reads: int) -> WorkerLoops:
    with_scalar = reads == 1 and bool(op.first_result.dims)
    loop = rate_for_dtype((BROADCAST if with_scalar else BINARY)[op.name], dtype)
    start = BROADCAST_START if with_scalar else _start_cycles(dtype)
    return WorkerLoops(start, ((1, loop),), dtype, known=has_own_rates(dtype), reads=reads)


def _loops_of_chain(counts: Counts, dtype: str, reads: int) -> WorkerLoops:
    loops = tuple((times, _rate_of_name(name, dtype)) for name, times in counts.items())
    return WorkerLoops(_start_cycles(dtype), loops, dtype, known=has_own_rates(dtype), reads=reads)


def _start_cycles(dtype: str) -> int:
    return BINARY_START.get(table_name_of(dtype), BINARY_START_OTHERS)


def _rate_of_name(name: str, dtype: str) -> LoopRate:
    if name == "select_n":
        return SELECT_EACH
    return rate_for_dtype(UNARY.get(name) or BINARY[name], dtype)


def _counts_of_power(exponent: int) -> Counts:
    size = abs(exponent)
    products = max(0, size.bit_length() - 1) + max(0, size.bit_count() - 1)
    chain = {"square": 1} if size == 2 else {"mul": products} if products else {}
    if exponent < 0:
        return {**chain, "inverse": 1}
    return chain or {"mul": 1}


def elementwise_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of an elementwise operation: one vertex per tile over its elements."""
    op = simplify_constant_operand(op)
    shape = largest_shape((*op.results, *op.operands))
    is_noop = op.name == "convert_element_type" and op.operands[0].dtype == op.first_result.dtype
    if is_noop or not all(result.elements for result in op.results):
        return FREE
    loops = worker_loops_of_operation(op)
    cycles_of_worker = loops.cycles_for_elements(worker_share(shape, target))
    return dc.replace(
        worker_set_cost(op, target, shape, cycles_of_worker, launch=loops.launch),
        flops=float(shape.elements * loops.operations_per_element)
        if is_float(loops.dtype)
        else 0.0,
        in_place=op.first_result in op.operands,
        source="formula" if loops.known else "default",
    )


def cycles_per_element(counts: Mapping[str, float], dtype: str) -> float:
    """Returns the worker cycles per element of operations on two arrays, without their starts."""
    pair = Shape((2,), dtype)
    cycles = 0.0
    for name, times in counts.items():
        loops = worker_loops_of_operation(Operation(name, (pair, pair), (pair,)))
        lanes = vector_width(loops.dtype)
        loop_cycles = (
            count * loop.cycles / (loop.elements or lanes) for count, loop in loops.rates
        )
        cycles += times * sum(loop_cycles)
    return cycles


ELEMENTWISE: frozenset[str] = frozenset(
    {
        *(*UNARY, *BINARY, *COMPOSED, *INTEGER, *SPECIAL),
        *("convert_element_type", "integer_pow", "select_n"),
    }
) - {"inverse", "relu"}
"""The primitives whose every result element depends on one element of each operand."""

RULES: dict[str, Rule] = dict.fromkeys(ELEMENTWISE, elementwise_cost)
