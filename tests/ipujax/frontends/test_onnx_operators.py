"""A fixed tenth of ONNX's own node cases; `python -m tests.onnx_operators` runs all."""

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

from tests.onnx_operators.cases import cases, kind_of, reason_of
from tests.onnx_operators.compare import compare

PARTS = 12


@pytest.mark.sampled(0, 4)
@pytest.mark.parametrize("part", range(PARTS))
def test_cases_of_onnx(part):
    # The package makes the cases, which takes seconds: not while tests are collected.
    dense = [name for name, case in cases().items() if kind_of(case) == "dense"]
    found = {name: compare(cases()[name]) for name in dense[::10][part::PARTS]}
    assert {n: r.problem for n, r in found.items() if not r.agrees and not reason_of(n)} == {}
    assert [n for n, r in found.items() if r.agrees and reason_of(n)] == []
