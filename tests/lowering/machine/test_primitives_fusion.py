"""Chains of elementwise operations in one vertex."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import IPU1, IPU2, Cost, Operation, Shape
from lowering.machine.primitives import (
    ELEMENTWISE,
    MOST_FUSED,
    VIEWS,
    cost_of_operation,
    elementwise_chain_cost,
)

ARRAY = Shape((1472, 384), "float32")
SCALAR = Shape((), "float32")
ADD = Operation("add", (ARRAY, ARRAY), (ARRAY,))
SCALED = Operation("mul", (ARRAY, SCALAR), (ARRAY,))
EXP = Operation("exp", (ARRAY,), (ARRAY,))


def compute(found: Cost) -> float:
    return sum(phase.compute for phase in found.phases)


def test_a_chain_loads_what_is_outside_and_stores_once() -> None:
    # Three arrays from outside, two additions of a cycle each, one store; 32 vectors per worker.
    found = elementwise_chain_cost([ADD, ADD], IPU2)
    assert [phase.compute for phase in found.phases] == [6 * (29 + 32 * (3 + 2 + 1)) + 11]
    # One array from outside; exp's six cycles less its load, and the scaling.
    found = elementwise_chain_cost([SCALED, EXP], IPU2)
    assert [phase.compute for phase in found.phases] == [6 * (29 + 32 * (1 + 1 + 5 + 1)) + 11]


def test_one_operation_alone_costs_what_it_costs() -> None:
    assert elementwise_chain_cost([EXP], IPU2).phases == cost_of_operation(EXP, IPU2).phases
    assert elementwise_chain_cost([], IPU2).moves_nothing


def test_long_chains_take_several_vertices() -> None:
    found = elementwise_chain_cost([ADD] * (2 * MOST_FUSED + 1), IPU2)
    assert len(found.phases) == len(found.vertices) == 3
    assert found.flops == ARRAY.elements * (2 * MOST_FUSED + 1)


chains = st.lists(st.sampled_from(["add", "mul", "exp", "neg", "div", "max", "tanh"]), max_size=12)


@pytest.mark.exhaustive
@given(chains, st.sampled_from(["float32", "float16"]), st.integers(1, 3000))
def test_fusing_never_costs_more(names: list[str], dtype: str, rows: int) -> None:
    array = Shape((rows, 100), dtype)
    unary = {"exp", "neg", "tanh"}
    chain = [
        Operation(name, (array,) if name in unary else (array, array), (array,)) for name in names
    ]
    apart = [cost_of_operation(op, IPU2) for op in chain]
    fused = elementwise_chain_cost(chain, IPU2)
    assert compute(fused) <= sum(map(compute, apart))
    assert len(fused.phases) <= len(apart)
    assert fused.flops == sum(single.flops for single in apart)


def test_a_stencil_against_hardware() -> None:
    """docs/hardware.md, Measured rows: 3x3 on 2200 x 1122 cells of four floats, one GC2."""
    cells = Shape((2200, 1122, 4), "float32")
    scaled = Operation("mul", (cells, SCALAR), (cells,))
    added = Operation("add", (cells, cells), (cells,))
    chain = [scaled, *[scaled, added] * 8]
    assert compute(elementwise_chain_cost(chain, IPU1)) == pytest.approx(100_257, rel=0.3)


def test_no_view_is_computed() -> None:
    assert not ELEMENTWISE & VIEWS
