"""How a process ends, and what becomes of its peers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = [sys.executable, str(Path(__file__).parent / "programs" / "ending.py")]


@pytest.mark.parametrize(
    ("way", "status"),
    [
        ("exit", 3),
        pytest.param("raise", 1, marks=pytest.mark.exhaustive),
        pytest.param("SIGTERM", 143, marks=pytest.mark.exhaustive),
        pytest.param("SIGSEGV", 139, marks=pytest.mark.exhaustive),
    ],
)
def test_a_failure_ends_the_peer_that_waits_for_it(way: str, status: int) -> None:
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    done = subprocess.run([*launch, *PROGRAM, way], capture_output=True, text=True, timeout=120)
    assert done.returncode == status
    assert f"instance 1 ended with exit status {status}" in done.stderr
    assert "done" not in done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["early", "late"])
def test_one_that_has_done_its_part_waits_for_the_others(way: str) -> None:
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    done = subprocess.run([*launch, *PROGRAM, way], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    own = [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]
    assert sorted(own) == ["done 0", "done 1"]
