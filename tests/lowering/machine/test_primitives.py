"""Costs of primitives against numbers computed by hand from the vertices' formulas.

Arrays of [1472, 384] put 384 elements on each of an IPU2's tiles, 64 on each worker.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from lowering.machine import IPU2, IPU21, Cost, Operation, Shape
from lowering.machine.primitives import LookupWorker, cost_of_operation

FULL = (1472, 384)


def operation(name: str, *operands: Shape, to: Shape | None = None, **params: Any) -> Operation:
    return Operation(name, operands, (to or operands[0],), tuple(params.items()))


def array(dtype: str = "float32", dims: tuple[int, ...] = FULL) -> Shape:
    return Shape(dims, dtype)


def compute(op: Operation) -> float:
    phases = cost_of_operation(op, IPU2).phases
    assert len(phases) == 1
    return phases[0].compute


def cycles(op: Operation) -> float:
    found = cost_of_operation(op, IPU2)
    return found.cycles_with_exchange(IPU2.exchange_bytes, IPU2.exchange_cycles, IPU2.sync_cycles)


SINGLE, HALF, INT, BOOL = array(), array("float16"), array("int32"), array("bool")
SCALAR = Shape((), "float32")


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (operation("add", SINGLE, SINGLE), 6 * (29 + 32 * 3) + 11),
        (operation("add", HALF, HALF), 6 * (26 + 16 * 3) + 11),
        (operation("add", INT, INT), 6 * (29 + 64 * 7) + 11),
        (operation("mul", SINGLE, SCALAR), 6 * (20 + 32 * 2) + 11),
        (operation("mul", SCALAR, SINGLE, to=SINGLE), 6 * (20 + 32 * 2) + 11),
        (operation("div", HALF, HALF), 6 * (26 + 16 * 21) + 11),
        (operation("max", SINGLE, SINGLE), 6 * (29 + 32 * 3) + 11),
        (operation("lt", SINGLE, SINGLE, to=BOOL), 6 * (29 + 16 * 14) + 11),
        (operation("pow", SINGLE, SINGLE), 6 * (29 + 64 * 312) + 11),
        (operation("exp", SINGLE), 6 * (33 + 32 * 6) + 20),
        (operation("exp", HALF), 6 * (33 + 16 * 4) + 20),
        (operation("tanh", SINGLE), 6 * (17 + 32 * 12) + 20),
        (operation("rsqrt", HALF), 6 * (17 + 16 * 19) + 20),
        (operation("abs", SINGLE), 6 * (17 + 64 * 5) + 20),
        (operation("floor", SINGLE), 6 * (17 + 32 * 6) + 20),
        (operation("sin", HALF), 6 * (17 + 64 * 25) + 20),
        (operation("convert_element_type", SINGLE, to=HALF), 12 + 6 * (37 + 16 * 2)),
        (operation("convert_element_type", HALF, to=SINGLE), 12 + 6 * (37 + 32 * 1)),
        (operation("select_n", BOOL, SINGLE, SINGLE, to=SINGLE), 6 * (6 + 64 * 5) + 11),
        (operation("integer_pow", SINGLE, y=2), 6 * (29 + 32 * 2) + 11),
        (operation("integer_pow", SINGLE, y=5), 6 * (29 + 3 * 32 * 3) + 11),
        (operation("clamp", SCALAR, SINGLE, SCALAR, to=SINGLE), 6 * (29 + 32 * (3 + 3)) + 11),
        (operation("iota", to=SINGLE), 6 * (16 + 32 + 7) + 11),
        (operation("iota", to=HALF), 6 * (26 + 16) + 11),
        (operation("copy", SINGLE), 288 + 1536 / 8),
        (operation("random_bits", to=array("uint32")), 6 * (25 + 32 * 3) + 11),
        (operation("psum", SINGLE), 6 * (29 + 32 * 3) + 11),
    ],
    ids=lambda value: (
        f"{value.name}-{value.first_result.dtype}" if isinstance(value, Operation) else ""
    ),
)
def test_vertex_formulas(op: Operation, expected: float) -> None:
    assert compute(op) == expected
    assert cost_of_operation(op, IPU2).source == "formula"


@pytest.mark.parametrize(
    ("op", "worker"),
    [
        (
            operation(
                "reduce_max", array(dims=(1472, 24, 16)), to=array(dims=(1472, 24)), axes=(2,)
            ),
            17 + 4 * (12 + 16 / 2),
        ),
        (
            operation(
                "reduce_sum", array(dims=(1472, 8, 24)), to=array(dims=(1472, 24)), axes=(1,)
            ),
            16 + 2 * (3 + 5 + 3 + 1 * (8 - 1)),
        ),
        (
            operation("argmax", array(dims=(1472, 6, 64)), to=array("int32", (1472, 6)), axes=(2,)),
            17 + 12 + 3 * 64,
        ),
    ],
    ids=["side by side", "strided", "argmax"],
)
def test_reductions_that_stay_on_their_tiles(op: Operation, worker: float) -> None:
    assert compute(op) == 6 * worker + 11


def test_workers_share_a_long_row() -> None:
    found = cost_of_operation(
        operation("reduce_sum", array(), to=array(dims=(1472,)), axes=(1,)), IPU2
    )
    pieces, joined = (6 * (17 + 12 + vectors) + 11 for vectors in (64 / 2, 6 / 2))
    assert [phase.compute for phase in found.phases] == [pieces, joined]


def test_a_sum_of_everything_is_folded_in_stages() -> None:
    found = cost_of_operation(operation("reduce_sum", array(), to=SCALAR, axes=(0, 1)), IPU2)
    here, *stages = found.phases
    assert here.exchange_bytes == 0
    assert 2 <= len(stages) <= 3  # 1472 partials at once would be 1472 cycles of exchange
    assert math.prod(phase.exchange_bytes / 4 for phase in stages) >= 1472


def test_a_sum_over_rows_is_exchanged_and_one_over_columns_is_not() -> None:
    square = array(dims=(1024, 1024))
    outer = cost_of_operation(
        operation("reduce_sum", square, to=array(dims=(1024,)), axes=(0,)), IPU2
    )
    inner = cost_of_operation(
        operation("reduce_sum", square, to=array(dims=(1024,)), axes=(1,)), IPU2
    )
    exchanged = [sum(phase.exchange_bytes for phase in found.phases) for found in (outer, inner)]
    assert exchanged[0] > 20 * exchanged[1]


def test_dynamic_slices() -> None:
    whole, row = array(dims=(10, 1472 * 48)), array(dims=(1, 1472 * 48))
    vectors = 192 // (8 * 6)
    expected = 25 + 6 * (39 + (24 + 2 * vectors))
    read = cost_of_operation(operation("dynamic_slice", whole, SCALAR, SCALAR, to=row), IPU2)
    written = cost_of_operation(operation("dynamic_update_slice", whole, row, SCALAR, SCALAR), IPU2)
    assert [phase.compute for phase in (*read.phases, *written.phases)] == [expected] * 2
    assert read.operands[0] == written.operands[0] == written.results[0] is not None
    assert written.in_place
    assert not read.in_place


def test_lookups_of_rows() -> None:
    single = LookupWorker(30, 19, 2, 2)
    assert single.lookup_cycles(2, 3, 64, "float32") == 30 + 2 * (19 + 2 * 32) + 3 * 8
    table, indices = array(dims=(30_000, 768)), array("int32", (512, 1))
    rows = array(dims=(512, 768))
    read = operation("gather", table, indices, to=rows, slice_sizes=(1, 768))
    added = operation("scatter-add", table, indices, rows)
    columns_only = 6 * (30 + 86 * (19 + 2 * 1)) + 11 + 476 + 512 * 4 / 4
    assert cycles(read) <= columns_only
    assert cost_of_operation(added, IPU2).in_place
    assert (
        cost_of_operation(read, IPU2).operands[0]
        == cost_of_operation(added, IPU2).operands[0]
        is not None
    )


def test_sorting_takes_a_bitonic_network() -> None:
    keys = array(dims=(1024,))  # 32 on each of 32 tiles
    found = cost_of_operation(operation("sort", keys, dimension=0), IPU2)
    assert len(found.phases) == 10 * 11 // 2
    assert sum(phase.exchange_bytes > 0 for phase in found.phases) == 1 + 2 + 3 + 4 + 5
    assert found.phases[0].compute == 6 * (57 + 6 / 2 * 13) + 11
    top = cost_of_operation(operation("top_k", keys, to=array(dims=(4,)), k=4), IPU2)
    assert len(top.phases) == 3 + 8 * 3


@pytest.mark.parametrize(
    ("size", "measured"), [(32, 162e3), (64, 245e3), (512, 1.86e6), (1024, 6.5e6)]
)
def test_qr_against_poplibs_on_a_bow(size: int, measured: float) -> None:
    square = array(dims=(size, size))
    found = cost_of_operation(Operation("qr", (square,), (square, square)), IPU21)
    predicted = found.cycles_with_exchange(
        IPU21.exchange_bytes, IPU21.exchange_cycles, IPU21.sync_cycles
    )
    assert predicted == pytest.approx(measured, rel=1e-3)


def test_a_copy_against_a_c600() -> None:
    assert compute(operation("copy", array(dims=(1472, 2048)))) == pytest.approx(1308, rel=0.01)


def test_an_unknown_primitive_is_a_stated_default() -> None:
    found = cost_of_operation(operation("somebody_elses_primitive", SINGLE), IPU2)
    assert found.source == "default"
    assert found.phases[0].compute == 6 * (29 + 64 * 10) + 11


def test_what_moves_nothing() -> None:
    reshaped = cost_of_operation(operation("reshape", SINGLE, to=array(dims=(384, 1472))), IPU2)
    same = cost_of_operation(operation("convert_element_type", SINGLE), IPU2)
    barrier = cost_of_operation(operation("optimization_barrier", SINGLE), IPU2)
    nothing = Cost(moves_nothing=True, in_place=True)
    assert reshaped == same == barrier == nothing


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_common_functions_have_formulas_of_their_own(dtype: str) -> None:
    given = array(dtype)
    unary = "abs cbrt ceil cos erf exp expm1 floor log log1p logistic neg round rsqrt sign sin sinh"
    for name in [*unary.split(), "sqrt", "square", "tan", "tanh", "acosh", "exp2", "erf_inv"]:
        assert cost_of_operation(operation(name, given), IPU2).source == "formula", name
    for name in ["add", "atan2", "div", "eq", "max", "mul", "pow", "rem", "sub"]:
        assert cost_of_operation(operation(name, given, given), IPU2).source == "formula", name
    assert cost_of_operation(operation("somebody_elses", given), IPU2).source == "default"


def test_wider_numbers_are_worked_on_word_by_word() -> None:
    wide = cost_of_operation(operation("add", array("float64"), array("float64")), IPU2)
    assert wide.source == "default"
    assert compute(operation("add", SINGLE, SINGLE)) < wide.phases[0].compute
