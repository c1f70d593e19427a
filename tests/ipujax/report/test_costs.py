"""Programs whose biggest cost is known."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.ground import format_percent
from ipujax.pipelining_ops import PipelineSchedule, pipeline
from ipujax.report import Cost, ProgramIndex, Report
from ipujax.report.advice.tally import tally_steps
from ipujax.report.advice.waiting import split_waiting_cycles
from lowering import schedules, trace
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.reporting import configured, struct, training, zeros

f16 = np.float16
INTERLEAVED = PipelineSchedule.Interleaved
SCHEDULES: dict[str, Any] = {
    "Grouped": PipelineSchedule.Grouped,
    "one_f_one_b": schedules.one_f_one_b,
    "gpipe": schedules.gpipe,
}


def report_of(fn: Callable[..., Any], *args: Any) -> Report:
    return ipu.compile(fn).lower(*args).report()


def biggest(report: Report) -> Cost:
    assert 1 <= len(report.costs) <= 3
    assert [c.cycles for c in report.costs] == sorted(
        (c.cycles for c in report.costs), reverse=True
    )
    for cost in report.costs:
        assert cost.share == pytest.approx(cost.cycles / (report.num_ipus * report.cycles))
        assert cost.detail
        assert cost.remedy
    (first, *_) = report.costs
    return first


def product(dtype: Any, **options: Any) -> Report:
    configured(**options)
    return report_of(lambda x, y: x @ y, *[struct(1024, 1024, dtype=dtype)] * 2)


def test_products_of_float32_could_be_float16() -> None:
    report = product(np.float32)
    cost = biggest(report)
    assert cost.title.startswith("compute of matmul")
    assert cost.cycles == report.busy_cycles["compute"].sum()
    assert "test_costs.py" in cost.origin
    (operation,) = (o for o in report.operations if o.name.startswith("dot_general"))
    assert f"{operation.flop_utilisation:.1%} of the IPU's peak" in cost.detail
    assert "a tile does 32 products a cycle instead of 16, and 64 with partials" in cost.remedy


def test_products_of_float16_could_have_half_sums() -> None:
    cost = biggest(product(f16))
    assert 'matmuls.poplar_options["partialsType"] = "half"' in cost.remedy
    assert "64 products a cycle instead of 32" in cost.remedy


def test_remedies_that_are_in_force_are_not_advised() -> None:
    cost = biggest(product(f16, matmuls__poplar_options={"partialsType": "half"}))
    assert cost.title.startswith("compute of matmul")
    assert "partialsType" not in cost.remedy
    assert "float16" not in cost.remedy
    on_ipu1 = ipu.compile(lambda x, y: x @ y).lower(*[struct(512, 512, dtype=f16)] * 2)
    assert "partialsType" not in biggest(on_ipu1.report("ipu1")).remedy  # it gains nothing there


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_float16_is_no_remedy_for_statistics_of_halves(dtype: Any) -> None:
    """What is float32 in a program of halves is so for a reason; in one of singles, by choice."""
    configured()

    def exps(x: Any) -> Any:
        wide = x.astype(np.float32)
        return jnp.exp(wide - wide.max(-1, keepdims=True)).sum(-1).astype(dtype)

    remedies = [cost.remedy for cost in report_of(exps, struct(2000, 4000, dtype=dtype)).costs]
    assert any("float16" in remedy for remedy in remedies) == (dtype is np.float32)


def test_elements_of_queues_tell_what_numbers_the_user_chose() -> None:
    """One half as an argument, and elements of float32."""
    configured()
    elements = infeed(lambda: itertools.repeat(np.zeros((1000, 2000), np.float32)))

    def body(total: Any, x: Any) -> Any:
        return total + jnp.exp(jnp.exp(jnp.exp(x))).sum().astype(f16)

    report = report_of(lambda x: ipu.loops.repeat(4, body, [x], elements), struct(dtype=f16))
    assert any("float16" in cost.remedy for cost in report.costs)


def test_programs_that_do_not_fit_are_not_modelled_for_speed() -> None:
    configured(4, ipu_model__tiles_per_ipu=2)
    model, args = training(4, 8, width=256)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ipujax.report.advice.alternatives._model_alternative", None)
        report = report_of(model, *args)
    assert not report.memory.fits
    (bubble,) = (cost for cost in report.costs if "bubble" in cost.title)
    assert "once the program fits" in bubble.remedy


def test_few_tiles_at_work_are_named() -> None:
    cost = biggest(report_of(lambda x: ipu.loops.repeat(9, jnp.tanh, [x]), struct(8)))
    assert cost.title == "compute of tanh"
    assert "only 1 of 1,472 tiles work" in cost.remedy


def test_many_small_steps_sync() -> None:
    report = report_of(lambda x: ipu.loops.repeat(100, lambda x: -x, [x]), struct(8))
    sync = next(cost for cost in report.costs if cost.title == "sync")
    assert sync.cycles == report.busy_cycles["sync"].sum()
    assert "100 syncs of 100 cycles on average" in sync.detail


def test_bubbles_say_what_more_micro_batches_give() -> None:
    configured(4)
    model, args = training(4, 8, width=512, batch=64, pipeline_schedule=PipelineSchedule.Grouped)
    report = report_of(model, *args)
    cost = next(cost for cost in report.costs if cost.title == "the pipeline's bubble")
    now = schedules.simulate(schedules.grouped(4, 8)).bubble
    then = schedules.simulate(schedules.grouped(4, 32)).bubble
    assert "gradient_accumulation_count 8 -> 32 with micro-batches as large as now" in cost.remedy
    assert f"the empty places of the grid go from {now:.1%} to {then:.1%}" in cost.remedy
    # One figure for the bubble, wherever it is told; the grid's is told by its own name.
    assert report.breakdown is not None
    assert report.pipeline is not None
    bubble = report.breakdown["bubble"].sum() / (report.num_ipus * report.cycles)
    assert cost.share == pytest.approx(bubble)
    assert "%" not in cost.detail
    text = str(report)
    assert f"{format_percent(bubble)}  the pipeline's bubble: " in text
    ipus, ticks = report.num_ipus, report.pipeline.ticks
    grid = f"Grid of {ipus} IPUs and {ticks} ticks: {now:.1%} of its places are empty"
    assert f"{grid} (bubble fraction)" in text.splitlines()
    before, (more, args) = report, training(4, 32, width=512, batch=64)
    after = report_of(more, *args)
    faster = 4 * before.cycles / after.cycles
    assert f"modelled {faster:.2f} x as many micro-batches a second" in cost.remedy


def test_schedules_are_advised_with_what_they_bring() -> None:
    """The remedy is applied and modelled again: its cycles are those that it says."""
    configured(4)
    model, args = training(4, 8, width=512, batch=64, pipeline_schedule=INTERLEAVED)
    before = report_of(model, *args)
    remedies = [cost.remedy for cost in before.costs if "pipeline_schedule=" in cost.remedy]
    assert remedies
    asked = re.search(r"pipeline_schedule=([\w.]+): modelled, a call takes ([\d,]+)", remedies[0])
    assert asked is not None
    schedule = SCHEDULES[asked[1].rpartition(".")[2]]
    after, args = training(4, 8, width=512, batch=64, pipeline_schedule=schedule)
    assert report_of(after, *args).cycles == int(asked[2].replace(",", "")) < before.cycles


def test_forward_that_waits_for_backward_is_no_bubble() -> None:
    """In the steady state of the interleaved schedule no cell of the grid is empty."""
    configured(4)
    model, args = training(4, 8, width=512, batch=64, pipeline_schedule=INTERLEAVED)
    lowered = ipu.compile(model).lower(*args)
    report = lowered.report()
    lines = report.pipeline
    assert lines is not None
    found = split_waiting_cycles(ProgramIndex(lowered.program), report.profile)
    busy = [[0] * 4 for _ in range(lines.ticks)]
    words = ("fwd", "bwd", "wgt")
    for stage, phase, tick in zip(lines.grid.stage, lines.grid.phase, lines.grid.tick, strict=True):
        busy[tick][stage] += lines.stage_cycles[int(stage), words[phase]]
    assert found.bubble == sum(max(row) * row.count(0) for row in busy)
    assert found.sharing > 0


@pytest.mark.parametrize(
    "make",
    [
        schedules.grouped,
        schedules.interleaved,
        schedules.gpipe,
        schedules.one_f_one_b,
        schedules.interleaved_one_f_one_b,
        schedules.zero_bubble,
    ],
)
def test_the_formula_for_more_micro_batches_holds_for_all_schedules(make: Any) -> None:
    idle = schedules.simulate(make(4, 8)).bubble
    then = schedules.simulate(make(4, 32)).bubble
    assert idle / (idle + (1 - idle) * 4) == pytest.approx(then)


def test_sequential_pipelines_need_another_schedule() -> None:
    configured(4)
    model, args = training(4, 8, width=64, pipeline_schedule=PipelineSchedule.Sequential)
    cost = biggest(report_of(model, *args))
    assert cost.title == "the pipeline's bubble"
    grouped = schedules.simulate(schedules.grouped(4, 8)).bubble
    model, args = training(4, 8, width=64, pipeline_schedule=PipelineSchedule.Grouped)
    after = report_of(model, *args)
    assert after.pipeline is not None
    assert after.pipeline.bubble_fraction == grouped
    assert "PipelineSchedule.Grouped" in cost.remedy
    assert f"a call takes {after.cycles:,} cycles instead of " in cost.remedy


def uneven(*layers: int) -> Report:
    """A pipeline whose stages have so many layers."""
    configured(len(layers))
    sink = outfeed()

    def stage(count: int) -> Any:
        def run(x: Any) -> Any:
            for _ in range(count):
                x = jnp.sin(x)
            return x

        return run

    def model(x: Any) -> Any:
        return pipeline([*map(stage, layers)], 64, inputs=[x], outfeed_queue=sink)

    return report_of(model, struct(256, 256))


def test_unequal_stages_name_the_slowest() -> None:
    report = uneven(1, 6)
    cost = biggest(report)
    assert report.pipeline is not None
    first, second = (report.pipeline.stage_cycles[i, "fwd"] for i in range(2))
    if cost.title.startswith("compute"):
        cost = report.costs[1]
    assert cost.title == "stages of unequal length"
    assert cost.ipu == 1
    second -= int(report.busy_cycles["host"][1]) // 64  # what it sends is the host's
    mean = (first + second) / 2
    assert f"stage 1 takes {second:,} cycles a micro-batch, queues not counted" in cost.detail
    assert f"{second / mean:.2g} x the mean" in cost.detail
    assert "move layers from stage 1 to stage 0" in cost.remedy
    assert f"{mean / second:.0%} of what it takes now" in cost.remedy


def test_waiting_is_split_by_what_equal_stages_would_leave() -> None:
    """64 micro-batches through two stages take 65 ticks; in two of them one IPU has no task."""
    assert not any(cost.title == "stages of unequal length" for cost in uneven(2, 2).costs)


def test_shards_wait_for_one_another() -> None:
    configured(2)

    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(0):
            y = jnp.sin(x)
        with ipu.scopes.ipu_shard(1):
            return jnp.sin(y)

    report = report_of(model, struct(1024, 1024))
    cost = biggest(report)
    assert cost.title == "waiting for other IPUs"
    busy = sum(cycles.sum() for cycles in report.busy_cycles.values())
    assert cost.cycles == 2 * report.cycles - busy
    assert "a pipeline" in cost.remedy


def test_ipus_without_a_stage_are_not_told_to_share_the_update() -> None:
    configured(4)
    model, args = training(3, 12, width=256)
    report = report_of(model, *args)
    cost = biggest(report)
    assert (cost.title, cost.ipu, cost.cycles) == ("IPUs without work", 3, report.cycles)
    assert cost.detail == "IPU 3 has no work in the whole call"
    assert cost.remedy == "give it a stage, or use fewer IPUs"


def test_ipus_without_a_shard() -> None:
    configured(4)

    def model(x: Any) -> Any:
        with ipu.scopes.ipu_shard(3):
            return jnp.sin(jnp.sin(x))

    report = report_of(model, struct(1024, 1024))
    cost = biggest(report)
    assert (cost.title, cost.ipu, cost.cycles) == ("IPUs without work", None, 3 * report.cycles)
    assert "IPUs 0-2 have no work" in cost.detail
    assert "ipu_shard" in cost.remedy


def fed(size: int, work: Any, **options: Any) -> Report:
    configured(**options)
    elements = infeed(zeros(size, size))

    def model(x: Any) -> Any:
        return ipu.loops.repeat(50, work, [x], elements)

    return report_of(model, struct(size, size))


def heavy(total: Any, x: Any, y: Any) -> Any:
    for _ in range(8):
        x = jnp.sin(x)
    return total + x @ y


def light(total: Any, x: Any, y: Any) -> Any:
    return total + x + y


def test_queues_can_work_beside_compute() -> None:
    report = fed(512, heavy)
    cost = next(cost for cost in report.costs if cost.title == "host I/O")
    host = int(report.busy_cycles["host"][0])
    hidden = min(host, report.cycles - host)
    assert cost.cycles == host
    assert "io_tiles.place_ops_on_io_tiles = True" in cost.remedy
    assert f"{hidden:,} cycles" in cost.remedy


@pytest.mark.parametrize("overlaps", [False, True])
def test_queues_that_nothing_hides_should_carry_less(overlaps: bool) -> None:
    options = {"io_tiles__num_io_tiles": 64, "io_tiles__place_ops_on_io_tiles": overlaps}
    cost = biggest(fed(512, light, **options))
    assert cost.title == "host I/O"
    assert "io_tiles" not in cost.remedy
    assert "float16" in cost.remedy


def test_hidden_queues_cost_nothing() -> None:
    options = {"io_tiles__num_io_tiles": 64, "io_tiles__place_ops_on_io_tiles": True}
    report = fed(64, heavy, **options)
    assert (report.busy_cycles["host"] < report.busy_cycles["compute"]).all()
    assert not any(cost.title == "host I/O" for cost in report.costs)


def test_offloading_that_is_not_needed_says_so() -> None:
    configured(2)
    model, args = training(2, 4, width=1024, offload_weight_update_variables=True)
    report = report_of(model, *args)
    cost = biggest(report)
    assert cost.title == "streaming memory"
    assert cost.cycles == report.busy_cycles["remote"].sum()
    assert cost.remedy.startswith("no offloading")


def test_costs_are_on_the_page() -> None:
    report = product(np.float32)
    text = str(report)
    assert "What takes most of it:\n" in text
    for cost in report.costs:
        assert f"{cost.share:.1%}  {cost.title}" in text
    assert text.count("fix: ") == len(report.costs)


def test_programs_without_steps_cost_nothing() -> None:
    report = report_of(lambda x: x, struct(4))
    assert report.costs == ()
    assert "What takes most of it" not in str(report)


def test_tallies_are_what_the_steps_add_up_to() -> None:
    configured(2)
    model, args = training(2, 4, repeat_count=3)
    steps = report_of(model, *args).steps
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for step in steps:
        key = (step.kind, step.name.partition("/")[0], step.origin)
        cycles, count = found.get(key, (0, 0))
        found[key] = (cycles + step.cycles, count + 1)
    assert {tuple(k): tuple(v) for k, v in tally_steps(steps.trace).items()} == found


def test_waiting_adds_up() -> None:
    configured(2)
    model, args = training(2, 8)
    lowered = ipu.compile(model).lower(*args)
    report = lowered.report()
    found = split_waiting_cycles(ProgramIndex(lowered.program), report.profile)
    busy = trace.count_busy_cycles(report.steps.trace, 2).sum()
    within = (found.bubble, found.sharing, found.imbalance, found.host)
    assert sum(within) + found.elsewhere == 2 * report.cycles - busy
    assert not found.unused
    assert min(*within, found.elsewhere) >= 0
    assert report.pipeline is not None
    equal = dict.fromkeys(report.pipeline.stage_cycles, 100)
    profile = dataclasses.replace(
        report.profile, pipeline=dataclasses.replace(report.pipeline, stage_cycles=equal)
    )
    assert split_waiting_cycles(ProgramIndex(lowered.program), profile).imbalance == 0


def test_small_work_is_not_told_of_cheaper_numbers() -> None:
    costs = report_of(lambda x: x @ x, struct(64, 64)).costs
    (cost,) = (each for each in costs if each.title.startswith("compute of matmul"))
    assert not any("float16" in each.remedy for each in costs)
    assert "larger batches" in cost.remedy
    assert cost.name == "dot_general"


def test_sums_use_the_tiles_of_their_numbers() -> None:
    report = report_of(jnp.sum, struct(1024, 1024))
    (total,) = (o for o in report.operations if o.name.startswith("reduce_sum"))
    assert total.tiles == 1469  # 714 numbers on each
    assert not any("tiles work" in cost.remedy for cost in report.costs)


def test_what_libraries_jit_is_at_the_users_line() -> None:
    def model(x: Any) -> Any:
        return jnp.cumsum(jnp.where(jax.nn.relu(x) > 3, x, 0.0))

    report = report_of(model, struct(64, 64))
    assert report.operations
    assert all("test_costs.py" in operation.origin for operation in report.operations)


def sent(size: int) -> Report:
    """Two equal stages, of which the last sends all it has to the host."""
    configured(2)
    sink = outfeed()
    stages = [jnp.sin, jnp.sin]

    def model(x: Any) -> Any:
        return pipeline(stages, 64, inputs=[x], outfeed_queue=sink)

    return report_of(model, struct(size, size))


def test_waiting_for_queues_is_not_cured_by_moving_layers() -> None:
    report = sent(512)
    assert not any(cost.title == "stages of unequal length" for cost in report.costs)
    cost = next(cost for cost in report.costs if cost.title == "host I/O")
    busy = int(report.busy_cycles["host"].sum())
    assert cost.cycles > busy
    assert f"other IPUs wait {cost.cycles - busy:,} cycles for it" in cost.detail
