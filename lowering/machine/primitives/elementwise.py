"""Elementwise operations: every tile works on the elements that it holds.

The formulas are those of docs/hardware.md, Elementwise vertices; the inner loops are in `rates`.
Nothing is exchanged: operands that lie elsewhere are brought by whoever places tensors.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.primitives.complexes import COMPLEX
from lowering.machine.primitives.constants import simplified
from lowering.machine.primitives.rates import (
    BINARY,
    BROADCAST,
    UNARY,
    cast_rate,
    is_known,
    kind_of,
    rate,
)
from lowering.machine.primitives.special import COMPOSED, INTEGER, SPECIAL, Counts, total
from lowering.machine.primitives.vertices import (
    FREE,
    LAUNCH,
    Rate,
    Rule,
    by_workers,
    is_float,
    largest,
    share_of,
    width,
)
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
SELECT_EACH = Rate(5, 1)
DEFAULT_EACH = Rate(10, 1)
"""Cycles per element of an operation that no table knows; chosen, not measured."""


@dc.dataclass(frozen=True, slots=True)
class Loops:
    """What a worker runs for one elementwise operation.

    Attributes:
      start: cycles before its loops.
      rates: of its loops, each with how often it runs: one per function of a chain.
      dtype: of the numbers that they work on.
      launch: tile cycles for starting the workers.
      known: whether all of it is from the tables.
      reads: arrays that it reads, scalars not counted.
    """

    start: float
    rates: tuple[tuple[int, Rate], ...]
    dtype: str
    launch: int = LAUNCH
    known: bool = True
    reads: int = 1

    def cycles(self, elements: int) -> float:
        """Of a worker, for so many elements."""
        loops = sum(times * each.loop(elements, self.dtype) for times, each in self.rates)
        return self.start + loops

    @property
    def functions(self) -> int:
        """How many operations an element takes."""
        return sum(times for times, _ in self.rates)


def loops_of(op: Operation) -> Loops:
    """The loops of any operation of one result; of an unknown one, the default's."""
    name, dtype = op.name, worked_on(op)
    reads = sum(1 for shape in op.operands if shape.dims) or 1
    if name == "convert_element_type":
        start, loop = CAST_START, cast_rate(dtype, op.result.dtype)
        return Loops(start, ((1, loop),), dtype, CAST_LAUNCH, is_known(dtype))
    counts, of = _counted(op, dtype)
    if counts is not None:
        return _chain(counts, of, reads)
    if name == "select_n":
        return Loops(SELECT_START, ((1, SELECT_EACH),), dtype, reads=reads)
    if name in UNARY:
        start = EXP_START if name == "exp" else UNARY_START
        loops = ((1, rate(UNARY[name], dtype)),)
        return Loops(start, loops, dtype, UNARY_LAUNCH, is_known(dtype))
    if name in BINARY:
        return _binary(op, dtype, reads)
    return Loops(BINARY_START_OTHERS, ((1, DEFAULT_EACH),), dtype, known=False, reads=reads)


def worked_on(op: Operation) -> str:
    """The element type that an operation computes with; selectors come first, values last."""
    shapes = op.operands or op.results
    return shapes[0 if op.name == "pow" else -1].dtype  # an exponent may be a whole number


def _counted(op: Operation, dtype: str) -> tuple[Counts | None, str]:
    """What an operation is a chain of, on numbers of which type; None if it is in the tables."""
    name = op.name
    if name == "integer_pow":
        counts = _power(int(op.param("y", 2)))
        if not dtype.startswith("complex"):
            return counts, dtype
        return total(*(total(COMPLEX[part], times=n) for part, n in counts.items())), _part(dtype)
    if dtype.startswith("complex") and name in COMPLEX:
        return COMPLEX[name], _part(dtype)
    if name in SPECIAL:
        return SPECIAL[name], "float64" if dtype == "float64" else "float32"
    if name in INTEGER:
        return INTEGER[name], "int32"
    return COMPOSED.get(name), dtype


def _part(dtype: str) -> str:
    return "float64" if dtype == "complex128" else "float32"


def _binary(op: Operation, dtype: str, reads: int) -> Loops:
    with_scalar = reads == 1 and bool(op.result.dims)
    loop = rate((BROADCAST if with_scalar else BINARY)[op.name], dtype)
    start = BROADCAST_START if with_scalar else _start(dtype)
    return Loops(start, ((1, loop),), dtype, known=is_known(dtype), reads=reads)


def _chain(counts: Counts, dtype: str, reads: int) -> Loops:
    loops = tuple((times, _loop(name, dtype)) for name, times in counts.items())
    return Loops(_start(dtype), loops, dtype, known=is_known(dtype), reads=reads)


def _start(dtype: str) -> int:
    return BINARY_START.get(kind_of(dtype), BINARY_START_OTHERS)


def _loop(name: str, dtype: str) -> Rate:
    if name == "select_n":
        return SELECT_EACH
    return rate(UNARY.get(name) or BINARY[name], dtype)


def _power(exponent: int) -> Counts:
    size = abs(exponent)
    products = max(0, size.bit_length() - 1) + max(0, size.bit_count() - 1)
    chain = {"square": 1} if size == 2 else {"mul": products} if products else {}
    if exponent < 0:
        return {**chain, "inverse": 1}
    return chain or {"mul": 1}


def elementwise(op: Operation, target: Target) -> Cost:
    """One vertex per tile over what the tile holds; may write over its operand."""
    op = simplified(op)
    shape = largest((*op.results, *op.operands))
    same = op.name == "convert_element_type" and op.operands[0].dtype == op.result.dtype
    if same or not all(result.elements for result in op.results):
        return FREE
    loops = loops_of(op)
    worker = loops.cycles(share_of(shape, target))
    return dc.replace(
        by_workers(op, target, shape, worker, launch=loops.launch),
        flops=float(shape.elements * loops.functions) if is_float(loops.dtype) else 0.0,
        in_place=op.result in op.operands,
        source="formula" if loops.known else "default",
    )


def cycles_of(counts: Mapping[str, float], dtype: str) -> float:
    """Worker cycles per element of operations on two arrays, their starts not counted."""
    pair = Shape((2,), dtype)
    cycles = 0.0
    for name, times in counts.items():
        loops = loops_of(Operation(name, (pair, pair), (pair,)))
        lanes = width(loops.dtype)
        each = (count * loop.cycles / (loop.elements or lanes) for count, loop in loops.rates)
        cycles += times * sum(each)
    return cycles


ELEMENTWISE: frozenset[str] = frozenset(
    {
        *(*UNARY, *BINARY, *COMPOSED, *INTEGER, *SPECIAL),
        *("convert_element_type", "integer_pow", "select_n"),
    }
) - {"inverse", "relu"}
"""The primitives whose every result element depends on one element of each operand."""

RULES: dict[str, Rule] = dict.fromkeys(ELEMENTWISE, elementwise)
