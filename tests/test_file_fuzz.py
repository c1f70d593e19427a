"""A sample of changed files for every reader; `python -m tests.file_fuzz` reads many more."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.file_fuzz import readers
from tests.file_fuzz.changes import BAIT, change_bytes, change_json
from tests.file_fuzz.readers import NAMES
from tests.file_fuzz.run import check, outcomes, read_samples
from tests.file_fuzz.watch import watching

QUICK = ("report", "schedule", "attachment", "checkpoint")
_NEEDS = {
    "executable": "flatbuffers",
    "orbax": "orbax.checkpoint",
    "onnx": "onnx",
    "poptorch": "torch",
}


@pytest.mark.parametrize("name", QUICK)
def test_a_few_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPUJAX_RUNTIME_DIR", os.environ.get("IPUJAX_RUNTIME_DIR", ""))
    reader = readers.reader(name)
    read_samples(reader)
    found = [check(reader, 0, number) for number in range(15)]
    assert [outcome for outcome in found if not outcome.is_right] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_many_changes(name: str) -> None:
    pytest.importorskip(_NEEDS.get(name, "json"))
    found = list(outcomes(name, 1, 0, 150))
    assert [outcome for outcome in found if not outcome.is_right] == []
    assert len(found) == 150


def test_what_a_file_made_the_process_do_is_found(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with watching(inside, 60) as found:
        (inside / "mine").write_text("is allowed")
    assert found == []
    with watching(inside, 60) as found:
        (tmp_path / "elsewhere").write_text("is not")
        subprocess.run([sys.executable, "-c", ""], check=True)
        with pytest.raises(ImportError):
            __import__(BAIT)
    assert [each.partition("(")[0].partition(" ")[0] for each in found] == [
        "wrote",
        "subprocess.Popen",
        "imported",
    ]


def test_changes_are_the_same_again() -> None:
    document = {"a": [1, 2, {"b": "c"}], "d": 1.5}
    for seed in range(50):
        one, other = random.Random(seed), random.Random(seed)
        assert repr(change_json(document, one)) == repr(change_json(document, other))
        assert change_bytes(b"0123456789" * 9, one) == change_bytes(b"0123456789" * 9, other)
    assert document == {"a": [1, 2, {"b": "c"}], "d": 1.5}
