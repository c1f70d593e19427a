"""No operation of a program is above its roof, and reports say the same in every form."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.report import Report
from lowering.machine.roofline import BANDWIDTHS
from tests.browser.networks import resnet
from tests.browser.samples import SAMPLES
from tests.ipujax.reporting import struct

HALF = jnp.float16


def report_of(function: Callable[..., Any], *args: Any) -> Report:
    return ipu.compile(function).lower(*args).report()


def attention(x: Any, weights: Any) -> Any:
    q, k, v = (x @ w for w in weights)
    scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 8.0, axis=-1)
    return jnp.einsum("bqk,bkd->bqd", scores, v)


def embedding(table: Any, rows: Any) -> Any:
    def loss(table: Any) -> Any:
        return jnp.square(table[rows]).sum()

    return table - 0.1 * jax.grad(loss)(table)


def sliced(x: Any, start: Any) -> Any:
    part = jax.lax.dynamic_slice(x, (start, 0), (4, x.shape[1]))
    return jax.lax.dynamic_update_slice(x, jnp.exp(part) + 1.0, (start, 0))


def scanned(x: Any, weights: Any) -> Any:
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x.sum()), x, weights)


def strided(x: Any, kernel: Any) -> Any:
    def loss(kernel: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.square(y).sum()

    return jax.value_and_grad(loss)(kernel)


def factorized(x: Any) -> Any:
    return jnp.linalg.qr(x), jnp.linalg.cholesky(x @ x.T), jnp.cumsum(jnp.sort(x, 0), 1)


PROGRAMS: dict[str, Callable[[], Report]] = {
    "resnet": lambda: resnet().report(),
    "pipeline": SAMPLES["pipeline"],
    "attention": lambda: report_of(
        attention, struct(4, 128, 256, dtype=HALF), [struct(256, 256, dtype=HALF)] * 3
    ),
    "embedding": lambda: report_of(embedding, struct(30_000, 64), struct(20, dtype=jnp.int32)),
    "sliced": lambda: report_of(sliced, struct(4096, 512), struct(dtype=jnp.int32)),
    "scanned": lambda: report_of(scanned, struct(64, 256), struct(12, 256, 256)),
    "strided": lambda: report_of(strided, struct(4, 31, 31, 8), struct(3, 3, 8, 16)),
    "factorized": lambda: report_of(factorized, struct(96, 96)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_operation_is_above_its_roofs(name: str) -> None:
    report = PROGRAMS[name]()
    roofline = report.roofline
    assert roofline is not None
    assert roofline.points
    rates = {roof.name: roof.per_second for roof in roofline.roofs}
    for point in roofline.points:
        assert point.flops_per_second <= point.roof * (1 + 1e-9), point
        assert point.roof <= rates[point.units] * (1 + 1e-9), point
        seconds = point.cycles / report.target.clock_hz
        moved = (point.bytes, point.exchange_bytes, point.remote_bytes)
        for memory, bytes_ in zip(BANDWIDTHS, moved, strict=True):
            assert bytes_ / seconds <= rates[memory] * (1 + 1e-9), (memory, point)


def test_all_other_operations_stay_below_bandwidths_too() -> None:
    """Moves and integers have no FLOPs, but bytes that pass the same memories."""
    for report in (PROGRAMS[name]() for name in ("embedding", "sliced", "scanned", "resnet")):
        roofline = report.roofline
        assert roofline is not None
        rates = {roof.name: roof.per_second for roof in roofline.roofs}
        for operation in report.operations:
            seconds = operation.cycles / report.target.clock_hz
            if seconds:
                assert operation.bytes / seconds <= rates["tile_memory"] * (1 + 1e-9), operation


def test_products_of_a_program_have_their_closed_form() -> None:
    report = report_of(lambda a, b: jnp.tanh(a @ b), struct(96, 160), struct(160, 48))
    assert report.roofline is not None
    product, other = sorted(report.roofline.points, key=lambda point: -point.flops)
    assert product.flops == 2 * 96 * 160 * 48
    assert product.units == "amp_float32_float32"
    assert product.bytes == 4 * (96 * 160 + 160 * 48 + 96 * 48)
    assert (other.flops, other.units) == (96 * 48, "vector_float32")


def test_units_follow_the_types_of_numbers_and_sums() -> None:
    halves = struct(64, 64, dtype=HALF)
    report = report_of(jnp.matmul, halves, halves)
    assert report.roofline is not None
    assert report.roofline.points[0].units == "amp_float16_float32"
    config = ipu.config.IPUConfig()
    config.matmuls.poplar_options = {"partialsType": "half"}
    config.configure_ipu_system()
    report = report_of(jnp.matmul, halves, halves)
    assert report.roofline is not None
    assert report.roofline.points[0].units == "amp_float16_float16"


def test_the_document_has_the_points_in_the_order_of_operations() -> None:
    report = resnet().report()
    document, roofline = report.to_dict(), report.roofline
    assert roofline is not None
    points = document["roofline"]["points"]
    computing = [one for one in document["operations"] if one["flops"] and one["cycles"]]
    assert points["number"] == [operation["number"] for operation in computing]
    attained = [point.flops_per_second for point in roofline.points]
    np.testing.assert_allclose(points["flops_per_second"], attained)
    seconds = [operation["cycles"] / report.target.clock_hz for operation in computing]
    expected = [one["flops"] / time for one, time in zip(computing, seconds, strict=True)]
    np.testing.assert_allclose(points["flops_per_second"], expected)
    assert Report.from_dict(document).to_dict() == document


def test_reports_of_earlier_versions_have_none() -> None:
    document = resnet().report().to_dict()
    del document["roofline"]
    for operation, key in itertools.product(
        document["operations"], ("units", "exchange_bytes", "remote_bytes")
    ):
        del operation[key]
    report = Report.from_dict(document)
    assert report.roofline is None
    assert report.to_dict()["roofline"] is None


def test_it_prints_peaks_and_the_costliest_operations() -> None:
    text = str(resnet().report().roofline)
    assert "AMP float16, sums in float32" in text
    assert "125 TFLOP/s" in text
    assert "conv 3x3 16 -> 16" in text
