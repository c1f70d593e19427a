"""Reports that are written while programs compile."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ipujax as ipu
from ipujax.cli.serving import Library
from ipujax.errors import ConfigError, OutOfMemoryError
from ipujax.ground import files
from ipujax.report import Report, auto_report
from tests.ipujax.reporting import configured

f32 = np.float32
X = np.ones((8, 8), f32)
REPORTS = {"report.html", "report.json", "report.txt", "framework.json"}
FILES = {*REPORTS, "debug.cbor", "program.txt", "trace.json.gz"}


def product(x: Any) -> Any:
    return x @ x


@pytest.fixture(autouse=True)
def nothing_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts as a process does."""
    monkeypatch.setattr(auto_report, "_written", set())
    auto_report._warn_once.cache_clear()  # pyright: ignore[reportPrivateUsage]


def ask(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    named = {f"autoReport.{name}": value for name, value in options.items()}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(named))


def ask_all(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    ask(monkeypatch, all="true", directory=str(directory))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def test_the_files_of_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_all(monkeypatch, tmp_path / "a" / "b")
    ipu.compile(product)(X)
    (folder,) = (tmp_path / "a" / "b").iterdir()
    pattern = rf"\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d__{os.getpid()}__product"
    assert re.fullmatch(pattern, folder.name)
    assert {file.name for file in folder.iterdir()} == {*FILES, files.COMPLETE}
    lowered = ipu.compile(product).lower(X)
    report = lowered.report()
    assert json.loads((folder / "report.json").read_text("utf-8")) == report.to_dict()
    assert (folder / "report.txt").read_text("utf-8") == f"{report}\n"
    assert (folder / "program.txt").read_text("utf-8") == lowered.as_text(origins=True)
    assert "<html" in (folder / "report.html").read_text("utf-8")
    assert "traceEvents" in json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))


def test_it_is_the_working_directory_if_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ask(monkeypatch, all="true")
    ipu.compile(product)(X)
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_written_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    ipu.compile(product)(X)
    ask(monkeypatch, all="false")
    ipu.compile(product)(X)
    assert not warnings(caplog)
    for _ in range(2):
        ask(monkeypatch, directory="there")
        ipu.compile(product)(X)
    assert warnings(caplog) == [
        "POPLAR_ENGINE_OPTIONS['autoReport.directory'] is set, but no report is asked for: set "
        'autoReport.all "true"'
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"outputGraphProfile": "true"}, REPORTS),
        ({"outputDebugInfo": "true"}, {"debug.cbor"}),
        ({"outputExecutionProfile": "true"}, {"trace.json.gz"}),
        ({"outputLoweredVars": "true"}, {"report.json"}),
        ({"all": "true", "outputSerializedGraph": "false"}, FILES - {"program.txt"}),
        (
            {"all": "true", "outputGraphProfile": "false"},
            {"report.json", "debug.cbor", "program.txt", "trace.json.gz"},
        ),
    ],
)
def test_some_of_the_files(
    options: dict[str, str], expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, directory=str(tmp_path), **options)
    ipu.compile(product)(X)
    (folder,) = tmp_path.iterdir()
    assert {file.name for file in folder.iterdir()} == {*expected, files.COMPLETE}


def test_every_way_to_compile_writes_a_program_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask(monkeypatch, outputLoweredVars="true", directory=str(tmp_path))
    function = ipu.compile(product)
    function(X)
    assert len(list(tmp_path.iterdir())) == 1
    function(X)
    function.lower(X).compile()(X)
    with ipu.events.record():  # compiles it anew, to record that
        function(X)
    ipu.compile(product)(X)
    assert len(list(tmp_path.iterdir())) == 1
    function(np.ones((4, 4), f32))
    ipu.compile(product, engine="replay").lower(X).compile()
    ipu.compile(product, name="other")(X)
    assert len(list(tmp_path.iterdir())) == 4
    said = [r.getMessage() for r in caplog.records if "report written to" in r.getMessage()]
    assert len(said) == 4
    assert all(any(str(folder) in line for line in said) for folder in tmp_path.iterdir())


def test_another_configuration_is_another_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, outputLoweredVars="true", directory=str(tmp_path))
    function = ipu.compile(product)
    function(X)
    configured(ipu_model__version="ipu21")
    function(X)
    texts = [(folder / "report.json").read_text("utf-8") for folder in tmp_path.iterdir()]
    assert {json.loads(text)["target"]["name"] for text in texts} == {"ipu2", "ipu21"}


def test_programs_driven_by_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, outputLoweredVars="true", directory=str(tmp_path))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def program(x: Any) -> None:
        outfeed.enqueue(x)

    ipu.compile(program)(X)
    ipu.compile(program)(X)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<lambda>", "lambda"),
        ("../a/b c", "a_b_c"),
        ("x" * 300, "x" * 80),
        ("x" + "ü" * 300, "x" + "ü" * 39),  # 79 bytes; a half letter is none
    ],
)
def test_names_of_folders(
    name: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, outputLoweredVars="true", directory=str(tmp_path))
    ipu.compile(product, name=name)(X)
    (folder,) = tmp_path.iterdir()
    assert folder.name.split("__")[2] == shown


def test_folders_of_programs_of_one_name_differ(tmp_path: Path) -> None:
    names = {auto_report._create_report_folder(tmp_path, "f") for _ in range(5)}  # pyright: ignore[reportPrivateUsage]
    assert len(names) == 5


def test_it_is_written_before_memory_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(ipu_model__tiles_per_ipu=1)
    options = {
        "autoReport.outputLoweredVars": "true",
        "autoReport.directory": str(tmp_path),
        "debug.allowOutOfMemory": "false",
    }
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    for compile in (lambda f, x: f(x), lambda f, x: f.lower(x).compile()):
        with pytest.raises(OutOfMemoryError):
            compile(ipu.compile(lambda x: x + 1), np.zeros(200_000, f32))
    (folder,) = tmp_path.iterdir()
    assert not json.loads((folder / "report.json").read_text("utf-8"))["memory"]["fits"]


def test_the_environment_overrides_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros(200_000, f32)
    forbidden = {"debug.allowOutOfMemory": "false"}
    configured(ipu_model__tiles_per_ipu=1, compilation_poplar_options=forbidden)
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "true"}')
    np.testing.assert_array_equal(ipu.compile(lambda x: x + 1)(x), x + 1)
    asked = {"autoReport.outputLoweredVars": "true", "autoReport.directory": str(tmp_path)}
    configured(compilation_poplar_options=asked)
    ipu.compile(product)(X)
    assert len(list(tmp_path.iterdir())) == 1
    ask(monkeypatch, outputLoweredVars="false")
    ipu.compile(product, name="other")(X)
    assert len(list(tmp_path.iterdir())) == 1


def test_truth_may_be_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, all=True, directory=str(tmp_path))
    ipu.compile(product)(X)
    assert len(list(tmp_path.iterdir())) == 1
    ask(monkeypatch, all=False)
    ipu.compile(product, name="other")(X)
    assert len(list(tmp_path.iterdir())) == 1


# --- wrong options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{autoReport", "holds '{autoReport', which is no JSON: .* write it like"),
        ("[" * 100_000, "which is no JSON: .* write it like"),
        ("1" * 5000, "which is no JSON: .* write it like"),
        ("[]", "holds '\\[\\]', which is no JSON object"),
        (
            '{"autoReport.al": "true"}',
            r"\['autoReport.al'\] is unknown; did you mean 'autoReport.a",
        ),
        ('{"autoreport.all": "true"}', "did you mean 'autoReport.all'"),
        ('{"autoReport.zzzzzzzz": "true"}', "there are autoReport.all, "),
        ('{"autoReport.all": null}', r"\['autoReport.all'\] is None, but must be the text"),
        ('{"autoReport.outputGraphProfile": "yes"}', "outputGraphProfile.*is 'yes', but must be"),
        ('{"autoReport.all": "true", "autoReport.directory": 3}', "is 3, but must be a path"),
        ('{"debug.allowOutOfMemory": "no"}', "allowOutOfMemory.*is 'no', but must be the text"),
    ],
)
def test_wrong_options(text: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    for compile in (lambda f: f(X), lambda f: f.lower(X).compile()):
        with pytest.raises(ConfigError, match=f"^POPLAR_ENGINE_OPTIONS.*{words}"):
            compile(ipu.compile(product))


def test_wrong_options_of_the_program() -> None:
    configured(compilation_poplar_options={"autoReport.All": "true"})
    with pytest.raises(ConfigError, match=r"^compilation_poplar_options\['autoReport.All'\]"):
        ipu.compile(product)(X)


@pytest.mark.parametrize("text", ["", " ", "{}", '{"debug.instrument": "true"}'])
def test_options_that_poplar_alone_knows(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    ipu.compile(product)(X)
    assert not warnings(caplog)


def test_options_that_change_nothing_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask(monkeypatch, outputArchive="true", executionProfileProgramRunCount="2")
    ipu.compile(product)(X)
    ipu.compile(product)(X)
    assert [text.partition(" changes")[0] for text in warnings(caplog)] == [
        "POPLAR_ENGINE_OPTIONS['autoReport.outputArchive']",
        "POPLAR_ENGINE_OPTIONS['autoReport.executionProfileProgramRunCount']",
    ]


# --- a run goes on -------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_made_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    ask_all(monkeypatch, tmp_path / "file" / "folder")
    ipu.compile(product)(X)
    ipu.compile(product)(X)
    (warning,) = warnings(caplog)
    assert "autoReport.directory" in warning
    assert "cannot be made, and the run goes on without reports: Not a directory" in warning


@pytest.mark.parametrize(
    ("method", "what", "problem"),
    [
        ("to_html", "report.html", OSError(28, "No space left on device")),
        ("to_perfetto", "trace.json.gz", ZeroDivisionError("ours")),
    ],
)
def test_a_report_that_cannot_be_written_is_a_warning(
    method: str,
    what: str,
    problem: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(report: Report, path: Path, **arguments: Any) -> None:
        raise problem

    monkeypatch.setattr(Report, method, fail)
    ask_all(monkeypatch, tmp_path)
    np.testing.assert_array_equal(ipu.compile(product)(X), X @ X)
    (warning,) = warnings(caplog)
    reason = f"{type(problem).__name__}: {problem}"
    assert warning == f"`product`: no {what}, the run goes on: {reason}"
    (folder,) = tmp_path.iterdir()
    assert {file.name for file in folder.iterdir()} == FILES - {what}


def test_the_marker_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a folder without it was not written to its end, and the index of reports says so."""
    seen: list[set[str]] = []
    mark = files.mark_complete

    def look(folder: Path) -> None:
        seen.append({file.name for file in folder.iterdir()})
        mark(folder)

    monkeypatch.setattr(files, "mark_complete", look)
    ask_all(monkeypatch, tmp_path)
    ipu.compile(product)(X)
    assert seen == [FILES]
    (entry,) = Library([tmp_path]).list_entries()
    assert not entry.note
    (entry.path.parent / files.COMPLETE).unlink()
    (entry,) = Library([tmp_path]).list_entries()
    assert not isinstance(entry.found, str)  # the report itself is whole
    assert "its folder is not complete (there is no complete.txt)" in entry.note


def test_a_folder_or_a_model_that_cannot_be_made_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **keywords: Any) -> None:
        raise PermissionError(13, "Permission denied")

    ask_all(monkeypatch, tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(auto_report, "_create_report_folder", fail)
        ipu.compile(product)(X)
    assert "no report, the run goes on: PermissionError" in warnings(caplog)[0]
    configured(ipu_model__version="ipu21")
    monkeypatch.setattr("ipujax.report.make_report", fail)
    ipu.compile(product)(X)
    assert "no report, the run goes on: PermissionError" in warnings(caplog)[1]
    assert not list(tmp_path.iterdir())


def test_what_was_not_written_is_written_when_it_compiles_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(report: Report, path: Path, **arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    ask(monkeypatch, outputExecutionProfile="true", directory=str(tmp_path))
    with monkeypatch.context() as full:
        full.setattr(Report, "to_perfetto", fail)
        ipu.compile(product)(X)
    assert len(warnings(caplog)) == 1
    for _ in range(2):
        ipu.compile(product).lower(X).compile()
    written = [file.name for folder in tmp_path.iterdir() for file in folder.iterdir()]
    assert sorted(written) == [files.COMPLETE, "trace.json.gz"]


def test_another_working_directory_gets_reports_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, outputExecutionProfile="true", directory="reports")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        ipu.compile(product)(X)
        assert len(list((tmp_path / name / "reports").iterdir())) == 1


def test_one_that_takes_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import time

    monkeypatch.setattr(auto_report, "_LONG_SECONDS", 0.01)
    monkeypatch.setattr(Report, "to_json", lambda *_: time.sleep(0.1))
    ask(monkeypatch, outputLoweredVars="true", directory=str(tmp_path))
    ipu.compile(product)(X)
    said = [r.getMessage() for r in caplog.records if "its report is being made" in r.getMessage()]
    assert said == ["`product`: its report is being made; large programs take a while"]


@pytest.mark.exhaustive
def test_several_processes_write_side_by_side(tmp_path: Path) -> None:
    source = "import ipujax as ipu; ipu.compile(lambda x: x + 1, name='f')(1.0)"
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    environment = {**os.environ, "POPLAR_ENGINE_OPTIONS": json.dumps(options)}
    runs = [subprocess.Popen([sys.executable, "-c", source], env=environment) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    folders = list(tmp_path.iterdir())
    assert {folder.name.split("__")[1] for folder in folders} == {str(run.pid) for run in runs}
    expected = {*FILES, files.COMPLETE}
    assert all({file.name for file in folder.iterdir()} == expected for folder in folders)
