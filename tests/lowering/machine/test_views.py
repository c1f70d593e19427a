"""Views of views: the order that the model tracks is NumPy's own."""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowering.machine import Operation, Shape, Steps, WantedLayout, map_linearly
from lowering.machine.kernels import (
    Layouts,
    TensorLayout,
    View,
    apply_to_view,
    invert_view,
    operand_shown_by,
)
from lowering.machine.kernels.views import MOVES
from lowering.machine.primitives import VIEWS
from tests.lowering.machine.samples import TILES, kernel, modelled
from tests.lowering.samples import lowered


def taken(view: View, elements: int) -> np.ndarray:
    """int64 [elements]: which element of the owner each element of a view is."""
    places = np.arange(elements)
    for walk in reversed(view):
        count = math.prod(turns for turns, _ in walk.loops)
        assert not len(places) or places.max() < count
        order = np.full((), walk.start)
        for turns, stride in walk.loops:
            order = order[..., None] + np.arange(turns) * stride
        places = order.reshape(-1)[places]
    return places


@dc.dataclass(frozen=True)
class Step:
    """An operation, and what NumPy makes of its operand; `part` is the result that is meant."""

    operation: Operation
    result: np.ndarray
    part: int = 0


def step(name: str, before: np.ndarray, after: np.ndarray, **params: Any) -> Step:
    return parts(name, before, [after], 0, **params)


def parts(name: str, before: np.ndarray, after: list, part: int, **params: Any) -> Step:
    results = tuple(Shape(array.shape, "float32") for array in after)
    operands = (Shape(before.shape, "float32"),)
    return Step(Operation(name, operands, results, tuple(params.items())), after[part], part)


@st.composite
def extents(draw, count: int) -> tuple[int, ...]:
    """Dims of so many elements."""
    dims = []
    while count > 1 and len(dims) < 4:
        divisors = [d for d in range(1, count + 1) if count % d == 0]
        dims.append(draw(st.sampled_from(divisors)))
        count //= dims[-1]
    return (*dims, count)


@st.composite
def steps(draw, array: np.ndarray) -> Step:
    """Something that moves nothing, done to an array."""
    rank, dims = array.ndim, array.shape
    kinds = ["reshape", "expand_dims", "broadcast_in_dim"]
    kinds += ["transpose", "rev", "slice", "tile", "split", "unstack"] if rank else []
    kind = draw(st.sampled_from(kinds))
    axis = draw(st.integers(0, max(rank - 1, 0)))
    match kind:
        case "reshape":
            return step(kind, array, array.reshape(draw(extents(array.size))))
        case "expand_dims":
            return step("reshape", array, np.expand_dims(array, axis))
        case "transpose":
            axes = tuple(draw(st.permutations(range(rank))))
            return step(kind, array, array.transpose(axes), permutation=axes)
        case "rev":
            axes = tuple(draw(st.sets(st.integers(0, rank - 1))))
            return step(kind, array, np.flip(array, axes), dimensions=axes)
        case "slice":
            first = [draw(st.integers(0, extent)) for extent in dims]
            last = [draw(st.integers(a, extent)) for a, extent in zip(first, dims, strict=True)]
            by = draw(st.none() | st.tuples(*(st.integers(1, 3),) * rank))
            cut = tuple(map(slice, first, last, by or (1,) * rank))
            limits = {"start_indices": tuple(first), "limit_indices": tuple(last)}
            return step(kind, array, array[cut], **limits, strides=by)
        case "tile":
            reps = tuple(draw(st.integers(1, 2)) for _ in dims)
            return step(kind, array, np.tile(array, reps), reps=reps)
        case "split":
            at = draw(st.integers(0, dims[axis]))
            halves = np.split(array, [at], axis)
            sizes = (at, dims[axis] - at)
            return parts(kind, array, halves, draw(st.integers(0, 1)), sizes=sizes, axis=axis)
        case "unstack" if dims[axis]:
            each = list(np.moveaxis(array, axis, 0))
            return parts(kind, array, each, draw(st.integers(0, dims[axis] - 1)), axis=axis)
        case _:
            shape, of = [*dims], [*range(rank)]
            at, extent = draw(st.integers(0, rank)), draw(st.integers(1, 3))
            shape.insert(at, extent)
            of = [i + (i >= at) for i in of]
            ones = [i for i, dim in zip(of, dims, strict=True) if dim == 1 and draw(st.booleans())]
            for i in ones:
                shape[i] = 2
            laid = array.reshape([dims[of.index(i)] if i in of else 1 for i in range(rank + 1)])
            after = np.broadcast_to(laid, shape)
            given = {"shape": tuple(shape), "broadcast_dimensions": tuple(of)}
            return step("broadcast_in_dim", array, after, **given)


@st.composite
def chains(draw, only: tuple[str, ...] = ()) -> tuple[np.ndarray, list[Step]]:
    """A tensor, numbered element by element, and what is done to it."""
    dims = draw(st.lists(st.integers(1, 6), max_size=4))
    array = owner = np.arange(math.prod(dims)).reshape(dims)
    chain = []
    for _ in range(draw(st.integers(0, 6))):
        found = draw(steps(array).filter(lambda one: not only or one.operation.name in only))
        if found.result.size > 4096:
            break
        chain.append(found)
        array = found.result
    return owner, chain


@settings(max_examples=400, deadline=None)
@given(chains())
def test_views_take_the_elements_that_numpy_takes(drawn):
    owner, chain = drawn
    view, array = (), owner
    for one in chain:
        view, array = apply_to_view(view, one.operation, one.part), one.result
        if not array.size:
            return
        np.testing.assert_array_equal(taken(view, array.size), array.reshape(-1))
        as_it_lies = array.size == owner.size and np.array_equal(array.reshape(-1), owner.ravel())
        assert as_it_lies if not view else len(view) > 1 or not as_it_lies


@settings(max_examples=200, deadline=None)
@given(chains(("transpose", "reshape", "rev")))
def test_what_only_turns_can_be_turned_back(drawn):
    owner, chain = drawn
    view: View = ()
    for one in chain:
        view = apply_to_view(view, one.operation)
    back = invert_view(view)
    assert back is not None
    order = taken(view, owner.size)
    np.testing.assert_array_equal(taken(back, owner.size)[order], np.arange(owner.size))
    for one in chain:
        back = apply_to_view(back, one.operation)
    assert back == ()


@pytest.mark.exhaustive
@settings(max_examples=300, deadline=None)
@given(chains())
def test_only_what_has_every_element_once_can_be_turned_back(drawn):
    owner, chain = drawn
    view: View = ()
    for one in chain:
        view = apply_to_view(view, one.operation, one.part)
        if not one.result.size:
            return
    order = np.sort(taken(view, chain[-1].result.size)) if chain else np.arange(owner.size)
    if invert_view(view) is not None:
        np.testing.assert_array_equal(order, np.arange(owner.size))
    elif len(view) == 1:
        assert order.size != owner.size or not np.array_equal(order, np.arange(owner.size))


@settings(max_examples=200, deadline=None)
@given(chains(("transpose", "reshape", "rev")), st.booleans())
def test_a_plan_that_asks_gets_its_order_however_the_owner_is_seen(drawn, follows):
    """And a result that lies as its operand does, whose owner a plan has laid out."""
    owner, chain = drawn
    shapes = [Shape(owner.shape, "float32"), *(one.operation.first_result for one in chain)]
    layouts = Layouts(shapes, (0,), (None,), TILES)
    for i, one in enumerate(chain):
        layouts.add_view(i + 1, i, one.operation)
    layouts.request_layout(len(chain), WantedLayout(3, "plan"))
    assert layouts.layout_of(len(chain)).order_key == ("plan", ())
    array = owner
    order = taken(layouts.layout_of(0).view, owner.size)
    for i, one in enumerate(chain):
        array = one.result
        here = layouts.layout_of(i + 1)
        np.testing.assert_array_equal(taken(here.view, array.size), order[array.reshape(-1)])


def test_walks_of_other_ranks():
    """The views that once were replayed onto a layout of another rank."""
    turned = np.arange(24).reshape(4, 6).T
    view = apply_to_view((), step("transpose", turned.T, turned, permutation=(1, 0)).operation)
    flat = turned.reshape(1, 6, 4)
    again = flat.transpose(0, 2, 1)
    same = apply_to_view(view, step("reshape", turned, flat).operation)
    assert same == view
    assert (
        apply_to_view(same, step("transpose", flat, again, permutation=(0, 2, 1)).operation) == ()
    )
    cut = turned.reshape(8, 3)
    across = apply_to_view(view, step("transpose", cut, cut.T, permutation=(1, 0)).operation)
    assert len(across) == 2
    np.testing.assert_array_equal(taken(across, 24), cut.T.reshape(-1))


@pytest.mark.parametrize("dims", [(6, 4), (4, 6)])
def test_results_lie_as_their_operands_are_seen(dims):
    def fn(x, y):
        return jnp.abs(jnp.abs(x.T).reshape(1, 6, 4).transpose(0, 2, 1)) + y

    x = jax.ShapeDtypeStruct(dims, jnp.float32)
    y = jax.ShapeDtypeStruct((1, 4, 6), jnp.float32)
    lies = TensorLayout(map_linearly(24, 4, TILES))
    found = kernel(fn, x, y, given=(lies, lies))
    rearranged = [step for step in Steps(found.trace) if "rearrange" in step.name]
    assert bool(rearranged) == (dims == (6, 4))  # (4, 6) comes back to the order that y has
    assert modelled(lowered(fn, x, y)).cycles > 0


def test_narrower_elements_lie_where_they_were():
    words = Shape((6, 4), "float32")
    octets = Operation("bitcast_convert_type", (words,), (Shape((6, 4, 4), "uint8"),))
    view = apply_to_view((), octets)
    np.testing.assert_array_equal(taken(view, 96), np.repeat(np.arange(24), 4))
    back = Operation("bitcast_convert_type", octets.results, (words,))
    np.testing.assert_array_equal(taken(apply_to_view((), back), 24), np.arange(24) * 4)
    same = Operation("bitcast_convert_type", (words,), (Shape((6, 4), "int32"),))
    assert apply_to_view((), same) == ()


def test_what_shows_one_tensor():
    some, none = Shape((2, 3), "float32"), Shape((0, 3), "float32")

    def shown(name: str, *operands: Shape, **params: Any) -> int | None:
        return operand_shown_by(Operation(name, operands, (some,), tuple(params.items())))

    assert shown("concatenate", none, some, none) == 1
    assert shown("concatenate", some, some) is None
    assert shown("complex", some, some) is None
    pad = Shape((), "float32")
    assert shown("pad", some, pad, padding_config=((0, 0, 0),) * 2) == 0
    assert shown("pad", some, pad, padding_config=((1, -1, 0), (0, 0, 0))) is None
    assert shown("transpose", some) == 0


def test_all_that_moves_is_a_view():
    assert MOVES.keys() <= VIEWS
