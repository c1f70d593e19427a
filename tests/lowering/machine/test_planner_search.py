"""What holds of every plan."""

from __future__ import annotations

import dataclasses as dc
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowering.ground import InternalError
from lowering.machine import IPU1, IPU2, IPU21, Target
from lowering.machine.planner import (
    Plan,
    Product,
    find_cut_axes,
    find_largest_part,
    matmul_product,
    plan_product,
)
from lowering.machine.planner.estimate import TERMS
from lowering.machine.planner.search import find_least_proportion, find_worthwhile

EXTENT = st.integers(1, 600)
TYPES = st.sampled_from([("float16", "float16"), ("float16", "float32"), ("float32", "float32")])


@st.composite
def matmuls(draw: st.DrawFn) -> Product:
    dtype, partials = draw(TYPES)
    groups = draw(st.sampled_from([1, 1, 1, 2, 12]))
    return matmul_product(groups, draw(EXTENT), draw(EXTENT), draw(EXTENT), dtype, partials)


@st.composite
def convolutions(draw: st.DrawFn) -> Product:
    dtype, partials = draw(TYPES)
    rank = draw(st.integers(1, 2))
    kernel = tuple(draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank)))
    field = tuple(draw(st.lists(st.integers(1, 40), min_size=rank, max_size=rank)))
    stride = (draw(st.integers(1, 2)),) * rank
    return Product(
        groups=draw(st.sampled_from([1, 1, 4, 32])),
        batch=draw(st.integers(1, 9)),
        field=field,
        kernel=kernel,
        in_channels=draw(st.integers(1, 70)),
        out_channels=draw(st.integers(1, 70)),
        input_field=tuple(f * s for f, s in zip(field, stride, strict=True)),
        stride=stride,
        dilation=(1,) * rank,
        dtype=dtype,
        partials=partials,
        result=dtype,
    )


PRODUCTS = matmuls() | convolutions()
TARGETS = st.sampled_from([IPU1, IPU2, IPU21])


def check(found: Plan, product: Product, target: Target) -> None:
    shape, grains, cut = found.variant.product, found.vertex.grains, found.partition
    assert 1 <= found.tiles_taking_part <= target.tiles_per_ipu
    parts = found.serial_in * cut.in_channels
    held = math.ceil(math.ceil(shape.in_channels / grains.in_channels) / parts)
    assert held * grains.in_channels * parts >= shape.in_channels
    assert shape.in_channels % found.serial_in == 0
    assert min(found.serial_in, found.serial_out) == 1
    assert dict(found.cycles_by_term).keys() == set(TERMS)
    assert all(cycles >= 0 for _, cycles in found.cycles_by_term)
    peak = max(macs for _, macs in target.macs_per_cycle)
    # SLIC has more of the units at work than AMP with the same sums; outer products do not multiply
    # and add. The highest rate of the chip bounds all.
    assert found.plan_cycles >= product.macs / (peak * found.tiles_taking_part)


@settings(max_examples=30)
@given(PRODUCTS, TARGETS)
def test_a_plan_covers_the_product_on_the_tiles_that_there_are(product: Product, target: Target):
    check(plan_product(product, target), product, target)


@settings(max_examples=15)
@given(PRODUCTS)
def test_parts_cover_every_dimension(product: Product):
    found = plan_product(product, IPU2)
    shape, grains = found.variant.product, found.vertex.grains
    axes = find_cut_axes(shape, grains, IPU2.tiles_per_ipu)
    cuts = axes.cuts_at(np.zeros((1, len(axes.cuts_per_axis)), dtype=np.int64))
    cuts = dc.replace(
        cuts,
        serial_in=np.array([found.serial_in]),
        serial_out=np.array([found.serial_out]),
        in_channels=np.array([found.partition.in_channels]),
        out_channels=np.array([found.partition.out_channels]),
        groups=np.array([found.partition.groups]),
        batch=np.array([found.partition.batch]),
        field=tuple(np.array([n]) for n in found.partition.field),
        kernel=tuple(np.array([n]) for n in found.partition.kernel),
    )
    part = find_largest_part(shape, grains, cuts)
    each = part.output_rows * part.kernel_elements_of_part * part.group_grains * grains.groups
    each = each * part.in_grains * grains.in_channels * part.out_grains * grains.out_channels
    assert int(each[0]) * found.tiles_taking_part * found.serial_parts >= product.macs


@settings(max_examples=20)
@given(PRODUCTS, st.lists(st.floats(0.01, 1.5), min_size=2, max_size=4))
def test_more_memory_never_makes_a_plan_slower(product: Product, proportions: list[float]):
    plans = [(share, plan_product(product, IPU2, share)) for share in sorted(proportions)]
    fitting = [one for share, one in plans if one.temporary_bytes <= share * IPU2.bytes_per_tile]
    cycles = [one.plan_cycles for one in fitting]
    assert cycles == sorted(cycles, reverse=True)


@settings(max_examples=20)
@given(PRODUCTS, st.lists(st.floats(0.0, 1.5), min_size=2, max_size=4))
def test_the_least_proportion_stands_for_a_plan(product: Product, proportions: list[float]):
    """The same for all proportions of one plan, and no larger than what the plan needs."""
    plans = [plan_product(product, IPU2, share) for share in proportions]
    least = [find_least_proportion(product, IPU2, share) for share in proportions]
    assert [plan_product(product, IPU2, share) for share in least] == plans
    needed = [plan.temporary_bytes / IPU2.bytes_per_tile for plan in plans]
    assert least == pytest.approx(needed, rel=1e-12)
    assert [a == b for a in plans for b in plans] == [a == b for a in least for b in least]


@settings(max_examples=20)
@given(matmuls())
def test_twice_the_rows_take_no_less(product: Product):
    # Within what a search that does not look at everything may miss.
    rows = (product.field[0] * 2,)
    longer = dc.replace(product, field=rows, input_field=rows)
    assert plan_product(longer, IPU2).plan_cycles >= 0.95 * plan_product(product, IPU2).plan_cycles


@settings(max_examples=20)
@given(PRODUCTS)
def test_no_proportion_asks_for_the_least_memory(product: Product):
    least = plan_product(product, IPU2, 0.0).temporary_bytes
    assert least <= plan_product(product, IPU2, 0.05).temporary_bytes
    assert least <= plan_product(product, IPU2).temporary_bytes


def test_the_bound_doubles_until_something_fits():
    product = matmul_product(1, 4096, 4096, 4096)
    least = plan_product(product, IPU2, 0.0).temporary_bytes / IPU2.bytes_per_tile
    found = plan_product(product, IPU2, least * 0.6)
    assert least <= found.temporary_bytes / IPU2.bytes_per_tile <= least * 1.2


def test_the_bound_is_dropped_where_nothing_can_fit():
    small = dc.replace(IPU2, bytes_per_tile=64, reserved_bytes=0)
    product = matmul_product(1, 4096, 4096, 4096)
    assert plan_product(product, small).plan_cycles == min(
        plan_product(product, small, proportion).plan_cycles for proportion in (0.1, 1.0, 1e6)
    )


def test_large_products_are_cut_serially():
    found = plan_product(matmul_product(1, 32768, 1024, 1024, "float16", "float16"), IPU21)
    assert found.serial_parts > 1
    assert found.temporary_bytes <= 0.6 * IPU21.bytes_per_tile


def test_depthwise_convolutions_use_the_vertices_for_groups():
    kinds = {}
    for dtype in ("float16", "float32"):
        product = Product(
            groups=144,
            field=(56, 56),
            kernel=(3, 3),
            in_channels=1,
            out_channels=1,
            input_field=(56, 56),
            stride=(1, 1),
            dilation=(1, 1),
            dtype=dtype,
            result=dtype,
        )
        kinds[dtype] = plan_product(product, IPU2).vertex_kind
    assert kinds["float16"] in ("slic", "vmac")
    assert kinds["float32"] in ("hmac", "amp")


def test_integers_have_scalar_vertices_only():
    product = dc.replace(matmul_product(1, 256, 256, 256), scalar=True)
    assert plan_product(product, IPU2).vertex_kind == "hmac"


def test_empty_products_have_no_plan():
    with pytest.raises(InternalError, match="empty"):
        plan_product(matmul_product(1, 4, 0, 4), IPU2)


def test_products_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="float16"):
        matmul_product(1, 4, 4, 4, "float32", "float16")
    with pytest.raises(ValueError, match="rank"):
        dc.replace(matmul_product(1, 4, 4, 4), kernel=(1, 1))


def test_a_slightly_faster_plan_is_not_worth_half_as_much_memory_again():
    # The weight gradient of a ResNet's stem, 7x7, 224x224 to 112x112: its fastest plan takes
    # 33.7 KB of a tile and 16.4 thousand cycles, the next one 21.9 KB and 17.0 thousand.
    gradient = Product(
        batch=4,
        field=(7, 7),
        kernel=(112, 112),
        in_channels=1,
        out_channels=64,
        input_field=(224, 224),
        stride=(1, 1),
        dilation=(2, 2),
        dtype="float16",
        partials="float32",
        result="float16",
    )
    found = plan_product(gradient, IPU2)
    assert found.temporary_bytes == pytest.approx(21_900, rel=0.02)
    assert found.plan_cycles == pytest.approx(17_000, rel=0.02)


@pytest.mark.parametrize(
    ("cycles", "memory", "kept"),
    [
        ([100.0, 97.0], [60.0, 100.0], [0]),  # 3 % faster for 40 % less memory
        ([100.0, 97.0], [70.0, 100.0], [0, 1]),
        ([100.0, 95.0], [60.0, 100.0], [0, 1]),
        (
            [100.0, 98.0, 95.0],
            [10.0, 20.0, 40.0],
            [0, 2],
        ),  # the second one does not excuse the third
    ],
)
def test_much_smaller_plans_displace_slightly_faster_ones(cycles, memory, kept):
    assert find_worthwhile(np.array(cycles), np.array(memory)) == kept
