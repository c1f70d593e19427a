"""JAX's operations as products, and plans as costs."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from lowering.machine import IPU1, IPU2, IPU21, Operation, Shape, WantedLayout
from lowering.machine.planner import (
    Product,
    matmul_product,
    plan_product,
    product_cost,
    product_of_operation,
)


def operations(function: Any, *args: Any) -> list[Operation]:
    """The products of a function."""
    return [
        Operation(
            eqn.primitive.name,
            tuple(Shape(var.aval.shape, str(var.aval.dtype)) for var in eqn.invars),
            tuple(Shape(var.aval.shape, str(var.aval.dtype)) for var in eqn.outvars),
            tuple(eqn.params.items()),
        )
        for eqn in jax.make_jaxpr(function)(*args).jaxpr.eqns
        if eqn.primitive.name in ("dot_general", "conv_general_dilated")
    ]


def convolution(x: jax.Array, w: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def test_matrices():
    (op,) = operations(jnp.matmul, jnp.zeros((4, 5), "float16"), jnp.zeros((5, 6), "float16"))
    assert product_of_operation(op) == matmul_product(1, 4, 5, 6, "float16")


def test_batches_are_groups():
    (op,) = operations(jnp.matmul, jnp.zeros((2, 3, 4, 5)), jnp.zeros((2, 3, 5, 6)))
    assert product_of_operation(op) == matmul_product(6, 4, 5, 6)


def test_sums_over_several_dimensions():
    def contract(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((0, 2), (1, 0)), ((), ())))

    (op,) = operations(contract, jnp.zeros((3, 7, 4)), jnp.zeros((4, 3, 2)))
    assert product_of_operation(op) == matmul_product(1, 7, 12, 2)


def test_complex_numbers_are_four_real_products():
    (op,) = operations(jnp.matmul, jnp.zeros((4, 5), "complex64"), jnp.zeros((5, 6), "complex64"))
    assert product_of_operation(op) == matmul_product(1, 4, 10, 12)
    images, weights = jnp.zeros((1, 8, 8, 4), "complex64"), jnp.zeros((3, 3, 4, 4), "complex64")
    (op,) = operations(convolution, images, weights)
    assert product_of_operation(op).macs == 4 * 64 * 9 * 4 * 4
    square = jnp.zeros((1024, 1024))
    (real,) = operations(jnp.matmul, square, square)
    (both,) = operations(jnp.matmul, square.astype("complex64"), square.astype("complex64"))
    times = [product_cost(op, IPU2).cycles_with_exchange(4, 100, 100) for op in (real, both)]
    assert product_cost(both, IPU2).flops == 4 * product_cost(real, IPU2).flops
    assert 2 < times[1] / times[0] < 4


def test_a_product_without_a_sum():
    def outer(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((), ()), ((), ())))

    (op,) = operations(outer, jnp.zeros(300), jnp.zeros((7, 20)))
    assert product_of_operation(op) == matmul_product(1, 300, 1, 140)
    assert product_cost(op, IPU2).phases


def test_partials_are_the_operations_own():
    (op,) = operations(jnp.matmul, jnp.zeros((4, 5), "float16"), jnp.zeros((5, 6), "float16"))
    half = dc.replace(op, partials="half")
    assert product_of_operation(half) == matmul_product(1, 4, 5, 6, "float16", "float16")
    (single,) = operations(jnp.matmul, jnp.zeros((4, 5)), jnp.zeros((5, 6)))
    assert product_of_operation(dc.replace(single, partials="half")).partials == "float32"


def gradients(stride: int, groups: int, taps: int = 3) -> list[Product]:
    """Of a convolution of [4, 16, 16, 8] to 16 channels: forward, weights, inputs."""

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(convolution(x, w, stride, groups) ** 2)

    x, w = jnp.zeros((4, 16, 16, 8)), jnp.zeros((taps, taps, 8 // groups, 16))
    return [product_of_operation(op) for op in operations(jax.grad(loss, (0, 1)), x, w)]


def test_the_three_products_of_a_layer():
    forward, weights, inputs = gradients(stride=1, groups=1)
    assert (forward.batch, forward.in_channels, forward.out_channels) == (4, 8, 16)
    assert (forward.field, forward.kernel) == ((16, 16), (3, 3))
    assert (inputs.batch, inputs.in_channels, inputs.out_channels) == (4, 16, 8)
    assert weights.kind == "weight_update"
    assert (weights.batch, weights.in_channels, weights.out_channels) == (8, 4, 16)
    assert (weights.field, weights.kernel) == ((3, 3), (16, 16))
    assert forward.macs == weights.macs == inputs.macs


@pytest.mark.parametrize("taps", [1, 2, 4])
def test_strided_gradients_count_no_zeros(taps: int):
    forward, weights, inputs = gradients(stride=2, groups=1, taps=taps)
    assert inputs.macs == forward.macs == weights.macs
    assert inputs.input_field == forward.field


def test_groups_of_features_and_of_batches():
    forward, weights, inputs = gradients(stride=1, groups=2)
    assert forward.groups == weights.groups == inputs.groups == 2
    assert forward.macs == weights.macs == inputs.macs
    assert forward.in_channels == 4
    assert forward.out_channels == 8


DEGENERATE = [
    (jnp.matmul, (0, 4), (4, 5)),
    (jnp.matmul, (4, 0), (0, 5)),
    (jnp.dot, (5,), (5,)),
    (jnp.matmul, (1, 1), (1, 1)),
    (lambda x, w: lax.conv_general_dilated(x, w, (), "SAME"), (2, 4), (8, 4)),
    (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), (0, 4, 8, 8), (8, 4, 3, 3)),
    (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), (1, 4, 8, 8), (8, 4, 31, 31)),
    (lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"), (2, 4, 50), (8, 4, 3)),
    (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1, 1), "SAME"),
        (1, 4, 8, 8, 8),
        (8, 4, 3, 3, 3),
    ),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
@pytest.mark.parametrize(("function", "left", "right"), DEGENERATE)
def test_every_shape_has_a_cost(function: Any, left: Any, right: Any, dtype: str):
    for op in operations(function, jnp.zeros(left, dtype), jnp.zeros(right, dtype)):
        for target in (IPU1, IPU2):
            cost = product_cost(op, target)
            assert bool(cost.phases) == bool(op.first_result.elements)
            assert cost.temporary_bytes >= 0
            assert all(phase.compute >= 0 for phase in cost.phases)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", [16, 500, 4096])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_cost_takes_what_its_plan_takes(size: int, dtype: str):
    a, b = jnp.zeros((size, 300), dtype), jnp.zeros((300, size), dtype)
    (op,) = operations(jnp.matmul, a, b)
    cost = product_cost(op, IPU21)
    found = plan_product(product_of_operation(op), IPU21)
    cycles = cost.cycles_with_exchange(IPU21.exchange_bytes, IPU21.exchange_cycles, 0)
    assert cycles == pytest.approx(found.plan_cycles, rel=0.01, abs=2 * IPU21.exchange_cycles)
    assert cost.flops == 2 * size * size * 300
    assert cost.repeats == found.serial_parts


def test_sums_that_are_the_result_are_no_work_space():
    x, w = jnp.zeros((4096, 64), "float16"), jnp.zeros((64, 512), "float16")
    (op,) = operations(jnp.matmul, x, w)
    half, single = dc.replace(op, partials="float16"), op
    found = plan_product(product_of_operation(half), IPU2)
    assert (found.depth, found.serial_parts) == (1, 1)
    result = -(-op.first_result.elements // found.tiles_taking_part) * 2
    assert product_cost(half, IPU2).temporary_bytes == found.temporary_bytes - result
    found = plan_product(product_of_operation(single), IPU2)  # its sums are cast
    assert product_cost(single, IPU2).temporary_bytes >= 2 * result


def test_outer_products_have_no_sums():
    (op,) = operations(jnp.matmul, jnp.zeros((32, 1), "float16"), jnp.zeros((1, 50_176), "float16"))
    cost = product_cost(op, IPU2)
    assert {vertices.kind for vertices in cost.vertices} == {"poplin::OuterProduct<half>"}


def test_scarce_memory_costs_time():
    (op,) = operations(jnp.matmul, jnp.zeros((8192, 1024)), jnp.zeros((1024, 1024)))
    costs = [
        product_cost(dc.replace(op, memory_proportion=share), IPU2) for share in (0.6, 0.15, 0.05)
    ]
    cycles = [cost.cycles_with_exchange(4, 100, 100) for cost in costs]
    assert cycles == sorted(cycles)
    memory = [cost.temporary_bytes for cost in costs]
    assert memory == sorted(memory, reverse=True)


def layouts(wanted: tuple[WantedLayout | None, ...]) -> set[str]:
    return {want.layout for want in wanted if want is not None}


def test_layouts_are_equal_for_equal_products_only():
    a, b = jnp.zeros((64, 128)), jnp.zeros((128, 256))
    forward = [product_cost(op, IPU2) for op in operations(lambda x, w: (x @ w, x @ w), a, b)]
    assert forward[0].operands == forward[1].operands
    assert len(layouts(forward[0].operands) | layouts(forward[0].results)) == 3
    (back,) = operations(lambda g, w: g @ w.T, jnp.zeros((64, 256)), b)
    assert layouts(product_cost(back, IPU2).operands).isdisjoint(layouts(forward[0].operands))


def test_vertices_name_their_types():
    a, b = jnp.zeros((512, 512), "float16"), jnp.zeros((512, 512), "float16")
    (op,) = operations(jnp.matmul, a, b)
    kinds = [vertices.kind for vertices in product_cost(op, IPU2).vertices]
    assert kinds[0].startswith("poplin::ConvPartial1x1Out<half,float")
    assert any(kind.startswith("poplin::ReduceAdd<half,float") for kind in kinds)
