"""FLOPs are those of closed forms, and no operation attains more than its roofs allow."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering import machine
from lowering.machine import IPU1, IPU2, IPU21, Operation, Shape, Target
from lowering.machine.primitives import cost_of_operation
from lowering.machine.roofline import list_roofs
from tests.lowering.machine.test_primitives_rules import PROGRAMS, equations, operation


def struct(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def flops_of(function: Callable[..., Any], *arguments: Any) -> float:
    """The FLOPs of all equations."""
    found = list(equations(jax.make_jaxpr(function)(*arguments).jaxpr))
    assert found
    return sum(cost_of_operation(operation(eqn), IPU2).flops for eqn in found)


def convolution(x: Any, kernel: Any, **options: Any) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, dimension_numbers=numbers, **options)


def test_products_have_two_flops_for_each_multiply_accumulate() -> None:
    assert flops_of(jnp.matmul, struct(30, 50), struct(50, 70)) == 2 * 30 * 50 * 70
    halves = struct(4, 30, 50, dtype=jnp.float16), struct(4, 50, 70, dtype=jnp.float16)
    assert flops_of(jnp.matmul, *halves) == 2 * 4 * 30 * 50 * 70
    complexes = struct(3, 5, dtype=jnp.complex64), struct(5, 7, dtype=jnp.complex64)
    assert flops_of(jnp.matmul, *complexes) == 8 * 3 * 5 * 7


def test_whole_numbers_have_no_floating_point_operations() -> None:
    whole = struct(16, 16, dtype=jnp.int32)
    assert flops_of(lambda a: (a @ a + a, a.sum()), whole) == 0


def test_convolutions_count_every_tap_of_every_output() -> None:
    x, kernel = struct(2, 9, 9, 8), struct(3, 3, 4, 16)
    strided = dict(window_strides=(2, 2), padding="VALID", feature_group_count=2)
    counted = flops_of(lambda *a: convolution(*a, **strided), x, kernel)
    assert counted == 2 * (2 * 4 * 4 * 16) * (3 * 3 * 4)


@pytest.mark.parametrize(
    ("extent", "taps", "stride"), [(8, 3, 2), (9, 3, 2), (12, 5, 3), (7, 2, 3)]
)
def test_gradients_of_strided_convolutions_count_no_zeros(
    extent: int, taps: int, stride: int
) -> None:
    """As many as the pairs of an output and a tap that meet an element, not a hole between two."""
    x, kernel = struct(2, extent, extent, 4), struct(taps, taps, 4, 6)

    def loss(x: Any, kernel: Any) -> jax.Array:
        return convolution(x, kernel, window_strides=(stride, stride), padding="SAME").sum()

    gradient = jax.make_jaxpr(jax.grad(loss))(x, kernel)
    eqns = [e for e in equations(gradient.jaxpr) if e.primitive.name == "conv_general_dilated"]
    backward = next(eqn for eqn in eqns if max(eqn.params["lhs_dilation"]) == stride)
    (before, _), _ = backward.params["padding"]
    meeting = sum(
        (output + tap - before) % stride == 0 for output in range(extent) for tap in range(taps)
    )
    counted = cost_of_operation(operation(backward), IPU2).flops
    assert counted == pytest.approx(2 * 2 * meeting**2 * 4 * 6)


def test_elementwise_functions_count_each_element() -> None:
    x = struct(60, 70)
    assert flops_of(lambda a: jnp.exp(a) * a + a, x) == 3 * 60 * 70
    assert flops_of(lambda a: a**3, x) == 2 * 60 * 70
    assert flops_of(lambda a: a.sum(), x) == 60 * 70


@pytest.mark.parametrize(
    ("name", "dtype", "flops"),
    [("scatter-add", "float32", 140), ("scatter", "float32", 0), ("scatter-add", "int32", 0)],
)
def test_updates_of_rows_count_what_they_combine(name: str, dtype: str, flops: int) -> None:
    shapes = Shape((60, 70), dtype), Shape((2, 1), "int32"), Shape((2, 70), dtype)
    assert cost_of_operation(Operation(name, shapes, shapes[:1]), IPU2).flops == flops


@pytest.mark.parametrize("target", [IPU1, IPU2, IPU21], ids=lambda target: target.name)
def test_no_rule_counts_more_than_its_units_can_do(target: Target) -> None:
    """Of every rule, and of products, the FLOPs are at most those of a peak for its cycles."""
    peaks = {roof.name: roof.per_second / target.clock_hz for roof in list_roofs(target)}
    rates = target.exchange_bytes, target.exchange_cycles, target.sync_cycles
    for function, arguments in (*PROGRAMS.values(), *PRODUCTS):
        for eqn in equations(jax.make_jaxpr(function)(*arguments).jaxpr):
            op = operation(eqn)
            cost = cost_of_operation(op, target)
            cycles = cost.cycles_with_exchange(*rates)
            if cost.flops and cycles:
                units = machine.name_units(cost.units, op.operands[0].dtype)
                assert cost.flops / cycles <= peaks[units], op


def _of_square(side: int, dtype: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return jnp.matmul, (struct(side, side, dtype=dtype), struct(side, side, dtype=dtype))


def _of_image(side: int, channels: int, taps: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    image = struct(8, side, side, channels, dtype=jnp.float16)
    kernel = struct(taps, taps, channels, channels, dtype=jnp.float16)
    return lambda x, k: convolution(x, k, window_strides=(1, 1), padding="SAME"), (image, kernel)


PRODUCTS = [
    *(_of_square(side, dtype) for side in (16, 512, 3000) for dtype in (jnp.float16, jnp.float32)),
    *(_of_image(56, channels, taps) for channels in (1, 4, 64) for taps in (1, 3, 7)),
]


def test_peaks_are_those_that_the_maker_published() -> None:
    """Of GC200: 250 and 62.5 TFLOP/s (Graphcore: Mk2 IPU), and 47.5 TB/s of tile memory."""
    rates = {roof.name: roof.per_second / 1e12 for roof in list_roofs(IPU2)}
    assert rates["amp_float16_float16"] == pytest.approx(250, rel=0.01)
    assert rates["amp_float32_float32"] == pytest.approx(62.5, rel=0.01)
    assert rates["tile_memory"] == pytest.approx(47.5, rel=0.02)
    assert "streaming_memory" not in {roof.name for roof in list_roofs(IPU1)}


def total(**fields: Any) -> machine.OperationTotal:
    common: dict[str, Any] = dict(
        name="dot_general float16[8]", label="matmul", ipu=0, runs=1, cycles=1000.0,
        exchange_cycles=0.0, flops=0.0, flop_utilisation=None, bytes=0.0, tiles=1472,
        source="formula", origin="", number=3,
    )  # fmt: skip
    return machine.OperationTotal(**{**common, **fields})


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        (dict(flops=1e9, bytes=1e6), "amp_float16_float32"),
        (dict(flops=1e6, bytes=1e6), "tile_memory"),
        (dict(flops=1e6, bytes=1e3, exchange_bytes=1e3), "exchange"),
        (dict(flops=1e6, bytes=1e3, remote_bytes=1e6), "streaming_memory"),
    ],
)
def test_the_lowest_roof_is_what_takes_longest(fields: dict[str, float], bound: str) -> None:
    roofline = machine.build_roofline([total(units="amp_float16_float32", **fields)], IPU2)
    assert roofline is not None
    (point,) = roofline.points
    rate = next(roof.per_second for roof in roofline.roofs if roof.name == bound)
    amounts = {
        "tile_memory": point.bytes,
        "exchange": fields.get("exchange_bytes", 0.0) * IPU2.tiles_per_ipu,
        "streaming_memory": point.remote_bytes,
    }
    assert point.bound == bound
    assert point.roof == pytest.approx(point.flops / (amounts.get(bound, point.flops) / rate))
    assert point.intensity == pytest.approx(fields["flops"] / fields["bytes"])
    seconds = 1000 / IPU2.clock_hz
    np.testing.assert_allclose(point.flops_per_second, fields["flops"] / seconds)


def test_operations_of_earlier_versions_have_no_roofline() -> None:
    assert machine.build_roofline([total(flops=1.0)], IPU2) is None
    assert machine.build_roofline([total(flops=0.0)], IPU2) is not None


@pytest.mark.parametrize(
    ("flops", "intensity", "attained"),
    [
        (751_000.0, "7.51", "999 GFLOP/s"),
        (751_880.0, "7.52", "1 TFLOP/s"),
        (136_534_000.0, "1,365", "182 TFLOP/s"),
    ],
)
def test_numbers_are_printed_without_exponents(flops: float, intensity: str, attained: str) -> None:
    measured = total(flops=flops, bytes=1e5, units="amp_float16_float16")
    (line,) = str(machine.build_roofline([measured], IPU2)).splitlines()[-1:]
    assert line.split()[:3] == [intensity, *attained.split()]


def test_a_faster_chip_has_higher_roofs() -> None:
    twice = dc.replace(IPU2, clock_hz=2 * IPU2.clock_hz)
    for roof, faster in zip(list_roofs(IPU2), list_roofs(twice), strict=True):
        factor = 1 if roof.resource == "streaming_memory" else 2
        assert faster.per_second == factor * roof.per_second
