"""Elementwise operations: every tile works on the elements that it holds.

The formulas are those of docs/hardware.md, Elementwise vertices; the inner loops are in `rates`.
Nothing is exchanged: operands that lie elsewhere are brought by whoever places tensors.
"""

from __future__ import annotations

import dataclasses as dc

from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives.constants import simplified
from lowering.machine.primitives.rates import (
    ASSUMED,
    BINARY,
    BROADCAST,
    CASTS,
    COMPOSED,
    OTHER_CAST,
    UNARY,
    Rates,
    kind_of,
    rate,
)
from lowering.machine.primitives.vertices import (
    FREE,
    LAUNCH,
    Rate,
    Rule,
    is_float,
    largest,
    on_worker,
    one_phase,
    spread,
    supervisor,
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
      rates: of its loops, one per function of a chain.
      launch: tile cycles for starting the workers.
      known: whether all of it is from the tables.
      reads: arrays that it reads, scalars not counted.
    """

    start: float
    rates: tuple[Rate, ...]
    launch: int = LAUNCH
    known: bool = True
    reads: int = 1


def loops_of(op: Operation) -> Loops:
    """The loops of any operation of one result; of an unknown one, the default's."""
    name = op.name
    reads = sum(1 for shape in op.operands if shape.dims) or 1
    dtype = worked_on(op)
    if name == "convert_element_type":
        return _cast(dtype, op.result.dtype)
    if name == "select_n":
        return Loops(SELECT_START, (SELECT_EACH,), reads=reads)
    if name in UNARY:
        found, known = rate(UNARY[name], dtype)
        start = EXP_START if name == "exp" else UNARY_START
        return Loops(start, (found,), UNARY_LAUNCH, known, 1)
    if name in BINARY:
        return _binary(op, reads)
    if name == "integer_pow":
        return _chain(_power(int(op.param("y", 2))), dtype, reads)
    if name in COMPOSED:
        return _chain(COMPOSED[name], dtype, reads)
    if name in ASSUMED:
        return dc.replace(_chain(ASSUMED[name], dtype, reads), known=False)
    return Loops(BINARY_START_OTHERS, (DEFAULT_EACH,), known=False, reads=reads)


def worked_on(op: Operation) -> str:
    """The element type that an operation computes with; selectors come first, values last."""
    return (op.operands or op.results)[-1].dtype


def _cast(source: str, result: str) -> Loops:
    found = CASTS.get((kind_of(source), kind_of(result)))
    return Loops(CAST_START, (found or OTHER_CAST,), CAST_LAUNCH, found is not None)


def _binary(op: Operation, reads: int) -> Loops:
    dtype = worked_on(op)
    with_scalar = reads == 1 and bool(op.result.dims)
    found, known = rate((BROADCAST if with_scalar else BINARY)[op.name], dtype)
    start = BINARY_START.get(kind_of(dtype), BINARY_START_OTHERS)
    return Loops(BROADCAST_START if with_scalar else start, (found,), known=known, reads=reads)


def _chain(names: tuple[str, ...], dtype: str, reads: int) -> Loops:
    tables: list[Rates] = [UNARY.get(name) or BINARY[name] for name in names]
    found = [rate(table, dtype) for table in tables]
    start = BINARY_START.get(kind_of(dtype), BINARY_START_OTHERS)
    known = all(known for _, known in found)
    return Loops(start, tuple(loop for loop, _ in found), known=known, reads=reads)


def _power(exponent: int) -> tuple[str, ...]:
    size = abs(exponent)
    products = max(0, size.bit_length() - 1) + max(0, size.bit_count() - 1)
    chain = ("square",) if size == 2 else ("mul",) * products
    return (*chain, "inverse") if exponent < 0 else chain or ("mul",)


def elementwise(op: Operation, target: Target) -> Cost:
    """One vertex per tile over what the tile holds; may write over its operand."""
    op = simplified(op)
    shape = largest((*op.results, *op.operands))
    if not all(result.elements for result in op.results) or _is_same_type(op):
        return FREE
    loops, dtype = loops_of(op), worked_on(op)
    share = on_worker(spread(shape, target).most_elements, target)
    worker = loops.start + sum(found.loop(share, dtype) for found in loops.rates)
    cost = one_phase(op, target, shape, supervisor(worker, target, loops.launch))
    in_place = any(given == op.result for given in op.operands)
    flops = shape.elements * len(loops.rates) if is_float(dtype) else 0
    return dc.replace(
        cost,
        flops=float(flops),
        in_place=in_place,
        source="formula" if loops.known else "default",
    )


def _is_same_type(op: Operation) -> bool:
    return op.name == "convert_element_type" and op.operands[0].dtype == op.result.dtype


ELEMENTWISE: frozenset[str] = frozenset(
    {*UNARY, *BINARY, *COMPOSED, *ASSUMED, "convert_element_type", "integer_pow", "select_n"}
) - {"inverse", "relu"}
"""The primitives whose every result element depends on one element of each operand."""

RULES: dict[str, Rule] = dict.fromkeys(ELEMENTWISE, elementwise)
