"""Advice on the work space of the products of single stages, and what following it does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import pytest

import ipujax as ipu
from ipujax.pipelining_ops import PipelineStageOptions, pipeline
from ipujax.report import Report
from ipujax.report.advice.findings import Advice
from tests.ipujax.feeding import outfeed
from tests.ipujax.pipelining import sgd
from tests.ipujax.reporting import configured, struct

WIDTH, ROWS = 5632, 512


def stage(name: str) -> Any:
    return lambda v, x: jnp.tanh(x @ v[name])


def report_of(
    widths: Sequence[int], proportions: Sequence[float] | None, backward: Sequence[float] = ()
) -> Report:
    """A pipeline with a matrix on each IPU, from the first width to the second, and so on."""
    configured(1 << (len(widths) - 2).bit_length())

    def options(given: Sequence[float] | None) -> Any:
        if not given:
            return None
        texts = [{"availableMemoryProportion": str(proportion)} for proportion in given]
        return [PipelineStageOptions(matmul_options=text) for text in texts]

    names = [f"w{number}" for number in range(len(widths) - 1)]

    def train(variables: Any, x: Any) -> Any:
        *stages, last = [stage(name) for name in names]
        return pipeline(
            [*stages, lambda v, x: jnp.mean(last(v, x) ** 2)],
            12,
            inputs=[x],
            outfeed_queue=outfeed(),
            variables=variables,
            optimizer_function=sgd(0.1),
            forward_propagation_stages_poplar_options=options(proportions),
            backward_propagation_stages_poplar_options=options(backward or proportions),
        )

    pairs = zip(names, widths, widths[1:], strict=False)
    variables = {name: struct(rows, columns) for name, rows, columns in pairs}
    return ipu.compile(train).lower(variables, struct(ROWS, widths[0])).report()


def work_space_advice(report: Report) -> Advice:
    return next(each for each in report.advice if each.rule == "less_work_space")


@pytest.mark.parametrize("proportions", [None, (0.6, 0.2)], ids=["default", "own"])
def test_following_the_advice_of_a_stage_gives_what_it_promises(proportions: Any) -> None:
    before = report_of((WIDTH, WIDTH, 64), proportions)
    assert not before.memory.fits
    entry = work_space_advice(before)
    assert "0.3 in matmul_options of stage 0 (now 0.6): fits" in entry.text
    assert entry.enough
    after = report_of((WIDTH, WIDTH, 64), (0.3, proportions[1] if proportions else 0.6))
    assert after.memory.fits
    assert int(after.memory.tile_peak_bytes.max()) == entry.fullest_bytes
    assert after.memory.tile_peak_bytes[1].max() == before.memory.tile_peak_bytes[1].max()


def test_each_stage_goes_down_from_what_it_has() -> None:
    """Two stages lack memory, with proportions of their own; the forward pass has another one."""
    report = report_of((WIDTH, WIDTH, WIDTH, 64), (0.6, 0.56, 0.2), backward=(0.6, 0.6, 0.2))
    texts = [each.text for each in report.advice if "matmul_options" in each.text]
    assert texts
    found = re.findall(r"([\d.]+) in matmul_options of stage (\d) \(now ([\d. and]+)\)", texts[0])
    proportions = {int(number): (float(new), now) for new, number, now in found}
    assert set(proportions) == {0, 1}
    assert proportions[0][0] in (0.3, 0.1, 0.03)
    assert proportions[1] == (
        pytest.approx(0.56 / 0.6 * proportions[0][0], abs=1e-3),
        "0.56 and 0.6",
    )
