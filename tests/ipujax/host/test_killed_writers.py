"""Processes that are killed while they write leave whole files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ROOT
from tests.ipujax import killed_writers
from tests.ipujax.killed_writers import WRITERS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no process can be killed and forked")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.complete)])
def test_files_are_old_or_new(kills: int) -> None:
    # A process of its own, since only one without threads can be forked.
    arguments = [sys.executable, "-m", "tests.ipujax.killed_writers", "--kills", str(kills)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        arguments, capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    counts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["writer"] for each in counts] == list(WRITERS)
    assert all(each["kills"] == kills for each in counts)
    assert [each for each in counts if each["halves"] or each["left"]] == []
    assert sum(each["unfinished"] for each in counts)  # some moments were the right ones


def test_halves_are_found(tmp_path: Path) -> None:
    versions = {"a": {b"old", b"new"}, "complete.txt": {b"all"}}
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / ".ipujax-0.tmp").write_bytes(b"ha")
    assert killed_writers.wrong_files(tmp_path, versions) == []
    (tmp_path / "a").write_bytes(b"ol")
    (tmp_path / "b").touch()
    assert killed_writers.wrong_files(tmp_path, versions) == ["a", "b"]
    folders = tmp_path / "folders"
    for name in ("killed", "without"):
        (folders / name).mkdir(parents=True)
    (folders / "killed" / "a").write_bytes(b"old")
    (folders / "without" / "complete.txt").write_bytes(b"all")
    assert killed_writers.wrong_folders(folders, versions) == ["without/complete.txt"]
