"""How tensors lie: views of views, and plans that ask behind them."""

from __future__ import annotations

from lowering.machine import Operation, Shape, WantedLayout, map_evenly, map_linearly
from lowering.machine.kernels import Layouts, TensorLayout, Walk

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
    found.add_view(1, 0, transpose(CUBE, 1, 0, 2))
    found.add_view(2, 1, transpose(Shape((3, 2, 4), "float32"), 1, 0, 2))
    assert found.memory_owner(2) == found.memory_owner(1) == 0
    assert found.layout_of(1).mapping == found.layout_of(0).mapping
    assert found.layout_of(1).order_key != found.layout_of(0).order_key
    assert found.layout_of(2) == found.layout_of(0)


def test_nobody_has_laid_out_what_is_free():
    found = layouts(CUBE, CUBE)
    found.add_view(1, 0, transpose(CUBE, 1, 0, 2))
    assert found.has_no_layout(0)
    assert found.has_no_layout(1)
    found.layout_of(1)
    assert not found.has_no_layout(0)


def test_plans_ask_behind_views():
    """Whoever wants the transposed tensor in a plan's order gets it so; the owner follows."""
    turned = transpose(TABLE, 1, 0)
    found = layouts(TABLE, turned.first_result)
    found.add_view(1, 0, turned)
    found.request_layout(1, WantedLayout(8, "plan"))
    assert found.layout_of(1).order_key == ("plan", ())
    assert found.layout_of(0).order_key == ("plan", (Walk(8192, 0, ((64, 1), (128, 64))),))
    assert found.layout_of(0).mapping == map_evenly(64 * 128, 4, 8, TILES, layout="plan")


def test_the_first_to_ask_decides():
    found = layouts(TABLE)
    found.request_layout(0, WantedLayout(8, "first"))
    found.request_layout(0, WantedLayout(4, "second"))
    assert found.layout_of(0).order_key == ("first", ())
    already = layouts(TABLE, given=(TensorLayout(map_linearly(64 * 128, 4, TILES)),))
    already.request_layout(0, WantedLayout(8, "late"))
    assert already.layout_of(0).order_key == ("linear", ())


def test_nobody_asks_behind_a_part():
    part = Shape((1, 128), "float32")
    found = layouts(TABLE, part)
    cut = (("start_indices", (3, 0)), ("limit_indices", (4, 128)), ("strides", None))
    found.add_view(1, 0, Operation("slice", (TABLE,), (part,), cut))
    found.request_layout(1, WantedLayout(8, "plan"))
    assert found.has_no_layout(0)


def test_linear_tensors_follow_each_other():
    """A tile has 128 bytes at least, so 100 halves are on one; the next tensor begins behind."""
    small = Shape((100,), "float16")
    found = layouts(small, small, small)
    first, second = found.lay_out_linearly(small).mapping, found.lay_out_linearly(small).mapping
    assert (first.used, second.used) == (1, 1)
    assert (first.first_tile, second.first_tile) == (0, 1)
    wide = found.lay_out_linearly(TABLE).mapping
    assert (wide.used, wide.first_tile) == (TILES, 0)
    assert found.lay_out_linearly(small).mapping.first_tile == 2
    held = sum(found.lay_out_linearly(small).mapping.bytes_per_tile() for _ in range(TILES))
    assert held.tolist() == [200] * TILES  # none is favoured


def test_as_many_elements_of_another_type():
    laid = TensorLayout(map_linearly(1024, 4, TILES), (Walk(1024, 1023, ((1024, -1),)),))
    half = laid.for_element_type(Shape((1024,), "float16"))
    assert half.mapping.total_bytes == 2048
    assert half.order_key == laid.order_key
    assert laid.for_element_type(Shape((32, 32), "int32")) is laid
