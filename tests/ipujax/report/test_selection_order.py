"""The order of a device's IPUs decides how many of them a copy passes."""

from __future__ import annotations

import pytest

import ipujax as ipu
from ipujax.config import SelectionOrder
from ipujax.report import Report
from tests.ipujax.reporting import configured, training


def of_pipeline(order: SelectionOrder, ipus: int) -> Report:
    configured(ipus, selection_order=order)
    model, args = training(ipus, 2 * ipus)
    return ipu.compile(model).lower(*args).report()


def passing(report: Report) -> int:
    """How many copies pass other IPUs, as the report says."""
    (said,) = report.assumptions or ("selection_order): 0 of ",)
    return int(said.partition("selection_order): ")[2].partition(" of ")[0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("ipus", [4, 8])
def test_a_pipeline_is_faster_where_its_stages_are_linked(ipus: int) -> None:
    snake, hoof, zigzag, auto = (
        of_pipeline(order, ipus)
        for order in (
            SelectionOrder.SNAKE,
            SelectionOrder.HOOF,
            SelectionOrder.ZIGZAG,
            SelectionOrder.AUTO,
        )
    )
    assert snake.cycles == auto.cycles < zigzag.cycles
    assert hoof.cycles < zigzag.cycles
    # Forward and back, every second pair of neighbouring stages; the others are for skipped stages.
    assert passing(zigzag) >= ipus - 2
    assert passing(snake) < passing(zigzag)
    places = ", ".join(map(str, range(ipus)))
    assert f"places {places} of the ladder" in zigzag.assumptions[0]


def test_two_ipus_are_linked_in_every_order() -> None:
    cycles = {of_pipeline(order, 2).cycles for order in SelectionOrder}
    assert len(cycles) == 1
