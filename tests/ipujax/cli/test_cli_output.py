"""Commands whose output cannot be written, and that are given what is no file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipujax.cli import main
from tests.harness import ROOT
from tests.ipujax.small_report import small_report

FULL = Path("/dev/full")
needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="no device that is full")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    small_report().to_json(path)
    return path


def started(
    *arguments: object, before: tuple[str, ...] = (), unbuffered: bool = False, **streams: Any
) -> Any:
    """A command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    words = [*before, sys.executable, "-m", "ipujax", *map(str, arguments)]
    return subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True, **streams)


@pytest.mark.sampled(1)
@needs_full_device
@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("report", "{saved}"), "ipujax report"),
        (("report", "{saved}", "--html", "-"), "ipujax report"),
        (("info",), "ipujax info"),
        (("info", "-l"), "ipujax info"),
        (("monitor", "--json"), "ipujax monitor"),
        (("inventory",), "ipujax inventory"),
        (("monitor", "--help"), "ipujax monitor"),
        (("--version",), "ipujax"),
    ],
)
def test_full_devices_are_an_error_in_a_line(
    arguments: tuple[str, ...], name: str, unbuffered: bool, saved: Path
) -> None:
    words = [word.format(saved=saved) for word in arguments]
    with FULL.open("w") as full:
        done = started(*words, stdout=full, unbuffered=unbuffered)
    message = f"{name}: error: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, message)


@needs_full_device
def test_full_devices_as_files(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--html", "--perfetto"):
        assert main(["report", str(saved), option, str(FULL)]) == 1
        message = "ipujax report: error: /dev/full cannot be written: No space left on device\n"
        assert capsys.readouterr().err == message
    for write in (small_report().to_json, small_report().to_html, small_report().to_perfetto):
        with pytest.raises(OSError, match="'/dev/full': No space left on device"):
            write(FULL)


def test_closed_output_is_no_error() -> None:
    done = started("info", "-l", before=("sh", "-c", 'exec "$@" >&-', "sh"))
    assert (done.returncode, done.stderr) == (0, "")


def test_only_regular_files_are_reports(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    hint = "  fix:   give a file that report.to_json(path) wrote; `ipujax report -` reads stdin\n"
    for path, what in ((pipe, "a pipe"), (Path("/dev/zero"), "a device")):
        for arguments in ([path], ["--diff", path, saved]):
            assert main(["report", *map(str, arguments)]) == 1
            said = capsys.readouterr().err
            assert said == f"ipujax report: error: {path} is {what}, no regular file\n{hint}"
        assert main(["report", "--serve", str(path)]) == 1
        said = capsys.readouterr().err
        assert said == f"ipujax report: error: {path}: neither a regular file nor a directory\n"
