"""The folder in which processes say what they are attached to: ours alone, whatever is in it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipujax.cli import info, inventory, monitor
from ipujax.system import attachments, list_attached_processes
from ipujax.system.attachments import Attachment, publish_attachments, withdraw_attachments
from tests.harness import ROOT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="temporary folders are each user's own")

OTHER_USER = 12345
MINE = [Attachment("/device:IPU:0", 24, (5, 7, 6, 4))]
as_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root can give folders away"
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, with nothing in it."""
    monkeypatch.delenv("IPUJAX_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    attachments._warn_of_folder.cache_clear()
    yield tmp_path
    withdraw_attachments()


@pytest.fixture
def folder(temporary: Path) -> Path:
    """The one of attachments."""
    folder = attachments.runtime_dir()
    assert folder.parent == temporary
    return folder


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_the_folder_is_for_this_user_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert list_attached_processes() == []
    assert not folder.exists()  # looking makes nothing
    publish_attachments(MINE)
    assert folder.stat().st_mode & 0o777 == 0o700
    (process,) = list_attached_processes()
    assert (process.pid, process.attachments) == (os.getpid(), tuple(MINE))
    withdraw_attachments()
    assert list_attached_processes() == []
    assert os.listdir(folder) == []
    assert warnings(caplog) == []


def test_names_of_the_environment_change_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`su` may leave the name of another user there, or what is no name at all."""
    monkeypatch.setenv("USER", "../../elsewhere")
    monkeypatch.setenv("LOGNAME", "../../elsewhere")
    assert attachments.runtime_dir() == folder


# --- folders that are not ours -------------------------------------------------------------------


def refused(folder: Path, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is written or read, with a warning each that says what to do; nothing is raised."""
    for _ in range(2):
        publish_attachments(MINE)
        assert list_attached_processes() == []
        withdraw_attachments()
    remove = "" if "IPUJAX_RUNTIME_DIR" in os.environ else "have it removed, or "
    fix = f"\n  fix:   {remove}name a folder of your own, with mode 700, in IPUJAX_RUNTIME_DIR"
    assert warnings(caplog) == [
        f"gc-monitor is not told of this process: {folder} {why}{fix}",
        f"attached processes are not known: {folder} {why}{fix}",
    ]


def bait(folder: Path) -> Path:
    """A file that this process would remove, were the folder its own."""
    path = folder / f"{os.getpid()}.json"
    path.write_text(json.dumps({"pid": os.getpid(), "started": "0"}))
    return path


def test_links_are_not_followed(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "target"
    target.mkdir(0o700)
    path = bait(target)
    before = path.read_text()
    folder.symlink_to(target)
    refused(folder, "is a link", caplog)
    assert path.read_text() == before
    assert os.listdir(target) == [path.name]


def test_files_in_its_place_are_left_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.write_text("somebody's")
    refused(folder, "is no folder", caplog)
    assert folder.read_text() == "somebody's"


@as_root
def test_folders_of_others_are_left_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(0o700)
    path = bait(folder)
    before = path.read_text()
    os.chown(folder, OTHER_USER, OTHER_USER)
    refused(folder, f"belongs to user {OTHER_USER}, not to root", caplog)
    assert path.read_text() == before
    assert os.listdir(folder) == [path.name]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_folders_that_are_open_to_others_are_left_alone(
    mode: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    folder.chmod(mode)
    path = bait(folder)
    refused(folder, f"is open to others (mode {mode:o}, not 700)", caplog)
    assert os.listdir(folder) == [path.name]


def test_folders_that_are_named_may_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    monkeypatch.setenv("IPUJAX_RUNTIME_DIR", str(folder))
    folder.chmod(0o755)
    publish_attachments(MINE)
    assert len(list_attached_processes()) == 1
    withdraw_attachments()
    assert warnings(caplog) == []
    folder.chmod(0o775)
    attachments._warn_of_folder.cache_clear()
    refused(folder, "is open to others (mode 775, not 700)", caplog)


def test_a_folder_that_is_swapped_meanwhile_leads_nowhere(folder: Path, tmp_path: Path) -> None:
    """What is done in it is done by its descriptor."""
    publish_attachments(MINE)
    target = tmp_path / "target"
    target.mkdir()
    path = bait(target)
    with attachments._open_runtime_folder() as opened:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(target)
        opened.write_text("1.json", "{}")
        opened.remove_file(path.name)
        assert opened.list_names() == ["1.json"]
    assert os.listdir(target) == [path.name]
    assert os.listdir(tmp_path / "moved") == ["1.json"]


@as_root
def test_the_program_goes_on(temporary: Path) -> None:
    folder = attachments.runtime_dir()
    folder.mkdir(0o700)
    os.chown(folder, OTHER_USER, OTHER_USER)
    program = "from ipujax.config import IPUConfig; IPUConfig().configure_ipu_system()"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert f"{folder} belongs to user {OTHER_USER}, not to root" in done.stderr
    assert "Traceback" not in done.stderr


# --- bad files -----------------------------------------------------------------------------------


def record(**changes: Any) -> str:
    """What this process says, and what is wrong with it."""
    whole = {
        **{"pid": os.getpid(), "started": attachments._read_start_time(os.getpid())},
        **{"command": "python", "user": "me", "since": 1.7e9},
        "attachments": [{"device": "/device:IPU:0", "device_id": 0, "ipus": [0]}],
    }
    return json.dumps({**whole, **changes})


BAD = {
    "garbage": "\x00\xff{",
    "empty": "",
    "truncated": record()[:-20],
    "list": "[]",
    "text": '"text"',
    "deep": "[" * 100_000,
    "digits": "1" * 5000,
    "huge": record(command="x" * 2**20),
    "nothing": "{}",
    "pid of a text": record(pid="1"),
    "pid of all processes": record(pid=-1),
    "pid of this group": record(pid=0),
    "pid of no process": record(pid=10**30),
    "pid of a flag": record(pid=True),
    "since a text": record(since="yesterday"),
    "since ever": record(since=float("-inf")),
    "since none": record(since=float("nan")),
    "started a list": record(started=[]),
    "letters of a terminal": record(command="\x1b[2J"),
    "two lines": record(user="me\nyou"),
    "user a number": record(user=1),
    "attachments none": record(attachments=None),
    "attachments numbers": record(attachments=[1]),
    "ipus of texts": record(attachments=[{"device": "a", "device_id": 0, "ipus": ["0", 1]}]),
    "ipus a number": record(attachments=[{"device": "a", "device_id": 0, "ipus": 3}]),
    "no device": record(attachments=[{"device_id": 0, "ipus": [0]}]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_passed_over(
    name: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish_attachments(MINE)
    (folder / "0.json").write_text(BAD[name])
    for tool, arguments in ((monitor, ()), (monitor, ("--json",)), (inventory, ())):
        caplog.clear()
        assert tool.main(arguments) == 0
        assert str(os.getpid()) in capsys.readouterr().out
        (warning,) = warnings(caplog)
        assert warning.startswith(f"{str(folder / '0.json')!r} is passed over, as it ")
        assert len(warning.splitlines()) == 1
        assert len(warning) < 500
    assert (folder / "0.json").exists()


def test_what_is_no_file_is_passed_over(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish_attachments(MINE)
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"pid": os.getpid(), "started": "0"}))  # of a dead process
    (folder / "0.json").symlink_to(outside)
    (folder / "1.json").symlink_to("nowhere")
    (folder / "2.json").mkdir()
    os.mkfifo(folder / "3.json")
    assert info.main(["-d", "24", "-i"]) == 0
    assert f"attached processes: {os.getpid()}" in capsys.readouterr().out
    reasons = [warning.partition("as it ")[2] for warning in warnings(caplog)]
    link, pipe = "is a link, no regular file", "is a pipe, no regular file"
    assert reasons == [link, link, "cannot be read: Is a directory", pipe]
    assert outside.exists()


def test_good_files_are_good(folder: Path) -> None:
    folder.mkdir(0o700)
    (folder / "0.json").write_text(record())
    (process,) = list_attached_processes()
    assert process.attachments == (Attachment("/device:IPU:0", 0, (0,)),)
