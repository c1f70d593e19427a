"""Drawings of schedules, programs, devices, memory and comparisons, in notebooks."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.system import SYSTEM
from lowering.ground import svg
from tests.ipujax.small_report import small_report
from tests.numbers import use_ipus

SVG = "{http://www.w3.org/2000/svg}"
X = jax.ShapeDtypeStruct((64, 256), np.float32)


def drawn(shown: Any) -> ElementTree.Element:
    """The SVG of what a notebook shows, which is well-formed."""
    return ElementTree.fromstring(shown._repr_html_())


def texts(drawing: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in drawing.iter(f"{SVG}text")]


def tips(drawing: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in drawing.iter(f"{SVG}title")]


@ipu.compile
def over_four(x):
    for number in range(4):
        with ipu.scopes.ipu_shard(number):
            x = jax.numpy.tanh(x)
    with ipu.scopes.ipu_shard(0):
        return x + 1


@pytest.mark.parametrize("make", [schedules.grouped, schedules.one_f_one_b, schedules.zero_bubble])
def test_every_task_of_a_schedule_is_a_box(make: Any) -> None:
    schedule = make(3, 6)
    found = tips(drawn(schedule))
    assert len(found) == len(set(found)) == schedule.num_tasks
    first = schedule.ticks[0][0]
    assert f"stage {first.stage}, forward, micro-batch {first.micro_batch}, tick 0" in found


def test_long_schedules_are_shown_in_part() -> None:
    schedule = schedules.gpipe(64, 10_000)
    assert len(schedule._repr_html_()) < 1 << 19
    assert texts(drawn(schedule))[-1] == (
        f"{len(schedule.ticks)} ticks, 10000 micro-batches; here 120 ticks of 32 IPUs"
    )


def test_a_program_is_its_ipus_and_what_flows_between() -> None:
    use_ipus(4)
    found = texts(drawn(over_four.lower(X)))
    assert found[0] == "over_four: 4 IPUs"
    assert [word for word in found if word.startswith("IPU ")] == [f"IPU {n}" for n in range(4)]
    # From the host, to the next IPU three times, back to the first, and to the host.
    assert [word for word in found if word.endswith("kB")] == ["65.5 kB"] * 6


@pytest.mark.parametrize("order", ["SNAKE", "ZIGZAG"])
def test_a_device_is_its_ladder(order: str) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.selection_order = ipu.config.SelectionOrder[order]
    config.configure_ipu_system()
    device = SYSTEM.device("/device:IPU:0")
    drawing = drawn(device)
    places = dict(zip(texts(drawing)[1:], drawing.iter(f"{SVG}rect"), strict=True))
    third = float(places["shard 2"].get("x", 0)), float(places["shard 0"].get("x", 0))
    assert (third[0] == third[1]) == (order == "ZIGZAG")  # below the first, or across from it


@pytest.mark.parametrize(
    ("ipus", "lines"), [(32, 16 + 30), (48, 24 + 46), (64, 32 + 64), (128, 2 * 96)]
)
def test_the_rails_of_a_whole_rack_are_rings(ipus: int, lines: int) -> None:
    """32 IPUs are a part of a rack, and 48 do not fill one; racks are not joined by links."""
    use_ipus(ipus)
    assert len(list(drawn(SYSTEM.device("/device:IPU:0")).iter(f"{SVG}path"))) == lines


def test_memory_is_as_full_as_it_says() -> None:
    memory = small_report().memory
    drawing = drawn(memory)
    shares = [float(w.removesuffix("% full")) for w in texts(drawing) if w.endswith("% full")]
    expected = 100 * memory.tile_peak_bytes.max(axis=1) / memory.limit
    np.testing.assert_allclose(shares, expected, atol=0.5)
    fullest = [int(re.sub(r"\D", "", tip)) for tip in tips(drawing)]
    assert sorted(fullest) == sorted(memory.tile_peak_bytes.ravel())


def test_comparisons_have_bars_as_long_as_calls() -> None:
    use_ipus(4)
    found = ipu.compare(over_four, [X], targets=["ipu1", "ipu2"])
    bars = [
        float(box.get("width", 0))
        for box in drawn(found).iter(f"{SVG}rect")
        if box.get("fill") == svg.BLUE
    ]
    ratio = (found.rows[0].seconds or 0) / (found.rows[1].seconds or 1)
    assert bars[0] / bars[1] == pytest.approx(ratio, rel=1e-3)


def test_names_of_users_are_texts() -> None:
    drawing = svg.Drawing(10, 10, "<a & 'b'>")
    drawing.draw_text(0, 0, "</svg><script>")
    assert texts(ElementTree.fromstring(str(drawing))) == ["</svg><script>"]
