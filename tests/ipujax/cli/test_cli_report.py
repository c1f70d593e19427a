"""The command `ipujax`, and `ipujax report`."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ipujax
from ipujax import report
from ipujax.cli import main
from ipujax.cli.command import COMMANDS
from tests.harness import ROOT
from tests.ipujax.small_report import small_report

Output = pytest.CaptureFixture[str]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A report that fits, in a file."""
    path = tmp_path / "report.json"
    small_report().to_json(path)
    return path


def run(*arguments: object, code: int = 0) -> None:
    assert main([str(each) for each in arguments]) == code


def wrong(*arguments: object, output: Output) -> str:
    """What is said of wrong arguments."""
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert ended.value.code == 2
    said = output.readouterr()
    assert not said.out
    return said.err


def test_the_page_of_text(saved: Path, capsys: Output):
    run("report", saved)
    assert capsys.readouterr().out == f"{small_report()}\n"


def test_the_document(saved: Path, capsys: Output):
    run("report", saved, "--json")
    assert json.loads(capsys.readouterr().out) == json.loads(saved.read_text())


def test_pages_and_traces(saved: Path, tmp_path: Path, capsys: Output):
    page, trace = tmp_path / "report.html", tmp_path / "trace.json"
    run("report", saved, "--html", page, "--perfetto", trace)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"wrote {page}\nwrote {trace}\n"
    small_report().to_html(tmp_path / "direct.html")
    assert page.read_text() == (tmp_path / "direct.html").read_text()
    assert "traceEvents" in json.loads(trace.read_text())


def test_pages_on_stdout(saved: Path, tmp_path: Path, capsys: Output):
    run("report", saved, "--html", "-")
    small_report().to_html(tmp_path / "direct.html")
    assert capsys.readouterr().out.rstrip() == (tmp_path / "direct.html").read_text().rstrip()


def test_a_page_is_opened(
    saved: Path, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or True)
    page = tmp_path / "page.html"
    run("report", saved, "--open", "--html", page)
    run("report", saved, "--open")
    assert opened[0] == page.as_uri()
    assert page.read_text() == Path(opened[1].removeprefix("file://")).read_text()


def test_where_there_is_no_browser_the_page_stays(
    saved: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("webbrowser.open", lambda uri: False)
    run("report", saved, "--open", code=1)
    page = Path(capsys.readouterr().err.strip().rpartition("the page is ")[2])
    assert "<html" in page.read_text()


def test_stdin(saved: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(saved.read_bytes())))
    run("report", "-")
    assert capsys.readouterr().out == f"{small_report()}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    run("report", "-", code=1)
    assert "stdin is not JSON" in capsys.readouterr().err


def test_differences(saved: Path, tmp_path: Path, capsys: Output):
    other = tmp_path / "other.json.gz"
    small_report(name="other", cycles=260).to_json(other)
    run("report", "--diff", saved, other)
    text = capsys.readouterr().out
    assert "130" in text
    assert "260" in text
    page = tmp_path / "diff.html"
    run("report", "--diff", saved, other, "--html", page)
    assert page.read_text().count('class="report"') == 2


def test_differences_are_told_by_the_names_of_files_or_by_labels(
    saved: Path, tmp_path: Path, capsys: Output
):
    other = tmp_path / "other.json.gz"
    small_report(cycles=260).to_json(other)

    def heads() -> str:
        run("report", "--diff", saved, other)
        return " ".join(capsys.readouterr().out.split("\n\n")[1].splitlines()[0].split())

    assert heads() == "report.json other.json.gz change"
    run("report", other, "--label", "twice as slow")
    assert capsys.readouterr().err == f"wrote {other}\n"
    assert heads() == "report.json twice as slow change"
    run("report", saved, "--label", "twice as slow")
    capsys.readouterr()
    assert heads() == "report.json other.json.gz change"  # one label tells nothing apart


def test_labels_leave_the_rest_of_a_file_as_it_is(saved: Path, capsys: Output):
    os.utime(saved, (1e9, 1e9))
    before = json.loads(saved.read_text())
    run("report", saved, "--label", " first try ")
    assert report.load(saved).label == "first try"
    assert json.loads(saved.read_text()) == {**before, "label": "first try"}
    assert saved.stat().st_mtime == 1e9
    run("report", saved, "--label", "")
    assert report.load(saved).label == ""
    assert "give its name" in wrong("report", "-", "--label", "x", output=capsys)


def test_reports_that_cannot_be_read(tmp_path: Path, capsys: Output):
    run("report", tmp_path / "none.json", code=1)
    said = capsys.readouterr()
    wanted = f"ipujax report: error: there is no report {tmp_path / 'none.json'}: No such file or "
    assert said.err.startswith(f"{wanted}directory\n")
    assert said.out == ""
    run("report", tmp_path, code=1)
    assert "Is a directory" in capsys.readouterr().err
    for content in (
        b"",
        b"{",
        b"[]",
        b"\x1f\x8b\x08",
        b"\xff",
        b'{"schema": 1}',
        b'{"schema": 99}',
    ):
        path = tmp_path / "broken.json"
        path.write_bytes(content)
        run("report", path, code=1)
        error = capsys.readouterr().err
        assert error.startswith(f"ipujax report: error: {path} ")
        assert "fix:" in error
        assert "Traceback" not in error


def test_reports_that_cannot_be_written(saved: Path, tmp_path: Path, capsys: Output):
    for option in ("--html", "--perfetto"):
        run("report", saved, option, tmp_path / "none" / "out", code=1)
        assert "out cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a FILE, or --diff A B, or --serve PATH"),
        (("a", "--diff", "a", "b"), "give a FILE, or --diff A B, or --serve PATH"),
        (("--diff", "a"), "expected 2 arguments"),
        (("--diff", "-", "-"), "only one of the two reports can come from stdin"),
        (("--diff", "a", "b", "--json"), "--json does not go with --diff"),
        (("a", "--perfetto", "-"), "--perfetto writes a file; give its name"),
        (("a", "--html", "-", "--json"), "only one of --html - and --json can go to stdout"),
        (("--diff", "a", "b", "--perfetto", "c"), "--perfetto does not go with --diff"),
        (("--serve", "--html", "a"), "--html does not go with --serve"),
        (("a", "--port", "80"), "--port does not go with FILE"),
        (("--serve", "--port", "65536"), "--port is a number from 0 to 65535, not 65536"),
        (("--serve", "--port", "-1"), "--port is a number from 0 to 65535, not -1"),
        (("--serve", "--port", "x"), "invalid int value"),
        (("a", "b"), "unrecognized arguments"),
        (("--nothing",), "unrecognized arguments"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], message: str, capsys: Output):
    said = wrong("report", *arguments, output=capsys)
    assert said.startswith("usage: ipujax report ")
    assert message in said


def test_the_commands(capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("IPUJAX_RUNTIME_DIR", str(tmp_path))
    assert "invalid choice: 'nothing'" in wrong("nothing", output=capsys)
    run("info", "-d", "24", "--ipu-count")
    assert capsys.readouterr().out == "4\n"
    run("inventory", "--json")
    assert len(json.loads(capsys.readouterr().out)["devices"]) == 31
    run("monitor")
    assert capsys.readouterr().out.startswith("gc-monitor | Partition:")
    assert "`ipujax info -l`" in wrong("info", "-i", output=capsys)


@pytest.mark.parametrize("name", ["", *sorted(COMMANDS.keys() - {"run", "completion"})])
def test_help_fits_on_a_page(name: str, capsys: Output, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    examples = lines[lines.index("examples:") + 1 :]
    assert examples
    assert all(line.startswith(f"  ipujax {name}".rstrip()) for line in examples)


def test_examples_of_help_are_right(
    saved: Path, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
):
    """Every example of `report` that ends by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda uri: True)
    for name in ("a.json", "b.json"):
        shutil.copy(saved, name)
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    found = re.findall(r"^  ipujax (report .*?)  ", capsys.readouterr().out, re.MULTILINE)
    assert len(found) == 8
    for example in found:
        if "--serve" not in example:
            run(*example.split())


def test_no_command_is_answered_with_help(capsys: Output):
    run()
    assert capsys.readouterr().out.startswith("usage: ipujax ")


@pytest.mark.parametrize("arguments", [["--version"], ["report", "--version"]])
def test_version(arguments: list[str], capsys: Output):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"ipujax {ipujax.__version__}\n"


def test_reports_are_shown_without_jax(saved: Path, tmp_path: Path):
    program = f"""
import sys
from ipujax import pva
from ipujax.cli import main
from ipujax.cli.command import COMMANDS
name, out = {str(saved)!r}, {str(tmp_path / "out")!r}
assert main(["report", name]) == 0
assert main(["report", name, "--json", "--html", out, "--perfetto", out]) == 0
assert main(["report", "--diff", name, name]) == 0
assert pva.openReport(name).execution.totalCycles == 130
import ipujax.cli.serving
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)


def test_as_a_program(saved: Path):
    """As a module, with a reader that stops early."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments: list[Any] = [sys.executable, "-m", "ipujax", "report", saved]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, f"{small_report()}\n")
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (1, b"")
    assert report.load(saved).cycles == 130


@pytest.mark.parametrize("option", ["--html", "--perfetto"])
def test_reports_are_not_overwritten(option: str, saved: Path, capsys: Output):
    before = saved.read_bytes()
    said = wrong("report", saved, option, saved.parent / "." / saved.name, output=capsys)
    assert f"{option} {saved} would overwrite the report that is read" in said
    assert saved.read_bytes() == before


def test_terminals_that_know_few_letters(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "ipujax", "report", tmp_path / "fehlt-ä.json"],
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert r"fehlt-\xe4.json" in done.stderr
    assert "Traceback" not in done.stderr
