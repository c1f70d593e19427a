"""IPUs of one replica in several processes compute what they do in one, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ROOT

PROGRAMS = Path(__file__).parent / "programs"


def run(instances: int, program: str, *arguments: str, replicas: int = 1) -> list[dict[str, Any]]:
    """What each instance prints, as JSON, without its number."""
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--spread", "ipus"]
    count = ["--num-instances", str(instances), "--num-replicas", str(replicas)]
    command = [*launch, *count, sys.executable, str(PROGRAMS / program), *arguments]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=path
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(each.pop("index") for each in told) == list(range(instances))
    return told


@pytest.mark.parametrize(
    ("schedule", "instances", "replicas"),
    [
        ("Interleaved", 2, 2),
        pytest.param("chimera", 2, 1, marks=pytest.mark.exhaustive),
        pytest.param("between", 2, 1, marks=pytest.mark.exhaustive),
        pytest.param("dualpipe", 4, 1, marks=pytest.mark.exhaustive),
        pytest.param("Grouped", 4, 1, marks=pytest.mark.complete),
        pytest.param("Sequential", 3, 1, marks=pytest.mark.complete),
        pytest.param("Interleaved", 4, 1, marks=pytest.mark.complete),
    ],
)
def test_stages_train_as_in_one_process(schedule: str, instances: int, replicas: int) -> None:
    (alone,) = run(1, "spread_pipeline.py", schedule, replicas=replicas)
    told = run(instances, "spread_pipeline.py", schedule, replicas=replicas)
    assert told == [alone] * instances


def test_shards_compute_as_in_one_process() -> None:
    (alone,) = run(1, "spread_shards.py")
    assert alone["the data ends"][0] == "OutOfRangeError"
    assert alone["a call that raises"][0] == "CallbackError"
    told = run(2, "spread_shards.py")
    assert [alone.pop("seen"), sum(each.pop("seen") for each in told)] == [1, 1]
    for each in told:
        kind, message = each.pop("the data of another")
        assert kind == "DistributionError"
        assert "reads infeed `infeed_0` in instance 0, and `loop` reads it in instance 1" in message
    assert told == [alone] * 2


@pytest.mark.exhaustive
def test_meshes_train_as_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    (alone,) = run(1, "spread_meshes.py")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    assert run(2, "spread_meshes.py") == [alone] * 2


@pytest.mark.exhaustive
@pytest.mark.parametrize(("instances", "first"), [(2, 0), (3, 40)])
def test_random_programs(instances: int, first: int) -> None:
    count = 6 if instances == 2 else 20
    run_checked = run(instances, "fuzzed.py", str(first), str(first + count))
    assert run_checked == [{"checked": count}] * instances
