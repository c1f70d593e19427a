"""How tensors lie: views of views, and plans that ask behind them."""

from __future__ import annotations

from lowering.machine.cost import Operation, Shape, Wanted
from lowering.machine.kernels.layouts import Laid, Layouts
from lowering.machine.kernels.views import Walk
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
    assert found.laid(0).order == ("plan", (Walk(8192, 0, ((64, 1), (128, 64))),))
    assert found.laid(0).mapping == spread(64 * 128, 4, 8, TILES, layout="plan")


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
    cut = (("start_indices", (3, 0)), ("limit_indices", (4, 128)), ("strides", None))
    found.see(1, 0, Operation("slice", (TABLE,), (part,), cut))
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
    laid = Laid(linear(1024, 4, TILES), (Walk(1024, 1023, ((1024, -1),)),))
    half = laid.holding(Shape((1024,), "float16"))
    assert half.mapping.total_bytes == 2048
    assert half.order == laid.order
    assert laid.holding(Shape((32, 32), "int32")) is laid
