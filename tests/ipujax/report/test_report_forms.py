from __future__ import annotations

import copy
import dataclasses
import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ipujax as ipu
from ipujax.errors import IPUError, ReportError
from ipujax.host_trace import HostSpan, HostTrace
from ipujax.report import Report, load
from ipujax.report.presentation.document import build_report_schema, runs, shape
from tests.ipujax.reporting import configured, f32, struct, training

SCHEMA_FILE = Path(__file__).parents[3] / "docs" / "report.schema.json"
HOST = HostTrace(
    (
        HostSpan("compile", "train", 0.0, 1.25, "main"),
        HostSpan("feed", "queue é", 0.5, 0.125, "feeder"),
    )
)


def plain() -> Report:
    lowered = ipu.compile(lambda x: jnp.tanh(x) @ x, name="plain").lower(struct(64, 64))
    return lowered.report(host=HOST)


def pipelined() -> Report:
    configured(2)
    model, args = training(2, 8)
    return ipu.compile(model).lower(*args).report()


def replicated() -> Report:
    configured(4)
    model, args = training(2, 4, repeat_count=3, offload_weight_update_variables=True)
    return ipu.compile(model).lower(*args).report()


def empty() -> Report:
    return ipu.compile(lambda x: x).lower(np.ones(3, f32)).report()


def too_large() -> Report:
    configured(ipu_model__tiles_per_ipu=4)
    return ipu.compile(lambda x: jnp.sin(x) + 1).lower(struct(2048, 2048)).report()


def uncertain() -> Report:
    def model(n: Any, x: Any) -> Any:
        return ipu.loops.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2), [0, x])

    return ipu.compile(model).lower(struct(dtype=np.int32), struct(8)).report("ipu1")


PROGRAMS = [plain, pipelined, replicated, empty, too_large, uncertain]


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda make: make.__name__)
def report(request: pytest.FixtureRequest) -> Report:
    return request.param()


@pytest.mark.parametrize("name", ["report.json", "report.json.gz"])
def test_reports_come_back_from_their_files(report: Report, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    report.to_json(path)
    loaded = load(path)
    assert loaded.to_dict() == report.to_dict()
    assert str(loaded) == str(report)
    assert repr(loaded) == repr(report)
    assert loaded.costs == report.costs
    assert list(loaded.steps) == list(report.steps)
    assert (loaded.host is None) == (report.host is None)
    again = tmp_path / f"again-{name}"
    loaded.to_json(again)
    assert again.read_bytes() == path.read_bytes()


def test_names_that_end_in_gz_are_compressed(tmp_path: Path) -> None:
    report = pipelined()
    report.to_json(tmp_path / "report.json")
    report.to_json(tmp_path / "report.json.gz")
    text = (tmp_path / "report.json").read_bytes()
    packed = (tmp_path / "report.json.gz").read_bytes()
    assert gzip.decompress(packed) == text
    assert len(packed) < len(text) / 2


def test_dicts_are_plain_python(report: Report) -> None:
    def check(value: Any) -> None:
        assert type(value) in (dict, list, str, int, float, bool, type(None))
        if isinstance(value, (dict, list)):
            for inside in value.values() if isinstance(value, dict) else value:
                check(inside)

    data = report.to_dict()
    check(data)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert Report.from_dict(data).to_dict() == data


@pytest.mark.parametrize(("key", "field"), [("costs", "share"), ("operations", "flops")])
def test_numbers_that_no_model_gives_are_refused(key: str, field: str) -> None:
    data = plain().to_dict()
    data[key][0][field] = 1e308
    with pytest.raises(ReportError, match=rf"{key}\[0\]\.{field} is 1e\+308.*at most"):
        Report.from_dict(data)


def test_documents_are_what_the_schema_says(report: Report) -> None:
    data = report.to_dict()
    validator = jsonschema.Draft202012Validator(build_report_schema())
    validator.validate(data)
    assert shape.find_schema_difference(data, build_report_schema()) is None
    assert data["strings"][0] == ""


def test_the_schema_is_in_the_documentation() -> None:
    written = SCHEMA_FILE.read_text(encoding="utf-8")
    assert written == json.dumps(build_report_schema(), indent=1) + "\n"
    jsonschema.Draft202012Validator.check_schema(build_report_schema())


def test_the_documentation_names_every_key() -> None:
    text = (SCHEMA_FILE.parent / "report_format.md").read_text(encoding="utf-8")
    words = set(
        text.replace("`", " ").replace('"', " ").replace(",", " ").replace(":", " ").split()
    )
    schema = build_report_schema()
    assert set(schema["properties"]) <= words


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    configured(2)
    model, args = training(2, 4)
    return ipu.compile(model).lower(*args).report(host=HOST).to_dict()


def read_or_error(data: Any) -> str:
    """The error's text, or "" for a report that works."""
    try:
        report = Report.from_dict(data)
    except ReportError as error:
        return str(error)
    assert str(report)
    json.dumps(report.to_dict(), allow_nan=False)
    return ""


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document; of long lists the first, one in the middle, and the last."""
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for i in sorted({0, len(data) // 2, len(data) - 1} if data else ()):
            yield from places(data[i], (*path, i))


def changed(data: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    other = copy.copy(data)
    if len(path) == 1:
        change(other, path[0])
    else:
        other[path[0]] = changed(data[path[0]], path[1:], change)
    return other


def test_keys_that_are_missing_are_named(document: dict[str, Any]) -> None:
    tried = 0
    for path in places(document):
        if isinstance(path[-1], str) and path[0] != "arguments":
            error = read_or_error(changed(document, path, lambda data, key: data.pop(key)))
            tried += 1
            if path == ("schema",):
                assert "holds no report" in error
            elif path[-2:] == ("steps", "operation") or (path[0], path[-1]) in (
                ("costs", "name"),
                ("advice", "enough"),
                ("advice", "fullest_bytes"),
                ("operations", "scope"),
                ("operations", "call_path"),
                ("operations", "direction"),
                ("operations", "number"),
                ("operations", "label"),
                ("operations", "exchange_bytes"),
                ("operations", "remote_bytes"),
                ("operations", "units"),
                ("roofline", "roofline"),
                ("program", "operation"),
                ("steps", "operation"),
                ("memory", "path"),
                ("memory", "label"),
                ("memory", "scope"),
                ("liveness", "path"),
                ("liveness", "label"),
                ("liveness", "scope"),
                ("breakdown", "streaming memory"),
                ("instances", "instances"),
                ("graph", "graph"),
                ("label", "label"),
                ("breakdown", "breakdown"),
                ("sources", "sources"),
                ("meshes", "meshes"),
                ("batch_size", "batch_size"),
                ("tile_activity", "tile_activity"),
                ("target", "gateway_bytes_per_second"),
                ("target", "ipus_of_gateway"),
            ):
                assert not error  # reports of earlier versions have none
            elif path[:-1] != ("memory", "tile_categories", 0) and path[:-1] != (
                "memory",
                "tile_categories",
                1,
            ):
                assert f"{shape.format_json_path(path)} is missing" in error, path
                assert "\n  fix:   write it again" in error
    assert tried > 150


OTHERS: list[Any] = ["x", None, True, -1, 0, 7, 1.5, 10**30, [], {}, [[]], [0], ["x"], {"a": 1}]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_wrong_values_are_errors_or_reports(document: dict[str, Any], other: Any) -> None:
    def put(data: Any, key: Any) -> None:
        data[key] = other

    part = OTHERS.index(other) % 3  # of the places, to be quick
    for path in list(places(document))[part::3]:
        error = read_or_error(changed(document, path, put))
        assert not error or error.startswith("this dict ")
        assert not error or "\n  fix:   " in error


@pytest.mark.exhaustive
@given(st.data())
def test_any_change_is_an_error_or_a_report(document: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(places(document), key=repr)))
    scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats() | st.text()
    value = data.draw(
        st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
    )

    def put(inside: Any, key: Any) -> None:
        inside[key] = value

    read_or_error(changed(document, path, put))


@given(st.data())
def test_what_we_reject_the_schema_rejects(document: dict[str, Any], data: st.DataObject) -> None:
    """Numbers without an end aside, which JSON does not have."""
    path = data.draw(st.sampled_from(sorted(places(document), key=repr)))
    scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=3)
    value = data.draw(scalars | st.lists(scalars, max_size=3))

    def put(inside: Any, key: Any) -> None:
        inside[key] = value

    other = changed(document, path, put)
    validator = jsonschema.Draft202012Validator(build_report_schema())
    assert (
        shape.find_schema_difference(other, build_report_schema()) is None
    ) == validator.is_valid(other)


def test_truncated_files_say_where_they_end(document: dict[str, Any], tmp_path: Path) -> None:
    whole = json.dumps(document).encode()
    packed = gzip.compress(whole)
    path = tmp_path / "report.json"
    for content in (whole, packed):
        for part in range(40):
            path.write_bytes(content[: len(content) * part // 40])
            with pytest.raises(ReportError) as caught:
                load(path)
            message = str(caught.value)
            assert message.startswith(str(path))
            assert "\n  fix:   write it again" in message
            if part and content is whole:
                assert "is not JSON: " in message
                assert " at line 1, column " in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{", r"is not JSON: .* at line 1, column 2 \(the file ends there\)"),
        (b'{"a": 1,\n "b" 2}', r"is not JSON: Expecting ':' delimiter at line 2, column 6\n"),
        (b"\xff\xfe", "is not text: byte 0 is no UTF-8"),
        (b"\x1f\x8bno", "is compressed, and broken"),
        (b"[]", "holds no report: list where an object should be"),
        (b"3", "holds no report: int where an object should be"),
        (b'{"rows": []}', 'holds no report: an object without the key "schema"'),
        (b'{"schema": NaN}', "NaN is no number of JSON"),
        (b"1" * 5000, "is not JSON of a report: .*digits"),
        (b"[" * 100_000, "is not JSON of a report: "),
        (
            b'{"schema": 1}',
            r"was written by schema 1, .* 2\n  fix:   write it again with this",
        ),
        (b'{"schema": 3}', r"was written by schema 3, .*\n  fix:   update ipujax"),
        (b'{"schema": "2"}', "holds no report: schema is '2', but must be 2"),
        (b'{"schema": 2}', "no whole report: ipujax is missing"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_files_that_are_no_reports(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert isinstance(caught.value, IPUError)
    assert str(caught.value).startswith(str(path))
    assert "\n  fix:   " in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.json: No such file"):
        load(tmp_path / "none.json")
    with pytest.raises(ReportError):
        load(tmp_path / "none.json")


def test_pages_are_no_reports(tmp_path: Path) -> None:
    plain().to_html(tmp_path / "report.html")
    with pytest.raises(ReportError, match=r"is a page for a browser.*\n.*report\.json"):
        load(tmp_path / "report.html")


def test_long_names_are_cut_in_texts() -> None:
    report = dataclasses.replace(
        plain(), profile=dataclasses.replace(plain().profile, name="n" * 500)
    )
    assert str(report).startswith(f"{'n' * 57}...: 1 replica")
    assert "n" * 58 not in repr(report)


def test_wrong_types_are_named_with_their_place(document: dict[str, Any]) -> None:
    for path, value, message in [
        (("cycles",), "many", 'cycles is "many", but must be a whole number'),
        (("memory", "biggest", 0, "name"), 3, "memory.biggest[0].name is 3, but must be a text"),
        (("busy_cycles", "host", 1), None, "busy_cycles.host[1] is null, but must be a whole"),
        (("default_share",), 1.5, "default_share is 1.5, but must be at most 1"),
        (("pipeline",), 5, "pipeline is 5, but must be null or an object"),
        (
            ("steps", "nodes", 0, "type"),
            "grid",
            'steps.nodes[0].type is "grid", but must be one of "block", "group", "on", "loop", ',
        ),
        (
            ("memory", "tile_peak_bytes", 0),
            [[-1, 1472]],
            "memory.tile_peak_bytes[0][0][0] is -1, but must be at least 0",
        ),
        (("pipeline", "ticks"), -1, "pipeline.ticks is -1, but must be at least 0"),
        (("target", "clock_hz"), float("inf"), "target.clock_hz is Infinity, but must be a number"),
    ]:
        error = read_or_error(
            changed(document, path, lambda data, key, value=value: data.__setitem__(key, value))
        )
        assert message in error


def test_contradictions_are_named(document: dict[str, Any]) -> None:
    for path, value, message in [
        (("num_ipus",), 3, "in `memory.tile_peak_bytes`: a list over 2 of 3 IPUs"),
        (("target", "tiles_per_ipu"), 0, "in `target`: "),
        (("target", "tiles_per_ipu"), 8, "in `memory.tile_peak_bytes`: tiles (1472,), where"),
        (("steps", "root"), 10**6, "in `steps`: "),
        (("cycles",), 5, "in `cycles`: 5 cycles, where the last step ends after "),
        (("arguments",), {"x": "args[0]"}, "in `arguments`: "),
        (("program", "children", -1), [10**6], "in `program`: "),
    ]:
        error = read_or_error(
            changed(document, path, lambda data, key, value=value: data.__setitem__(key, value))
        )
        assert message in error, (path, error)


def test_keys_of_later_versions_are_passed_over(document: dict[str, Any]) -> None:
    def extended(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{key: extended(inside) for key, inside in value.items()}, "later": [1]}
        return [extended(inside) for inside in value] if isinstance(value, list) else value

    kept = {"arguments": document["arguments"], "memory": document["memory"]}
    other = {**extended({k: v for k, v in document.items() if k not in kept}), **kept}
    assert Report.from_dict(other).to_dict() == document


def test_pages_are_written(tmp_path: Path) -> None:
    report = plain()
    report.to_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.lower().lstrip().startswith("<!doctype html>")
    assert "<" in report._repr_html_()


@given(st.lists(st.integers(-5, 5)))
def test_runs_and_repeats_stand_for_their_numbers(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    assert runs.decode_runs(runs.encode_runs(array)).tolist() == values
    assert runs.decode_repeats(runs.encode_repeats(array)).tolist() == values


@given(st.lists(st.integers(-2, 2)))
def test_runs_are_as_long_as_they_can_be(values: list[int]) -> None:
    encoded = runs.encode_runs(np.array(values, dtype=np.int64))
    for (first, step, count), (following, *_) in itertools.pairwise(encoded):
        assert count > 1
        assert following != first + step * count
    if encoded and encoded[-1][2] == 1:
        assert encoded[-1][1] == 0


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 1), st.integers(0, 10**9))))
def test_equal_rows_are_grouped(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    indices_of_row = {
        row: [i for i, other in enumerate(rows) if other == row] for row in sorted(set(rows))
    }
    assert [
        (tuple(row), indices.tolist()) for row, indices in runs.group_equal_rows(*columns)
    ] == list(indices_of_row.items())
