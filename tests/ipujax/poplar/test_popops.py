"""popops: numbers against NumPy, mappings, and the published cycles of scaledAddTo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from ipujax import poplar
from ipujax.poplar import popops, poputil, program
from ipujax.poplar.popops import expr
from tests.ipujax.poplar.building_graphs import TYPES, add_tensor, make_engine, make_graph, run

f32 = np.float32
FLOATS = np.array([-2.6, -1.5, -0.5, 0.0, 0.3, 0.5, 1.0, 2.5, 3.7], f32)
POSITIVE = np.array([0.1, 0.5, 1.0, 2.5, 9.0], f32)
INTS = np.array([-7, -2, 0, 1, 5, 12], np.int32)
UNSIGNED = np.array([0, 1, 5, 2**31, 2**32 - 1], np.uint32)
BOOLS = np.array([True, False, True])
SPECIAL = np.array([1.0, np.inf, -np.inf, np.nan], f32)

UNARY: dict[str, tuple[np.ndarray, Callable[..., Any]]] = {
    "abs": (FLOATS, np.abs),
    "asin": (FLOATS / 4, np.arcsin),
    "bitwiseNot": (INTS, np.invert),
    "cbrt": (FLOATS, np.cbrt),
    "ceil": (FLOATS, np.ceil),
    "cos": (FLOATS, np.cos),
    "countLeadingZeros": (UNSIGNED, lambda x: np.array([32 - int(n).bit_length() for n in x])),
    "erf": (FLOATS, scipy.special.erf),
    "geluErf": (FLOATS, lambda x: x * (1 + scipy.special.erf(x / np.sqrt(2))) / 2),
    "exp": (FLOATS, np.exp),
    "expm1": (FLOATS, np.expm1),
    "floor": (FLOATS, np.floor),
    "inv": (POSITIVE, lambda x: 1 / x),
    "isFinite": (SPECIAL, np.isfinite),
    "isInf": (SPECIAL, np.isinf),
    "isNaN": (SPECIAL, np.isnan),
    "log": (POSITIVE, np.log),
    "log1p": (POSITIVE, np.log1p),
    "logicalNot": (BOOLS, np.logical_not),
    "nearbyInt": (FLOATS, np.rint),
    "neg": (INTS, np.negative),
    "popcount": (UNSIGNED, np.bitwise_count),
    "relu": (FLOATS, lambda x: np.maximum(x, 0)),
    "round": (FLOATS, lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x)),
    "sigmoid": (FLOATS, lambda x: 1 / (1 + np.exp(-x))),
    "signum": (FLOATS, np.sign),
    "sin": (FLOATS, np.sin),
    "sqrt": (POSITIVE, np.sqrt),
    "square": (FLOATS, np.square),
    "tan": (FLOATS, np.tan),
    "tanh": (FLOATS, np.tanh),
    "trunc": (FLOATS, np.trunc),
}
SHIFTS = np.array([1, 2, 3, 1, 2, 3], np.int32)
OTHER = np.array([2, 3, -4, 5, 7, -5], np.int32)
BINARY: dict[str, tuple[np.ndarray, np.ndarray, Callable[..., Any]]] = {
    "add": (FLOATS, FLOATS[::-1].copy(), np.add),
    "atan2": (FLOATS, FLOATS[::-1].copy(), np.arctan2),
    "bitwiseAnd": (INTS, OTHER, np.bitwise_and),
    "bitwiseOr": (INTS, OTHER, np.bitwise_or),
    "bitwiseXor": (INTS, OTHER, np.bitwise_xor),
    "bitwiseXnor": (INTS, OTHER, lambda a, b: ~(a ^ b)),
    "div": (INTS, OTHER, lambda a, b: np.trunc(a / b)),
    "eq": (INTS, np.abs(INTS), np.equal),
    "gt": (INTS, OTHER, np.greater),
    "gteq": (INTS, INTS, np.greater_equal),
    "invStdDevToVariance": (POSITIVE, f32(0.1) + 0 * POSITIVE, lambda x, e: 1 / x**2 - e),
    "logicalAnd": (BOOLS, BOOLS[::-1].copy(), np.logical_and),
    "logicalOr": (BOOLS, BOOLS[::-1].copy(), np.logical_or),
    "lt": (FLOATS, FLOATS[::-1].copy(), np.less),
    "lteq": (FLOATS, FLOATS, np.less_equal),
    "max": (FLOATS, FLOATS[::-1].copy(), np.maximum),
    "min": (FLOATS, FLOATS[::-1].copy(), np.minimum),
    "mul": (FLOATS.astype(np.float16), FLOATS.astype(np.float16), np.multiply),
    "neq": (INTS, np.abs(INTS), np.not_equal),
    "pow": (POSITIVE, POSITIVE, np.power),
    "rem": (INTS, OTHER, np.fmod),
    "shiftLeft": (UNSIGNED, UNSIGNED[[0, 1, 2, 1, 0]], np.left_shift),
    "shiftRight": (INTS, SHIFTS, lambda a, b: (a.view(np.uint32) >> b).astype(np.int32)),
    "shiftRightSignExtend": (INTS, SHIFTS, np.right_shift),
    "sub": (FLOATS, FLOATS[::-1].copy(), np.subtract),
    "varianceToInvStdDev": (POSITIVE, f32(0.1) + 0 * POSITIVE, lambda x, e: 1 / np.sqrt(x + e)),
}  # fmt: skip


def check_forms(name: str, operands: list[np.ndarray], wanted: np.ndarray) -> None:
    """Checks the three forms of an operation."""
    new, in_place, with_output = (
        getattr(popops, f"{name}{suffix}") for suffix in ("", "InPlace", "WithOutput")
    )
    graph, prog = make_graph(), program.Sequence()
    tensors = [add_tensor(graph, values, f"t{n}", 5) for n, values in enumerate(operands)]
    result = new(graph, *tensors, prog, "mine")
    graph.createHostRead("result", result)
    out = add_tensor(graph, np.zeros(result.shape(), result.elementType().dtype), "out", 9)
    with_output(graph, *tensors, out, prog)
    reads = [result, out]
    if result.elementType() == tensors[0].elementType():
        in_place(graph, *tensors, prog)
        reads.append(tensors[0])
    for got in run(graph, prog, *reads):
        assert got.dtype == result.elementType().dtype
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
    assert {n for n, each in enumerate(graph.getTileMapping(result)) if each} == {5}


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_operations_are_numpys(name: str) -> None:
    values, function = UNARY[name]
    check_forms(name, [values], function(values))


@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_operations_are_numpys(name: str) -> None:
    a, b, function = BINARY[name]
    check_forms(name, [a, b], function(a, b))


def test_ternary_operations_are_numpys() -> None:
    low, high = 0 * FLOATS - 1, 0 * FLOATS + 2
    check_forms("clamp", [FLOATS, low, high], np.clip(FLOATS, -1, 2))
    choice = FLOATS > 0
    check_forms("select", [FLOATS, high, choice], np.where(choice, FLOATS, high))


def test_every_operation_of_the_table_is_tested() -> None:
    names = {name.removesuffix("InPlace") for name in dir(popops) if name.endswith("InPlace")}
    assert names - {"map", "sort", "sortKeyValue"} == {*UNARY, *BINARY, "clamp", "select"}


def test_numbers_and_shapes_broadcast_and_results_lie_where_the_whole_operand_does() -> None:
    graph, prog = make_graph(), program.Sequence()
    matrix = np.arange(6, dtype=f32).reshape(2, 3)
    row = add_tensor(graph, np.array([1, 2, 3], f32), "row", 1)
    whole = add_tensor(graph, matrix, "whole", 7)
    results = [popops.add(graph, row, whole, prog), popops.sub(graph, 1.0, whole, prog)]
    got = run(graph, prog, *results)
    np.testing.assert_array_equal(got[0], matrix + np.array([1, 2, 3]))
    np.testing.assert_array_equal(got[1], 1 - matrix)
    for each in results:
        assert {n for n, i in enumerate(graph.getTileMapping(each)) if i} == {7}


def test_an_expression_is_one_pass() -> None:
    graph, prog = make_graph(), program.Sequence()
    a, b = add_tensor(graph, POSITIVE, "a", 0), add_tensor(graph, POSITIVE[::-1].copy(), "b", 0)
    expression = expr.Select(expr._1 * 2.0, expr.Exp(-expr._2), expr._1 > expr.Const(0.7))
    result = popops.map(graph, expression, [a, b], prog)
    whole = popops.map(graph, expr.Cast(expr._1, poplar.INT) % 2, [a], prog)
    wanted = np.where(POSITIVE > 0.7, POSITIVE * 2, np.exp(-POSITIVE[::-1]))
    got = run(graph, prog, result, whole)
    np.testing.assert_allclose(got[0], wanted, rtol=1e-6)
    np.testing.assert_array_equal(got[1], POSITIVE.astype(int) % 2)
    assert [type(each).__name__ for each in prog.programs] == ["Operation", "Operation"]
    popops.mapInPlace(graph, expr.Square(expr._1), [a], prog)
    np.testing.assert_allclose(run(graph, prog, a)[0], POSITIVE**2)


PUBLISHED = {64: 375, 128: 467, 256: 665, 512: 1043}


@pytest.mark.parametrize("elements", sorted(PUBLISHED))
def test_scaled_add_takes_the_published_cycles(elements: int) -> None:
    graph, prog = make_graph(), program.Sequence()
    x, y = np.arange(elements, dtype=f32), np.ones(elements, f32)
    a, b = add_tensor(graph, x, "a", 3), add_tensor(graph, y, "b", 3)
    popops.scaledAddTo(graph, a, b, 0.5, prog)
    counted = poplar.cycleCount(graph, prog, 3, poplar.SyncType.INTERNAL)
    added, cycles = run(graph, prog, a, counted)
    np.testing.assert_array_equal(added, x + 0.5)
    assert int(cycles[0]) == pytest.approx(PUBLISHED[elements], rel=0.05)
    (step,) = make_engine(graph, prog).report().compute_sets
    assert step.cycles == pytest.approx(PUBLISHED[elements], rel=0.05)
    assert step.vertices.nonzero()[0].tolist() == [3]


def test_scaled_additions_are_numpys() -> None:
    graph, prog = make_graph(), program.Sequence()
    x, y = np.arange(4, dtype=f32), np.array([3, 1, 2, 5], f32)
    a, b, c, d = (add_tensor(graph, x, name) for name in "abcd")
    other = add_tensor(graph, y, "other")
    scale = add_tensor(graph, f32(2), "scale", 0)
    popops.scaledAddTo(graph, a, other, scale, prog)
    popops.scaledAddTo(graph, b, 3.0, other, scale, prog, "name")
    popops.scaledSubtractFrom(graph, c, other, 0.5, prog)
    popops.scaledSubtractFrom(graph, d, 2.0, other, 0.5, prog)
    wanted = [x + 2 * y, 3 * x + 2 * y, x - 0.5 * y, 2 * x - 0.5 * y]
    for got, want in zip(run(graph, prog, a, b, c, d), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_fill_zero_iota_and_cast() -> None:
    graph, prog = make_graph(), program.Sequence()
    tensors = [graph.addVariable(poplar.FLOAT, [2, 3]) for _ in range(2)]
    numbers = graph.addVariable(poplar.INT, [5])
    for each in (*tensors, numbers):
        poputil.mapTensorLinearly(graph, each)
    popops.fill(graph, tensors[0], prog, 1.5)
    popops.zero(graph, tensors[1], prog)
    popops.iota(graph, numbers, 3, prog)
    halves = popops.cast(graph, numbers, poplar.HALF, prog)
    prog.add(popops.cast(graph, tensors[0], graph.clone(tensors[0], "copy")))
    popops.castWithOutput(graph, tensors[0].flatten().slice(0, 5), numbers, prog)
    got = run(graph, prog, *tensors, halves, numbers)
    np.testing.assert_array_equal(got[0], np.full((2, 3), 1.5))
    np.testing.assert_array_equal(got[1], np.zeros((2, 3)))
    np.testing.assert_array_equal(got[2], np.arange(3, 8, dtype=np.float16))
    np.testing.assert_array_equal(got[3], np.ones(5))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ADD": np.sum,
    "MUL": np.prod,
    "MIN": np.min,
    "MAX": np.max,
    "SQUARE_ADD": lambda x, axis: np.sum(np.square(x), axis=axis),
    "LOG_ADD": lambda x, axis: scipy.special.logsumexp(x, axis=axis),
}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("dims", [[0], [0, 2], [0, 1, 2], []])
def test_reductions_are_numpys(name: str, dims: list[int]) -> None:
    graph, prog = make_graph(), program.Sequence()
    values = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(f32)
    x = add_tensor(graph, values, "x")
    params = popops.ReduceParams(popops.Operation[name])
    result = popops.reduce(graph, x, dims, params, prog)
    axes = tuple(dims) or 0
    wanted = REDUCTIONS[name](values if dims else values[None], axis=axes)
    np.testing.assert_allclose(run(graph, prog, result)[0], wanted, rtol=1e-5, atol=1e-6)


def test_all_true_is_one_flag() -> None:
    graph, steps = make_graph(), program.Sequence()
    flags = np.ones((3, 5), bool)
    yes = popops.allTrue(graph, add_tensor(graph, flags, "yes"), steps)
    flags[2, 1] = False
    no = popops.allTrue(graph, add_tensor(graph, flags, "no"), steps)
    assert yes.shape() == []
    assert [each.item() for each in run(graph, steps, yes, no)] == [True, False]
    with pytest.raises(poplar.type_error, match="allTrue of tensor 'x'"):
        popops.allTrue(graph, add_tensor(graph, np.ones(3, np.float32), "x"), steps)


def test_reductions_scale_update_and_change_the_type() -> None:
    graph, prog = make_graph(), program.Sequence()
    values = np.array([[1, 2], [3, 4]], np.float16)
    x, out = add_tensor(graph, values, "x"), add_tensor(graph, np.array([10, 20], f32), "out")
    scale = add_tensor(graph, f32(0.5), "scale", 0)
    both = popops.ReduceParams(popops.Operation.ADD, True, scale)
    popops.reduceWithOutput(graph, x, out, [0], both, prog)
    wide = popops.reduce(
        graph, x, poplar.FLOAT, [1], popops.ReduceParams(popops.Operation.MAX), prog
    )
    logical = add_tensor(graph, values > 2, "logical")
    made: list[poplar.Tensor] = []
    ops = [popops.Operation.LOGICAL_AND, popops.Operation.LOGICAL_OR]
    many = [popops.SingleReduceOp(logical, [1], popops.ReduceParams(op)) for op in ops]
    popops.reduceMany(graph, many, made, prog)
    got = run(graph, prog, out, wide, *made)
    assert [each.dtype for each in got] == [f32, f32, bool, bool]
    for each, wanted in zip(got, ([12, 23], [2, 4], [False, True], [False, True]), strict=True):
        np.testing.assert_array_equal(each, wanted)


def test_dynamic_slices_take_offsets_from_the_device() -> None:
    graph, prog = make_graph(), program.Sequence()
    values = np.arange(20, dtype=f32).reshape(4, 5)
    x, y = add_tensor(graph, values, "x"), add_tensor(graph, values, "y")
    offset = add_tensor(graph, np.array([3, 1], np.uint32), "offset", 0)
    part = popops.dynamicSlice(graph, x, offset, [0, 1], [2, 3], prog)
    row = popops.dynamicSlice(graph, x, offset.slice(0, 1), [0], [1], prog)
    popops.dynamicUpdate(graph, y, row, offset.slice(1, 2), [0], [1], prog)
    got = run(graph, prog, part, row, y)
    np.testing.assert_array_equal(got[0], values[[3, 0]][:, 1:4])
    np.testing.assert_array_equal(got[1], values[3:])
    wanted = values.copy()
    wanted[1] = values[3]
    np.testing.assert_array_equal(got[2], wanted)


def test_multi_slices_and_updates_are_numpys() -> None:
    graph, prog = make_graph(), program.Sequence()
    values = np.arange(12, dtype=f32).reshape(4, 3)
    x, y = add_tensor(graph, values, "x"), add_tensor(graph, values, "y")
    offsets = add_tensor(graph, np.array([[2], [0], [2]], np.uint32), "offsets", 0)
    rows = popops.multiSlice(graph, x, offsets, [0], [1], prog, None, {"usedForSlice": "true"})
    popops.multiUpdateAdd(graph, y, rows, offsets, 0.5, [0], [1], prog)
    taken = popops.gather(graph, x, offsets.flatten(), 0, prog)
    got = run(graph, prog, rows, y, taken)
    np.testing.assert_array_equal(got[0], values[[2, 0, 2]][:, None])
    wanted = values.copy()
    np.add.at(wanted, [2, 0, 2], 0.5 * values[[2, 0, 2]])
    np.testing.assert_array_equal(got[1], wanted)
    np.testing.assert_array_equal(got[2], values[[2, 0, 2]])


def test_gather_and_scatter_are_xlas() -> None:
    graph, prog = make_graph(), program.Sequence()
    values = np.arange(12, dtype=f32).reshape(3, 4)
    x, y = add_tensor(graph, values, "x"), add_tensor(graph, values, "y")
    indices = add_tensor(graph, np.array([[0, 2], [1, 1]], np.int32), "i", 0)
    points = popops.gather(graph, x, indices, 1, [], [1, 1], [0, 1], [0, 1], prog)
    rows = add_tensor(graph, np.array([2, 0], np.int32), "rows", 0)
    updates = add_tensor(graph, -np.ones((2, 4), f32), "updates")
    popops.scatter(graph, y, rows, updates, 1, [1], [0], [0], prog)
    got = run(graph, prog, points, y)
    np.testing.assert_array_equal(got[0], [values[0, 2], values[1, 1]])
    np.testing.assert_array_equal(got[1], [-np.ones(4), values[1], -np.ones(4)])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("order", [popops.SortOrder.ASCENDING, popops.SortOrder.DESCENDING])
def test_top_k_and_sorts_are_numpys(largest: bool, order: popops.SortOrder) -> None:
    graph, prog = make_graph(), program.Sequence()
    values = np.random.default_rng(0).permutation(15).reshape(3, 5).astype(f32)
    x = add_tensor(graph, values, "x")
    params = popops.TopKParams(2, largest, order)
    top, places = popops.topKWithPermutation(graph, prog, x, params)
    ordered = popops.sort(graph, x, 0, prog)
    by_key = popops.sortKeyValue(graph, x, popops.neg(graph, x, prog), 1, prog)
    got = run(graph, prog, top, places, ordered, by_key)
    wanted = np.sort(values)[:, -2:] if largest else np.sort(values)[:, :2]
    wanted = wanted if order is popops.SortOrder.ASCENDING else wanted[:, ::-1]
    np.testing.assert_array_equal(got[0], wanted)
    np.testing.assert_array_equal(np.take_along_axis(values, got[1].astype(int), 1), wanted)
    np.testing.assert_array_equal(got[2], np.sort(values, 0))
    np.testing.assert_array_equal(got[3], -np.sort(values, 1))


def test_numbers_for_one_hot_are_two_and_options_are_none_of_them() -> None:
    graph, prog = make_graph(), program.Sequence()
    labels = add_tensor(graph, np.array([1, 0], np.int32), "labels", 0)
    encoded = add_tensor(graph, np.zeros((2, 2), f32), "encoded")
    popops.encodeOneHot(graph, labels, encoded, prog, 5, -1, "mine", {"some": "option"})
    np.testing.assert_array_equal(run(graph, prog, encoded)[0], [[-1, 5], [5, -1]])
    with pytest.raises(poplar.type_error, match="on and off"):
        popops.encodeOneHot(graph, labels, encoded, prog, 5)
    with pytest.raises(poplar.type_error, match="mappingMethod"):
        popops.pad(graph, encoded, [0, 0], [1, 1], 0, 1)


def test_pad_counted_loop_and_one_hot() -> None:
    graph, prog = make_graph(), program.Sequence()
    values = np.array([[1, 2]], f32)
    x, total = add_tensor(graph, values, "x"), add_tensor(graph, np.zeros(1, np.uint32), "total", 0)
    padded = popops.pad(graph, x, [1, 0], [0, 2], 7)
    encoded = add_tensor(graph, np.zeros((3, 4), f32), "encoded")
    labels = add_tensor(graph, np.array([2, 0, 3], np.int32), "labels", 0)
    popops.encodeOneHot(graph, labels, encoded, prog)

    def body(counter: poplar.Tensor) -> program.Sequence:
        inside = program.Sequence()
        popops.addInPlace(graph, total, counter, inside)
        return inside

    prog.add(popops.countedLoop(graph, 3, 12, 4, body))
    got = run(graph, prog, padded, encoded, total)
    np.testing.assert_array_equal(got[0], np.pad(values, [(1, 0), (0, 2)], constant_values=7))
    np.testing.assert_array_equal(got[1], np.eye(4)[[2, 0, 3]])
    assert got[2] == 3 + 7 + 11


def test_tensors_without_elements_are_operands_too() -> None:
    graph, prog = make_graph(), program.Sequence()
    empty = add_tensor(graph, np.zeros((0, 3), f32), "empty")
    total = popops.reduce(graph, empty, [0], popops.ReduceParams(popops.Operation.ADD), prog)
    got = run(graph, prog, popops.exp(graph, empty, prog), total)
    assert got[0].shape == (0, 3)
    np.testing.assert_array_equal(got[1], np.zeros(3))


def test_wrong_operands_are_named() -> None:
    graph, prog = make_graph(), program.Sequence()
    x, i = add_tensor(graph, FLOATS, "x"), add_tensor(graph, INTS, "i")
    with pytest.raises(poplar.type_error, match=r"add of .*'x'.*'i'"):
        popops.add(graph, x, i, prog)
    with pytest.raises(poplar.type_error, match=r"exp of .*'i'.* would be FLOAT"):
        popops.exp(graph, i, prog)
    with pytest.raises(poplar.type_error, match="would be FLOAT"):
        popops.addInPlace(graph, i, 2.5, prog)
    with pytest.raises(poplar.index_error, match="do not match in add"):
        popops.add(graph, x, x.slice(0, 2), prog)
    with pytest.raises(poplar.type_error, match="prog"):
        popops.exp(graph, x)
    with pytest.raises(poplar.type_error, match="2 operands"):
        popops.add(graph, x)
    with pytest.raises(poplar.index_error, match=r"dimensions \[1\]"):
        popops.reduce(graph, x, [1], popops.ReduceParams(popops.Operation.ADD), prog)
    with pytest.raises(poplar.poplar_error, match="scale"):
        popops.ReduceParams(popops.Operation.MAX, False, 2.0)
    assert not prog.programs


def test_reading_what_nothing_wrote_is_an_error() -> None:
    graph, prog = make_graph(), program.Sequence()
    x = graph.addVariable(TYPES[np.dtype(f32)], [4], "x")
    graph.setTileMapping(x, 0)
    popops.exp(graph, x, prog)
    with pytest.raises(poplar.control_program_error, match="element 0 of 'x'"):
        make_engine(graph, prog).run(0)
