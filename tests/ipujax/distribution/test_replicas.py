"""Replicas in several processes compute what those in one do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.ipujax.distribution.processes import PROGRAMS, told_by

REPLICAS = 4


@pytest.mark.parametrize("program", ["loop.py", "pipelined.py"])
@pytest.mark.parametrize("instances", [2, 4])
def test_training_is_that_of_one_process(program: str, instances: int) -> None:
    (alone,), told = (told_by(program, n, REPLICAS) for n in (1, instances))
    assert [each["index"] for each in told] == list(range(instances))
    for each in told:
        np.testing.assert_allclose(each["weights"], alone["weights"], rtol=1e-5, atol=1e-6)
    losses = np.concatenate(
        [np.reshape(each["losses"], (-1, REPLICAS // instances)) for each in told], axis=1
    )
    np.testing.assert_allclose(losses, alone["losses"], rtol=1e-5)


def test_programs_that_differ_are_found_before_they_run() -> None:
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    program = [sys.executable, str(PROGRAMS / "different.py")]
    done = subprocess.run(
        [*launch, *program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "of instance 1 is another program than that of instance 0" in done.stderr
    assert "-    c:f32[] = add b 0.0:f32[]" in done.stderr
    assert "it ran" not in done.stdout


@pytest.mark.parametrize("late", [1, pytest.param(35, marks=pytest.mark.exhaustive)])
def test_a_slow_process_delays_the_others_and_no_more(late: int) -> None:
    """Where gloo makes connections, it waits 30 seconds and no longer."""
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    program = [sys.executable, str(PROGRAMS / "slow.py"), str(late)]
    done = subprocess.run([*launch, *program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[10.0, 12.0, 14.0, 16.0]\n" * 2
