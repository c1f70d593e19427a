"""How tensors lie: views of views, and plans that ask behind them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine.cost import Operation, Shape, Wanted
from lowering.machine.kernels.layouts import Laid, Layouts, composed, step_of
from lowering.machine.mapping import linear, spread

TILES = 16
CUBE = Shape((2, 3, 4), "float32")
TABLE = Shape((64, 128), "float32")


def transpose(shape: Shape, *axes: int) -> Operation:
    result = Shape(tuple(shape.dims[axis] for axis in axes), shape.dtype)
    return Operation("transpose", (shape,), (result,), (("permutation", axes),))


def reshape(shape: Shape, *dims: int) -> Operation:
    return Operation("reshape", (shape,), (Shape(dims, shape.dtype),))


def layouts(*shapes: Shape, operands=(0,), given=(None,)) -> Layouts:
    return Layouts(shapes, operands, given, TILES)


permutations = st.permutations(range(3)).map(tuple)


@given(st.lists(permutations, max_size=5))
def test_transpositions_are_one_or_none(steps):
    view = ()
    array = np.arange(24).reshape(2, 3, 4)
    moved = array
    for axes in steps:
        view = composed(view, ("transpose", axes))
        moved = moved.transpose(axes)
    assert len(view) <= 1
    if view:
        np.testing.assert_array_equal(array.transpose(view[0][1]), moved)
        assert view[0][1] != (0, 1, 2)
    else:
        np.testing.assert_array_equal(array, moved)


def test_reshapes_matter_behind_transpositions_only():
    assert composed((), ("reshape", (6, 4))) == ()
    turned = composed((), ("transpose", (1, 0)))
    assert composed(turned, ("reshape", (8,))) == (*turned, ("reshape", (8,)))


@pytest.mark.parametrize(
    ("operation", "step"),
    [
        (transpose(CUBE, 2, 0, 1), ("transpose", (2, 0, 1))),
        (reshape(CUBE, 6, 4), ("reshape", (6, 4))),
        (Operation("squeeze", (Shape((1, 5), "int8"),), (Shape((5,), "int8"),)), ("reshape", (5,))),
        (Operation("rev", (CUBE,), (CUBE,)), ("rev", (2, 3, 4))),
        (
            Operation("broadcast_in_dim", (Shape((4,), "int8"),), (Shape((2, 4), "int8"),)),
            ("broadcast_in_dim", (2, 4)),
        ),
        (
            Operation("slice", (CUBE,), (Shape((1, 3, 4), "float32"),)),
            ("slice", (1, 3, 4)),
        ),
    ],
)
def test_what_operations_do_to_the_order(operation, step):
    assert step_of(operation) == step


def test_a_view_has_its_owners_memory():
    found = layouts(CUBE, Shape((3, 2, 4), "float32"), CUBE)
    found.see(1, 0, transpose(CUBE, 1, 0, 2))
    found.see(2, 1, transpose(Shape((3, 2, 4), "float32"), 1, 0, 2))
    assert found.owner(2) == found.owner(1) == 0
    assert found.laid(1).mapping == found.laid(0).mapping
    assert found.laid(1).order != found.laid(0).order
    assert found.laid(2) == found.laid(0)


def test_nobody_has_laid_out_what_is_free():
    found = layouts(CUBE, CUBE)
    found.see(1, 0, transpose(CUBE, 1, 0, 2))
    assert found.is_free(0)
    assert found.is_free(1)
    found.laid(1)
    assert not found.is_free(0)


def test_plans_ask_behind_views():
    """Whoever wants the transposed tensor in a plan's order gets it so; the owner follows."""
    turned = transpose(TABLE, 1, 0)
    found = layouts(TABLE, turned.result)
    found.see(1, 0, turned)
    found.ask(1, Wanted(8, "plan"))
    assert found.laid(1).order == ("plan", ())
    assert found.laid(0).order == ("plan", (("transpose", (1, 0)),))
    assert found.laid(0).mapping == spread(64 * 128, 4, 8, TILES, layout="plan")


@given(st.lists(permutations, min_size=1, max_size=3))
def test_plans_ask_behind_several_views(steps):
    shapes, operations = [CUBE], list[Operation]()
    for axes in steps:
        operations.append(transpose(shapes[-1], *axes))
        shapes.append(operations[-1].result)
    found = layouts(*shapes)
    for i, operation in enumerate(operations):
        found.see(i + 1, i, operation)
    found.ask(len(steps), Wanted(3, "plan"))
    assert found.laid(len(steps)).order == ("plan", ())


def test_the_first_to_ask_decides():
    found = layouts(TABLE)
    found.ask(0, Wanted(8, "first"))
    found.ask(0, Wanted(4, "second"))
    assert found.laid(0).order == ("first", ())
    already = layouts(TABLE, given=(Laid(linear(64 * 128, 4, TILES)),))
    already.ask(0, Wanted(8, "late"))
    assert already.laid(0).order == ("linear", ())


def test_nobody_asks_behind_a_part():
    part = Shape((1, 128), "float32")
    found = layouts(TABLE, part)
    found.see(1, 0, Operation("slice", (TABLE,), (part,)))
    found.ask(1, Wanted(8, "plan"))
    assert found.is_free(0)


def test_linear_tensors_follow_each_other():
    """A tile has 128 bytes at least, so 100 halves are on one; the next tensor begins behind."""
    small = Shape((100,), "float16")
    found = layouts(small, small, small)
    first, second = found.linear(small).mapping, found.linear(small).mapping
    assert (first.used, second.used) == (1, 1)
    assert (first.first_tile, second.first_tile) == (0, 1)
    wide = found.linear(TABLE).mapping
    assert (wide.used, wide.first_tile) == (TILES, 0)
    assert found.linear(small).mapping.first_tile == 2
    held = sum(found.linear(small).mapping.bytes_per_tile() for _ in range(TILES))
    assert held.tolist() == [200] * TILES  # none is favoured


def test_as_many_elements_of_another_type():
    laid = Laid(linear(1024, 4, TILES), (("rev", (1024,)),))
    half = laid.holding(Shape((1024,), "float16"))
    assert half.mapping.total_bytes == 2048
    assert half.order == laid.order
    assert laid.holding(Shape((32, 32), "int32")) is laid
