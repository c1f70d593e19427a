from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.config import IPUConfig
from ipujax.errors import ConfigError, IPUError, TargetError
from ipujax.pipelining_ops import pipeline
from ipujax.report import Report, make_report
from ipujax.report.presentation.document.runs import encode_runs
from lowering import Options, lower
from tests.ipujax.feeding import configure, incr, infeed, outfeed
from tests.ipujax.pipelining import sgd
from tests.ipujax.reporting import configured, f32, struct, training


def report_of(fn: Callable[..., Any], *args: Any) -> Report:
    return ipu.compile(fn).lower(*args).report()


def test_a_report_says_what_one_call_costs() -> None:
    report = report_of(lambda x: jnp.tanh(x) + 1, struct(1000))
    assert (report.num_ipus, report.replication_factor) == (1, 1)
    assert (report.target.name, report.target.tiles_per_ipu) == ("ipu2", 1472)
    assert report.cycles > 0
    assert report.seconds == report.cycles / 1.33e9
    assert report.memory.tile_peak_bytes.shape == (1, 1472)
    assert report.memory.fits
    assert sum(report.memory.by_category.values()) == report.memory.peak_bytes.sum()
    assert report.pipeline is None
    assert report.throughput is None
    assert report.advice == ()


def test_a_report_is_made_once_and_needs_no_run() -> None:
    executable = ipu.compile(lambda x: x + 1, name="plus").lower(struct(4)).compile()
    report = executable.report()
    assert executable.report() is report
    assert executable.lowered.report() is report
    assert executable.report("ipu21") is not report
    assert repr(report).startswith("<Report of plus: 1 replica of 1 IPU (ipu2), ")


def test_steps_add_up_to_the_busy_cycles() -> None:
    configured(2)
    report = report_of(*_flat(training(2, 4, repeat_count=3)))
    assert sum(sum(report.busy_cycles[kind]) for kind in report.busy_cycles) == sum(
        step.cycles for step in report.steps
    )
    assert max(step.start_cycle + step.cycles for step in report.steps) <= report.cycles
    assert all((cycles <= report.cycles).all() for cycles in report.busy_cycles.values())


def _flat(model: tuple[Any, tuple[Any, ...]]) -> tuple[Any, ...]:
    return (model[0], *model[1])


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 8), (4, 16), (4, 64)])
def test_grouped_pipelines_have_the_bubble_of_the_formula(stages: int, micro_batches: int) -> None:
    configured(stages)
    report = report_of(*_flat(training(stages, micro_batches)))
    p, n = report.pipeline, 2 * stages
    assert p is not None
    assert (p.schedule, p.stages, p.micro_batches) == ("grouped", stages, micro_batches)
    assert p.ticks == micro_batches + n
    assert p.bubble_fraction == pytest.approx(n / (micro_batches + n))
    assert 0 < p.utilisation <= 1
    assert len(p.tick_cycles) == p.ticks
    steps = [step for step in report.steps if step.phase == "fwd"]
    assert {step.stage for step in steps} == set(range(stages))
    assert {step.micro_batch for step in steps} == set(range(micro_batches))


def test_throughput_counts_elements_of_all_replicas() -> None:
    configured(4)
    source, sink = infeed(incr(5)), outfeed()

    def body(total: Any, x: Any) -> Any:
        sink.enqueue(total)
        return total + x

    def model(total: Any) -> Any:
        return ipu.loops.repeat(25, body, [total], source)

    report = report_of(model, struct(4, 4))
    assert (report.num_ipus, report.replication_factor) == (1, 4)
    assert report.elements == 25 * 4
    assert report.throughput == report.elements / report.seconds
    assert report.batch_size == 4
    assert report.throughput is not None
    batches, examples = f"{report.throughput:,.1f}", f"{4 * report.throughput:,.1f}"
    told = f"{batches} batches of 4 a second, {examples} examples (100 a call)"
    assert told in str(report)


def test_the_batch_size_is_that_of_all_arrays_of_an_element() -> None:
    def batch_size(*shapes: tuple[int, ...]) -> int | None:
        configured(1)
        source = infeed(lambda: itertools.repeat(tuple(np.zeros(shape, f32) for shape in shapes)))

        def body(total: Any, *xs: Any) -> Any:
            return total + sum(x.sum() for x in xs)

        model = lambda total: ipu.loops.repeat(3, body, [total], source)  # noqa: E731
        return report_of(model, struct()).batch_size

    assert batch_size((8, 2), (8,)) == 8
    assert batch_size((8, 2), (4, 2)) is None
    assert batch_size((8, 2), ()) is None
    assert report_of(lambda x: x + 1, struct(8)).batch_size is None


def test_pipelines_in_loops_count_every_micro_batch() -> None:
    configured(4)
    report = report_of(*_flat(training(2, 4, repeat_count=3)))
    assert report.replication_factor == 2
    assert report.elements == 4 * 3 * 2


def test_without_infeeds_micro_batches_are_elements() -> None:
    configured(2)
    sink = outfeed()

    def model(x: Any) -> Any:
        return pipeline([jnp.sin, jnp.cos], 6, inputs=[x], outfeed_queue=sink)

    assert report_of(model, struct(8)).elements == 6


def test_trip_counts_that_only_values_tell_are_assumed() -> None:
    def model(n: Any, x: Any) -> Any:
        return ipu.loops.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2), [0, x])

    report = report_of(model, struct(dtype=np.int32), struct(8))
    assert report.assumptions
    assert f"Assumed: {report.assumptions[0]}" in str(report)


def test_offloaded_state_is_in_remote_memory() -> None:
    configured(2)
    state = 2 * 16 * 16 * 4  # Adam keeps two arrays for each matrix
    plain, offloaded = (
        report_of(*_flat(training(2, 4, offload_weight_update_variables=offload)))
        for offload in (False, True)
    )
    assert plain.memory.remote_bytes.tolist() == [0, 0]
    assert offloaded.memory.remote_bytes.tolist() == [state, state]
    assert not plain.busy_cycles["remote"].any()
    assert offloaded.busy_cycles["remote"].all()


@pytest.mark.parametrize(
    ("options", "name", "tiles", "clock"),
    [
        ({}, "ipu2", 1472, 1.33e9),
        ({"ipu_model__version": "ipu1"}, "ipu1", 1216, 1.6e9),
        ({"ipu_model__version": "ipu21"}, "ipu21", 1472, 1.85e9),
        ({"ipu_model__tiles_per_ipu": 64}, "ipu2", 64, 1.33e9),
        ({"device_connection__version": "ipu21"}, "ipu21", 1472, 1.85e9),
        (
            {"device_connection__version": "ipu21", "ipu_model__version": "ipu1"},
            "ipu1",
            1216,
            1.6e9,
        ),
    ],
)
def test_the_configuration_chooses_the_chip(
    options: dict[str, Any], name: str, tiles: int, clock: float
) -> None:
    configured(**options)
    report = report_of(lambda x: x + 1, struct(8))
    assert report.target.name == name
    assert report.memory.tile_peak_bytes.shape == (1, tiles)
    assert report.seconds == report.cycles / clock


def test_a_target_can_be_given() -> None:
    configured(ipu_model__tiles_per_ipu=64)
    lowered = ipu.compile(lambda x: x + 1).lower(struct(8))
    assert lowered.report("ipu2").target is ipu.targets.IPU2
    assert lowered.report(ipu.targets.IPU1).target is ipu.targets.named("ipu1")
    assert lowered.report().target.tiles_per_ipu == 64
    with pytest.raises(TargetError, match=r"no chip 'ipu3'\n  fix: .*'ipu1', 'ipu2', 'ipu21'"):
        lowered.report("ipu3")
    assert lowered.report("ipu1") is lowered.report(ipu.targets.IPU1)
    for bad in (21, [21]):
        with pytest.raises(TargetError, match=r"no chip .*21"):
            lowered.report(bad)


@pytest.mark.parametrize(
    "field",
    [
        {"name": ""},
        {"tiles_per_ipu": 0},
        {"tiles_per_ipu": -1},
        {"tiles_per_ipu": 1.5},
        {"tiles_per_ipu": True},
        {"bytes_per_tile": 0},
        {"code_bytes_per_tile": 0},
        {"reserved_bytes": -1},
        {"reserved_bytes": 638_976},
        {"clock_hz": 0},
        {"clock_hz": float("nan")},
        {"clock_hz": "1.33e9"},
        {"workers": 0},
        {"macs_per_cycle": {}},
        {"macs_per_cycle": ((("float32", "float32"), 16),)},
        {"amp_units": ()},
        {"amp_units": 16},
        {"conv_load_bytes": 0},
        {"exchange_bytes": -4},
        {"exchange_cycles": -1},
        {"sync_cycles": None},
        {"links": None},
        {"host_bytes_per_second": 0},
        {"remote_bytes_per_second": -1.0},
    ],
    ids=str,
)
def test_targets_that_no_chip_can_be_are_errors(field: dict[str, Any]) -> None:
    (name,) = field
    with pytest.raises(TargetError, match=rf"^Target\.{name} is .*, but must be "):
        dataclasses.replace(ipu.targets.IPU2, **field)


@pytest.mark.parametrize(
    ("name", "value"), [("across", 0), ("bytes_per_second", -1), ("sync_seconds", float("inf"))]
)
def test_links_that_cannot_be_are_errors(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^Links\.{name} is .*, but must be ") as caught:
        dataclasses.replace(ipu.targets.IPU2.links, **{name: value})
    assert isinstance(caught.value, IPUError)


def test_numbers_of_numpy_describe_targets_too() -> None:
    chip = dataclasses.replace(
        ipu.targets.IPU2, tiles_per_ipu=np.int64(8), remote_bytes_per_second=np.float32(0)
    )
    report = ipu.compile(lambda x: x + 1).lower(struct(8)).report(chip)
    assert report.memory.tile_peak_bytes.shape == (1, 8)


def test_code_is_counted_if_it_is_compiled() -> None:
    counted = report_of(lambda x: x + 1, struct(800)).memory
    configured(ipu_model__compile_ipu_code=False)
    uncounted = report_of(lambda x: x + 1, struct(800)).memory
    kinds = ("vertex_code", "vertex_state", "control_code", "exchange_code", "stack")
    code = sum(counted.by_category[kind] for kind in kinds)
    assert counted.by_category["vertex_code"] > 0
    assert not any(uncounted.by_category[kind] for kind in kinds)
    assert uncounted.peak_bytes.sum() == counted.peak_bytes.sum() - code


def test_too_much_code_does_not_fit() -> None:
    """Instructions are fetched from a part of a tile's memory only."""
    executable = ipu.compile(lambda x: x + 1).lower(struct(800)).compile()
    fitting = executable.report().memory
    assert fitting.fits
    assert fitting.most_code_bytes <= fitting.code_limit
    small = dataclasses.replace(ipu.targets.IPU2, code_bytes_per_tile=fitting.most_code_bytes - 7)
    report = executable.report(target=small)
    assert not report.memory.fits
    assert report.memory.missing_bytes == 7
    assert f"of {small.code_bytes_per_tile:,} from which instructions can be fetched" in str(report)
    assert [entry.rule for entry in report.advice] == ["not_enough"]


def test_code_that_is_not_shared_is_told_of_outlining() -> None:
    def layers(x: Any) -> Any:
        for _ in range(40):
            x = jnp.tanh(x @ x)
        return x

    reports: list[Report] = []
    for outlines in (False, True):
        configured(optimizations__enable_graph_outlining=outlines)
        lowered = ipu.compile(layers).lower(struct(64, 64))
        target = dataclasses.replace(ipu.targets.IPU2, code_bytes_per_tile=4000)
        reports.append(lowered.compile().report(target=target))
    (entry,) = (entry for entry in reports[0].advice if entry.rule == "less_code")
    assert "enable_graph_outlining = True" in entry.text
    assert entry.fullest_bytes == reports[1].memory.tile_peak_bytes.max()
    assert entry.enough == reports[1].memory.fits


@pytest.mark.parametrize("category", ["matmuls", "convolutions"])
@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("availableMemoryProportion", "1.5", "a number from 0 to 1"),
        ("availableMemoryProportion", -0.1, "a number from 0 to 1"),
        ("availableMemoryProportion", "much", "a number from 0 to 1"),
        ("availableMemoryProportion", "nan", "a number from 0 to 1"),
        ("partialsType", "double", "one of 'half', 'float', "),
    ],
)
def test_bad_planner_options_are_errors(category: str, name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigError, match=rf"{category}.poplar_options\['{name}'\] .* {wanted}"):
        configured(**{f"{category}__poplar_options": {name: value}})


@pytest.mark.parametrize(
    ("attribute", "slip", "meant"),
    [
        ("matmuls__poplar_options", "partialstype", "partialsType"),
        ("convolutions__poplar_options", "availableMemoryPorportion", "availableMemoryProportion"),
        ("compilation_poplar_options", "debug.allowOutOfmemory", "debug.allowOutOfMemory"),
    ],
)
def test_slips_in_names_of_options_are_logged_once(
    attribute: str, slip: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        configured(**{attribute: {slip: "false"}})
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    where = attribute.replace("__", ".")
    assert warnings == [f"{where}['{slip}'] changes nothing; did you mean '{meant}'?"]


@pytest.mark.parametrize(
    ("attribute", "known", "why"),
    [
        ("matmuls__poplar_options", "fullyConnectedPass", "plans here go by shapes alone"),
        ("convolutions__poplar_options", "interTilePartialsType", "one type here, partialsType"),
        ("pooling__poplar_options", "optimizeForSpeed", "which has no plan here"),
        ("gcl_poplar_options", "link", "which the model has by its ladder"),
        ("compilation_poplar_options", "prng.enable", "random numbers have keys of JAX"),
    ],
)
def test_options_of_poplar_that_change_nothing_are_logged_once(
    attribute: str, known: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ipujax")
    for _ in range(2):
        configured(**{attribute: {known: "x", "ofNoLibrary": "x"}})
    where = attribute.replace("__", ".")
    lines = [r for r in caplog.records if r.getMessage().startswith(where)]
    (told,) = [r.getMessage() for r in lines if r.levelname == "INFO"]
    assert told.startswith(f"{where}['{known}'] changes nothing here: ")
    assert why in told
    (unknown,) = [r.getMessage() for r in lines if r.levelname == "WARNING"]
    assert unknown == f"{where}['ofNoLibrary'] changes nothing; ipujax knows no such option"


def test_options_that_act_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    planner = {"availableMemoryProportion": "0.3", "partialsType": "half"}
    engine = {"debug.allowOutOfMemory": "true", "autoReport.directory": ""}
    configured(
        matmuls__poplar_options=planner,
        convolutions__poplar_options=planner,
        compilation_poplar_options=engine,
    )
    assert not [r for r in caplog.records if "changes nothing" in r.getMessage()]


def test_lower_proportions_leave_less_for_temporaries() -> None:
    def temporaries(proportion: str) -> int:
        configured(matmuls__poplar_options={"availableMemoryProportion": proportion})
        report = report_of(lambda x, y: x @ y, struct(512, 2048), struct(2048, 512))
        return report.memory.by_category["temporaries"]

    assert temporaries("0.01") <= temporaries("0.6")


def test_pages_say_what_matters() -> None:
    configured(2)
    text = str(report_of(*_flat(training(2, 8))))
    for part in (
        "1 replica of 2 IPUs (ipu2), 1,472 tiles at 1.33 GHz",
        "Fits: the fullest tile, IPU ",
        "Where the time goes; 8 micro-batches through 2 stages in 12 ticks, schedule grouped:",
        "IPU   work  exchange  copies  update  host  imbalance  bubble",
        "IPU  fullest tile  all tiles\n",
        "matmul 8 x 16 x 16  ",
        "  copies between stages",
        "Modelled, not measured.",
        "reporting.py:",
    ):
        assert part in text, part
    for row in re.findall(r"^(?:  [01]|all)((?:  +\d+\.\d%)+)$", text, re.MULTILINE):
        assert sum(round(10 * float(share)) for share in re.findall(r"[\d.]+", row)) == 1000
    assert len(re.findall(r"^all  ", text, re.MULTILINE)) == 1
    assert "Out of memory" not in text


def test_functions_say_that_programs_have_reports() -> None:
    run: Any = ipu.compile(lambda x: x + 1)
    with pytest.raises(AttributeError, match=r"'report'\n  fix: .*lower\(\*args\)\.report\(\)"):
        run.report()
    assert not hasattr(run, "as_text")
    assert not hasattr(run, "anything_else")


def test_packages_are_named_without_the_way_to_them() -> None:
    configured(2)
    report = report_of(*_flat(training(2, 4)))
    assert any("site-packages/optax" in operation.origin for operation in report.operations)
    text = str(dataclasses.replace(report, profile=_only(report, "site-packages/optax")))
    assert "  optax/" in text
    assert "site-packages" not in text


def _only(report: Report, where: str) -> Any:
    kept = tuple(o for o in report.operations if where in o.origin)
    return dataclasses.replace(report.profile, operations=kept)


@pytest.mark.exhaustive
def test_pages_of_many_ipus_show_the_fullest() -> None:
    model, args = training(32, 64, width=8)
    program = lower(jax.jit(model).trace(*args).jaxpr, Options(num_ipus=32))
    text = str(make_report(program, IPUConfig(), ipu.targets.IPU2, {}))
    assert "1 replica of 32 IPUs" in text
    assert "and 16 more IPUs, with emptier tiles" in text
    assert "0-30" in text  # equal operations of these share a line
    assert "all: of 32 IPUs, those above and 16 more" in text
    assert len(text.splitlines()) < 90


def test_reports_are_plain_json(tmp_path: Path) -> None:
    configured(2)
    report = report_of(*_flat(training(2, 8, repeat_count=2)))
    path = tmp_path / "report.json"
    report.to_json(path)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data == report.to_dict()
    assert data["schema"] == 2
    assert data["cycles"] == report.cycles
    peaks = [repeated(ipu_) for ipu_ in data["memory"]["tile_peak_bytes"]]
    assert peaks == report.memory.tile_peak_bytes.tolist()
    assert data["memory"]["by_category"] == report.memory.by_category
    assert report.pipeline is not None
    assert data["pipeline"]["bubble_fraction"] == report.pipeline.bubble_fraction
    assert len(data["operations"]) == len(report.operations)
    assert data["steps"]["count"] == len(report.steps)
    written = Counter(expanded(data, data["steps"]["root"]))
    modelled = Counter(
        (s.ipu, s.kind, s.name, s.origin, s.start_cycle, s.cycles, s.stage, s.micro_batch, s.phase)
        for s in report.steps
    )
    assert written == modelled


def expanded(
    data: Any, number: int, at: int = 0, labels: Any = (None, None, None), on: int | None = None
) -> list[Any]:
    """The steps that a node of the JSON stands for, as its documentation says."""
    node = data["steps"]["nodes"][number]
    if node["type"] == "block":
        return block_steps(data, node, at, labels, on)
    inside: list[tuple[int, int, Any, int | None]] = []
    if node["type"] == "on":
        inside = [(node["body"], at, labels, node["ipu"] if on is None else on)]
    elif node["type"] == "loop":
        starts = [at + i * node["period"] for i in range(node["count"])]
        inside = [(node["body"], start, labels, on) for start in starts]
    elif node["type"] == "group":
        for child, *run in node["parts"]:
            inside += [(child, at + start, labels, on) for start in numbers([run])]
    else:
        for task in node["tasks"]:
            pairs = zip(numbers(task["starts"]), numbers(task["micro_batches"]), strict=True)
            for start, batch in pairs:
                own = (task["stage"], None if batch == -1 else batch, task["phase"])
                inside.append((task["body"], at + start, own if task["phase"] else labels, on))
    return [step for place in inside for step in expanded(data, *place)]


def block_steps(data: Any, node: Any, at: int, labels: Any, on: int | None) -> list[Any]:
    kinds = ("compute", "exchange", "sync", "inter_ipu", "host", "remote")
    text = data["strings"].__getitem__
    count = len(node["kind"])
    ipus = node["ipu"] if isinstance(node["ipu"], list) else [node["ipu"]] * count
    one_by_one = [0, *itertools.accumulate(node["cycles"])][:count]
    starts = one_by_one if node["start"] is None else node["start"]
    columns = [node["kind"], node["name"], node["origin"], starts, node["cycles"]]
    return [
        (
            *(ipu_ if on is None else on, kinds[kind], text(name), text(origin)),
            *(at + start, cycles, *labels),
        )
        for ipu_, kind, name, origin, start, cycles in zip(ipus, *columns, strict=True)
    ]


def numbers(given: list[list[int]]) -> list[int]:
    return [first + i * step for first, step, count in given for i in range(count)]


def repeated(given: list[list[int]]) -> list[int]:
    return [value for value, count in given for _ in range(count)]


@given(st.lists(st.integers(-5, 5)))
def test_runs_stand_for_theirnumbers(values: list[int]) -> None:
    assert numbers(encode_runs(np.array(values, dtype=np.int64))) == values


def test_long_runs_are_short() -> None:
    assert encode_runs(np.arange(1000) * 7 + 3) == [[3, 7, 1000]]
    assert encode_runs(np.zeros(5, np.int64)) == [[0, 0, 5]]


def test_reports_do_not_grow_with_the_number_of_micro_batches() -> None:
    configured(4)

    def size(micro_batches: int) -> int:
        report = report_of(*_flat(training(4, micro_batches, repeat_count=1000)))
        return len(json.dumps(report.to_dict()["steps"]))

    assert size(1024) < 1.2 * size(64)


def test_programs_without_anything_to_do_have_reports() -> None:
    report = report_of(lambda x: x, np.ones(3, f32))
    assert report.throughput is None
    assert "Fits" in str(report)
    json.dumps(report.to_dict(), allow_nan=False)


def test_each_call_of_a_library_function_has_a_line_of_its_own() -> None:
    """JAX traces `gelu` and the layer once, and keeps what it traced for the second call."""
    layers = [ipu.rnn_ops.PopnnLSTM(4, seed=seed) for seed in (1, 2)]
    params = layers[0].build(None, [3, 2, 4])

    def model(x: Any) -> Any:
        x, _ = layers[0](params, x)
        x, _ = layers[1](params, x)
        x = jax.nn.gelu(x)
        return jax.nn.gelu(jnp.sin(x))

    report = report_of(jax.grad(lambda x: jnp.sum(model(x))), struct(3, 2, 4))
    first = model.__code__.co_firstlineno
    found: Counter[tuple[str, int]] = Counter()
    for operation in report.operations:
        line = operation.origin.rpartition(" ")[0].rpartition(":")[2]
        kind = next((k for k in ("dot_general", "tanh") if k in operation.name), "")
        if kind and operation.origin:
            found[kind, int(line) - first] += int(operation.runs)
    # Products of all inputs and of each of 3 states, and both again for gradients.
    assert found["dot_general", 1] == found["dot_general", 2] == 8
    assert found["tanh", 3] > 0
    assert found["tanh", 3] == found["tanh", 4]


@pytest.mark.parametrize("rate", [0.5, 0.001])
def test_random_masks_cost_what_the_generator_does_at_the_users_line(rate: float) -> None:
    def loss(x: Any) -> Any:
        return (ipu.rand_ops.dropout(x, rate) ** 2).sum()

    configured()
    found = ipu.compile(jax.value_and_grad(loss)).lower(struct(256, 256)).report()
    own = [o for o in found.operations if o.scope == "dropout"]
    # Once forward and once backward.
    bits = "ipu_random_halves" if rate == 0.5 else "random_bits"
    drawn = [o for o in own if o.name.startswith(bits)]
    assert [o.name.endswith(", backward") for o in drawn] == [False, True]
    assert all("test_report.py" in o.origin for o in own)
    assert found.default_share == 0
    assert not any("threefry" in o.name or "iota" in o.name for o in found.operations)


def test_scopes_are_told() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("mine"):
            return jnp.sin(x)

    configured()
    found = ipu.compile(model).lower(struct(8)).report()
    assert [o.scope for o in found.operations] == ["mine"]
    assert "mine: sin  " in str(found)
    document = found.to_dict()
    assert [o.scope for o in Report.from_dict(document).operations] == ["mine"]
    del document["operations"][0]["scope"]
    assert [o.scope for o in Report.from_dict(document).operations] == [""]


def test_tables_of_the_host_are_assumed_to_take_no_time() -> None:
    configured()
    table = ipu.embedding_ops.create_host_embedding("table_of_a_report", [8, 4], np.float32)
    found = ipu.compile(lambda ids: table.lookup(ids)).lower(struct(3, dtype=np.int32)).report()
    (text,) = found.assumptions
    assert text.endswith("what the host does with its table takes no time")
    assert "test_report.py" in text


def test_a_stage_without_gradients() -> None:
    """It has no backward task, which takes no time."""
    configure(2)
    source, sink = infeed([np.ones(3, f32)] * 8), outfeed()

    def last(w: Any, x: Any) -> Any:
        return jnp.mean(w * x)

    def train(w: Any) -> Any:
        return pipeline(
            [lambda _, x: jnp.sin(x), last],
            8,
            infeed_queue=source,
            outfeed_queue=sink,
            variables=w,
            optimizer_function=sgd(0.1),
        )

    report = ipu.compile(train).lower(np.ones(3, f32)).report()
    assert report.pipeline is not None
    done = {(s.ipu, s.phase) for s in report.steps if s.kind == "compute" and s.stage is not None}
    assert {(0, "fwd"), (1, "fwd"), (1, "bwd")} <= done
    assert (0, "bwd") not in done
