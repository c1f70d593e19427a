"""How a process ends, and what becomes of its peers."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STOPPED = [sys.executable, str(Path(__file__).parent / "programs" / "stopped.py")]
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes are stopped")
@pytest.mark.exhaustive
@pytest.mark.parametrize("which", ["program", "both"])
def test_one_that_is_stopped_ends_all_and_is_named(which: str) -> None:
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    with subprocess.Popen(
        [*launch, *STOPPED, which], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert list(itertools.islice(filter("met\n".__eq__, run.stdout), 2))
        stopped = time.monotonic()
        told, complaint = run.communicate(timeout=60)
    assert time.monotonic() - stopped < 15
    assert run.returncode == 128 + signal.SIGSTOP
    assert "instance 1 ended with exit status 147" in complaint
    assert "was stopped (SIGSTOP) and did not go on for 8 seconds" in complaint
    assert "done" not in told
