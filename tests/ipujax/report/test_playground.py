"""The playground of schedules: it simulates what Python does, and is one file."""

from __future__ import annotations

import dataclasses as dc
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ipujax import schedules
from ipujax.report.make_playground import playground_of_pipeline
from ipujax.report.presentation import bundle
from ipujax.report.presentation.playground_page import list_ported_names
from ipujax.schedules import Phase, Schedule, ScheduleError
from tests.between import add_between
from tests.browser.samples import SAMPLES
from tests.ipujax.report.engine import evaluate, simulate_all
from tests.ipujax.report.optima import find_optimum, list_rows

NAMES = tuple(name for name in schedules.names() if name in list_ported_names())


def read_engine(page: str) -> str:
    """The script of the simulator of a page."""
    found = re.search(r'<script id="engine">(.*?)</script>', page, re.DOTALL)
    assert found
    return found[1]


def draw_settings(draw: random.Random, name: str) -> dict[str, Any]:
    """Random settings of a schedule, some of which it refuses."""

    def time() -> float:
        return draw.choice([0.0, 1.0, draw.random(), draw.uniform(0, 1000), draw.random() * 1e-9])

    stages = draw.randint(1, 8)
    multiples = [n * stages for n in (1, 2, 4)]
    return {
        "schedule": name,
        "stages": stages,
        "microBatches": draw.choice([draw.randint(1, 24), *multiples]),
        "forward": draw.choice([time(), [time() for _ in range(stages)]]),
        "backward": time(),
        "weight": time(),
        "transfer": draw.choice([0, time(), [time() for _ in range(stages - 1)]]),
    }


def simulate_in_python(settings: dict[str, Any]) -> dict[str, Any] | None:
    """What Python's simulator says of settings; None where it refuses."""
    sizes = (settings["stages"], settings["microBatches"])
    try:
        schedule = getattr(schedules, settings["schedule"])(*sizes)
    except ScheduleError:
        return None
    times = {
        Phase.FORWARD: settings["forward"],
        Phase.BACKWARD: settings["backward"],
        Phase.WEIGHTS: settings["weight"],
    }
    run = schedules.simulate(schedule, times, transfer=settings["transfer"])
    return {
        "makespan": run.makespan,
        "bubble": run.bubble,
        "inFlightPerIpu": list(run.in_flight_per_ipu),
    }


def check_alike(count: int, seed: int) -> None:
    draw = random.Random(seed)
    check_settings([draw_settings(draw, NAMES[i % len(NAMES)]) for i in range(count)])


def check_settings(settings: list[dict[str, Any]]) -> None:
    python = [simulate_in_python(each) for each in settings]
    for each, ours, its in zip(
        settings, python, simulate_all(read_engine(schedules.playground()), settings), strict=True
    ):
        assert its == ours, each
    assert sum(result is not None for result in python) > len(settings) / 2


def test_the_page_simulates_as_python_does() -> None:
    check_alike(120, seed=0)


@pytest.mark.exhaustive
def test_the_page_simulates_a_thousand_settings_as_python_does() -> None:
    check_alike(1000, seed=1)


def list_small_settings(
    names: Sequence[str], most_stages: int, most_micro_batches: int, step: int = 1
) -> list[dict[str, Any]]:
    times = {"forward": 1, "backward": 1, "weight": 1, "transfer": 0}
    return [
        {"schedule": name, "stages": stages, "microBatches": micro_batches, **times}
        for name in names
        for stages in range(step, most_stages + 1, step)
        for micro_batches in range(1, most_micro_batches + 1)
    ]


def test_the_page_has_pythons_order_of_few_micro_batches_in_a_v() -> None:
    check_settings(list_small_settings(("zbv", "v_half", "v_min", "dualpipe_v"), 10, 7, step=2))


@pytest.mark.exhaustive
def test_the_page_has_pythons_order_of_all_small_pipelines() -> None:
    check_settings(list_small_settings(NAMES, 10, 24))


def test_the_page_has_all_schedules(tmp_path: Path) -> None:
    path = tmp_path / "playground.html"
    page = schedules.playground(path)
    assert path.read_text("utf-8") == page
    names = evaluate(read_engine(page), "JSON.stringify(playground.names)")
    assert tuple(names) == schedules.names()
    assert len(NAMES) >= 9


def test_the_simulator_knows_no_page() -> None:
    engine = read_engine(schedules.playground())
    assert not re.search(r"\b(document|window|location|navigator)\b", engine)
    assert len(schedules.playground()) < 300_000


def test_the_page_asks_nobody() -> None:
    page = schedules.playground()
    assert "default-src 'none'" in page
    for forbidden in ("http:", "https:", "//cdn", "url(", "@import", "fetch(", "XMLHttpRequest"):
        assert forbidden not in page, forbidden
    assert not re.search(r"<(?:link|img|script)[^>]*\b(?:src|href)=", page)


CASES = """JSON.stringify(CASES.map(([schedule, p, m, F, B, W]) => {
  const numbers = { stages: p, microBatches: m, forward: F, backward: B, weight: W, transfer: 0 };
  const state = { ...numbers, own: false };
  const entry = playground.schedules[schedule];
  const settings = settingsOf(state, schedule, entry, null);
  const made = playground.run(settings);
  const { tasks, makespan, inFlightPerIpu } = made;
  const [splits, limit] = [entry.splits ?? false, Math.max(...inFlightPerIpu)];
  const bounds = [lowerBound(made, settings, splits), lowerBound(made, settings, splits, limit)];
  const formula = formulaOf(entry, state)?.value ?? null;
  const optimum = optimumOf(entry, state, limit / (entry.perIpu ?? 1))?.time ?? null;
  return [longestBubble(tasks), formula, ...bounds, optimum, makespan];
}))"""


def run_formulas(
    cases: Sequence[Sequence[Any]],
) -> list[tuple[float, float | None, float, float, float | None, float]]:
    """For each case, the bubble, what the formula says of it, the bound and the makespan."""
    modules = [f"playground/{name}.js" for name in ("bounds", "formulas", "state")]
    script = "\n".join([read_engine(schedules.playground()), *map(bundle.bundle_scripts, modules)])
    return evaluate(script, CASES.replace("CASES", json.dumps(cases)))


def test_formulas_and_bounds_are_true() -> None:
    draw = random.Random(2)
    cases = []
    for i in range(30 * len(NAMES)):
        p = draw.randint(1, 6)
        name = NAMES[i % len(NAMES)]
        times = draw.choice([[0.5] * 3, [draw.choice([0.5, 1, 2, 3.25]) for _ in range(3)]])
        cases.append((name, p, 2 * p * draw.randint(1, 4), *times))
    found = run_formulas(cases)
    checked, proven = set(), 0
    for case, numbers in zip(cases, found, strict=True):
        bubble, formula, bound, with_memory, optimum, makespan = numbers
        assert bound <= with_memory <= makespan + 1e-9, case
        if optimum is not None:
            assert with_memory - 1e-9 <= optimum <= makespan, case
            proven += 1
        if formula is not None:
            assert bubble == pytest.approx(formula), case
            checked.add(case[0])
    with_formula = "Object.entries(playground.schedules).filter(([, own]) => own.bubble)"
    names = evaluate(
        read_engine(schedules.playground()), f"JSON.stringify({with_formula}.map(([name]) => name))"
    )
    assert checked == set(names) > {"gpipe", "zero_bubble_h1"}
    assert proven > 5


@pytest.mark.parametrize(("micro_batches", "optimum"), [(8, 27), (16, 51)])
def test_the_bound_is_the_optimum_of_straight_pipelines(micro_batches: int, optimum: int) -> None:
    """Proven by an integer program: 4 stages in a line, unit times."""
    ((_, _, bound, _, _, makespan),) = run_formulas([("zero_bubble_h1", 4, micro_batches, 1, 1, 1)])
    assert bound == makespan == optimum


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", list_rows())
def test_the_optima_of_the_page_are_proven(row: tuple[str, int, int]) -> None:
    pytest.importorskip("ortools")
    times = read_optima()[" ".join(map(str, row))]
    for micro_batches in (1, 2, 5):
        assert find_optimum(*row, micro_batches) == times[micro_batches - 1]


def test_published_optima_are_in_the_page() -> None:
    optima = read_optima()
    assert optima["straightSplit 4 4"][7] == 27
    assert [optima[f"vSplit 4 {memory}"][7] for memory in (2, 3, 4)] == [59, 53, 51]
    assert set(optima) == {" ".join(map(str, row)) for row in list_rows()}


def test_one_micro_batch_at_a_time_is_optimal_for_the_memory_of_one() -> None:
    ((_, _, bound, with_memory, optimum, makespan),) = run_formulas([("sequential", 4, 8, 1, 1, 1)])
    assert bound == 33
    assert with_memory == optimum == makespan == 96


def read_optima() -> dict[str, list[float | None]]:
    """The shortest times that the page knows, by their rows."""
    return evaluate(bundle.bundle_scripts("playground/optima.js"), "JSON.stringify(OPTIMA)")


def two_at_a_time(stages: int, micro_batches: int) -> list[list[str]]:
    """Each IPU runs pairs of forward tasks, and then the pair's backward tasks."""
    if micro_batches % 2:
        raise ScheduleError("an odd number", fix="use an even one")
    pairs = [(m, m + 1) for m in range(0, micro_batches, 2)]
    return [[f"{s}{p}{m}" for pair in pairs for p in "FB" for m in pair] for s in range(stages)]


def test_a_schedule_of_ones_own_is_in_the_page() -> None:
    own = schedules.build(two_at_a_time, stages=3, micro_batches=4, training=True)
    page = schedules.playground(schedule=own)
    (result, refused) = simulate_all(
        read_engine(page),
        [
            {"schedule": "two_at_a_time", "stages": 3, "microBatches": 4, "forward": 0.1},
            {"schedule": "two_at_a_time", "stages": 3, "microBatches": 6},
        ],
    )
    run = schedules.simulate(own, {Phase.FORWARD: 0.1, Phase.BACKWARD: 1})
    assert result == {
        "makespan": run.makespan,
        "bubble": run.bubble,
        "inFlightPerIpu": list(run.in_flight_per_ipu),
    }
    assert refused is None
    assert '"stages":3,"microBatches":4,"schedules":["two_at_a_time"' in page


def test_registered_schedules_are_in_the_page() -> None:
    schedules.register("pairs_of_the_playground", two_at_a_time)
    settings = {"schedule": "pairs_of_the_playground", "stages": 4}
    results = simulate_all(
        read_engine(schedules.playground()),
        [{**settings, "microBatches": number} for number in (6, 7)],
    )
    own = schedules.build("pairs_of_the_playground", stages=4, micro_batches=6, training=True)
    assert results[0] is not None
    assert results[0]["makespan"] == schedules.simulate(own).makespan
    assert results[1] is None


def test_a_name_decides_what_is_shown_first() -> None:
    assert '"schedules":["gpipe","one_f_one_b"' in schedules.playground(schedule="GPipe")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("nonesuch", "no schedule is named 'nonesuch'"),
        (schedules.gpipe(2, 4, training=False), "for inference"),
        (schedules.gpipe(2, 4, ipus=[(0, 1), 2]), "give every stage one IPU"),
        (7, "the schedule of the playground"),
        (
            Schedule(
                name="empty", stages=1, micro_batches=1, training=True, ipus=((0,),), ticks=()
            ),
            "0F0 never runs",
        ),
    ],
)
def test_wrong_schedules_are_refused(schedule: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        schedules.playground(schedule=schedule)


def start_of(page: str) -> dict[str, Any]:
    """What a page begins with, and the times of its model."""
    found = re.search(r'<script type="application/json" id="start">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def test_a_report_gives_its_times(tmp_path: Path) -> None:
    report = SAMPLES["pipeline"]()
    report.to_playground(tmp_path / "own.html")
    data = start_of((tmp_path / "own.html").read_text("utf-8"))
    pipeline = report.pipeline
    assert pipeline
    assert data["start"]["stages"] == pipeline.stages
    assert data["start"]["schedules"] == ["grouped", "one_f_one_b", "zero_bubble_h1"]
    assert data["model"]["unit"] == "µs"
    for stage in range(pipeline.stages):
        microseconds = pipeline.stage_cycles[stage, "fwd"] / report.target.clock_hz * 1e6
        assert data["model"]["forward"][stage] == pytest.approx(microseconds)


def test_stages_that_share_ipus_and_split_backward_passes_keep_their_times() -> None:
    pipeline = SAMPLES["pipeline"]().pipeline
    assert pipeline
    cycles = {
        (stage, word): 1000 * (stage + 1) + number
        for stage in range(4)
        for number, word in enumerate(("fwd", "bwd", "wgt"))
    }
    shared = dc.replace(
        pipeline,
        schedule="interleaved-1f1b",
        stages=4,
        stage_ipus=((0,), (1,), (0,), (1,)),
        stage_cycles=cycles,
    )
    data = start_of(playground_of_pipeline("own", shared, 1e9))
    assert data["start"]["stages"] == 2
    assert data["start"]["schedules"][0] == "interleaved_one_f_one_b"
    assert data["model"]["forward"] == pytest.approx([1, 2, 3, 4])
    assert data["model"]["weight"] == pytest.approx([1.002, 2.002, 3.002, 4.002])
    state = "{...start, forward: 1, backward: 2, weight: 1, transfer: 0}"
    names = {"interleaved_one_f_one_b": 2, "gpipe": 1}
    for name, parts in names.items():
        settings = evaluate(
            f"const {{start, model}} = {json.dumps(data)};\n"
            + bundle.bundle_scripts("playground/state.js"),
            f"JSON.stringify(settingsOf({state}, '{name}', {{perIpu: {parts}}}, model))",
        )
        split = [1.0, 2.0, 3.0, 4.0] if parts == 2 else [3.0, 7.0]
        assert settings["forward"] == pytest.approx(split)
        assert sum(settings["backward"]) == pytest.approx(2 * 10.004 + 10.008)


def test_a_report_without_a_pipeline_has_no_playground(tmp_path: Path) -> None:
    report = SAMPLES["small"]()
    with pytest.raises(ValueError, match="has no pipeline"):
        report.to_playground(tmp_path / "none.html")


def test_names_cannot_end_the_script() -> None:
    own = schedules.build(two_at_a_time, stages=1, micro_batches=2, training=True)
    renamed = schedules.from_text(schedules.to_text(own).replace("two_at_a_time", "</script><b>"))
    page = schedules.playground(schedule=renamed)
    assert "</script><b>" not in page
    names = evaluate(read_engine(page), "JSON.stringify(playground.names)")
    assert "</script><b>" in names


def simulate_own(own: Schedule, forward: float, backward: float, weight: float) -> None:
    """Checks that a page with a schedule of one's own gives what Python does."""
    settings = {
        "schedule": own.name,
        "stages": own.stages,
        "microBatches": own.micro_batches,
        "forward": forward,
        "backward": backward,
        "weight": weight,
        "transfer": 0.5,
    }
    page = schedules.playground(schedule=own)
    (found,) = simulate_all(read_engine(page), [settings])
    times = {phase: forward for phase in Phase} | {
        Phase.BACKWARD: backward,
        Phase.WEIGHTS: weight,
    }
    run = schedules.simulate(own, times, transfer=0.5, sizes=1)
    assert found == {
        "makespan": run.makespan,
        "bubble": run.bubble,
        "inFlightPerIpu": list(run.in_flight_per_ipu),
    }
    ipus, splits = len(own.layout.all_ipus), json.dumps(own.splits_backward)
    expression = f"memoryOverTime(playground.run({json.dumps(settings)}).tasks, {ipus}, {splits})"
    memory = evaluate(
        read_engine(page) + bundle.bundle_scripts("playground/bounds.js"),
        f"JSON.stringify({expression})",
    )
    for steps, wanted in zip(memory, run.bytes, strict=True):
        assert {tuple(step) for step in wanted} <= {tuple(step) for step in steps}
    bound = f"lowerBound(playground.run({json.dumps(settings)}), {json.dumps(settings)}, {splits})"
    assert evaluate(
        read_engine(page) + bundle.bundle_scripts("playground/bounds.js"),
        f"JSON.stringify({bound})",
    ) <= (run.makespan)


@pytest.mark.parametrize("name", ["one_f_one_b", "zero_bubble"])
def test_tasks_between_forward_and_backward_ones(name: str) -> None:
    base = getattr(schedules, name)(4, 8)
    own = schedules.from_orders("more", add_between(base), stages=4, micro_batches=8)
    simulate_own(own, 1.25, 2.5, 0.75)


def test_branches() -> None:
    orders = [[f"{s}{phase}{n}" for phase in "FB" for n in range(4)] for s in range(4)]
    needs = {"2F": ["0F"], "3F": ["1F", "2F"]}
    own = schedules.from_orders("branches", orders, stages=4, micro_batches=4, needs=needs)
    simulate_own(own, 1.25, 2.5, 0.75)
