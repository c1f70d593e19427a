"""Replicas in several processes compute what those in one do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.ipujax.distribution.processes import PROGRAMS, told_by

REPLICAS = 4


@pytest.mark.parametrize("program", ["loop.py", "pipelined.py"])
@pytest.mark.parametrize("instances", [2, pytest.param(4, marks=pytest.mark.complete)])
def test_training_is_that_of_one_process(program: str, instances: int) -> None:
    (alone,), told = (told_by(program, n, REPLICAS) for n in (1, instances))
    assert [each["index"] for each in told] == list(range(instances))
    for each in told:
        np.testing.assert_allclose(each["weights"], alone["weights"], rtol=1e-5, atol=1e-6)
    losses = np.concatenate(
        [np.reshape(each["losses"], (-1, REPLICAS // instances)) for each in told], axis=1
    )
    np.testing.assert_allclose(losses, alone["losses"], rtol=1e-5)


def replicas_of(program: str, instances: int, *arguments: str) -> dict[str, np.ndarray]:
    """What each name stands for on all replicas, `[replicas, ...]`."""
    told = [each["told"] for each in told_by(program, instances, REPLICAS, *arguments)]
    return {
        name: np.concatenate([np.asarray(each[name], np.float64) for each in told])
        for name in told[0]
    }


@pytest.mark.parametrize(
    ("instances", "command"),
    [
        (2, ("operators.py",)),
        pytest.param(2, ("trainings.py", "loops"), marks=pytest.mark.exhaustive),
        pytest.param(2, ("operators.py", "every"), marks=pytest.mark.exhaustive),
        pytest.param(2, ("trainings.py", "pipelines"), marks=pytest.mark.exhaustive),
        pytest.param(4, ("operators.py", "every"), marks=pytest.mark.complete),
        pytest.param(4, ("trainings.py", "loops"), marks=pytest.mark.complete),
        pytest.param(4, ("trainings.py", "pipelines"), marks=pytest.mark.complete),
    ],
)
def test_replicas_do_what_those_of_one_process_do(instances: int, command: tuple[str, ...]) -> None:
    alone, spread = (replicas_of(command[0], n, *command[1:]) for n in (1, instances))
    assert spread.keys() == alone.keys()
    for name, values in spread.items():
        rough = 2e-3 if "halves" in name else 2e-5
        np.testing.assert_allclose(values, alone[name], rough, rough, err_msg=name)


def test_both_of_two_processes_have_the_same_large_sum() -> None:
    first, second = (np.random.default_rng(seed).normal(size=(160, 160)) for seed in (0, 1))
    expected = 3 * (first.astype(np.float32) + second.astype(np.float32))
    one, other = told_by("large_sum.py", 2, 2)
    assert one["weights"] == other["weights"]
    np.testing.assert_allclose(one["weights"], expected.ravel(), rtol=1e-5, atol=1e-6)


@pytest.mark.fact("distributed.global_replication")
def test_replicas_are_numbered_over_all_processes() -> None:
    spread = replicas_of("operators.py", 2)
    np.testing.assert_array_equal(spread["['index']"][:, 0], range(REPLICAS))


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "late",
    [1, pytest.param(5, marks=pytest.mark.complete), pytest.param(35, marks=pytest.mark.complete)],
)
def test_a_slow_process_delays_the_others_and_no_more(late: int) -> None:
    """Where gloo makes connections, it waits 30 seconds and no longer."""
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    program = [sys.executable, str(PROGRAMS / "slow.py"), str(late)]
    done = subprocess.run([*launch, *program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[10.0, 12.0, 14.0, 16.0]\n" * 2


@pytest.mark.exhaustive
def test_a_loop_that_processes_disagree_about() -> None:
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2"]
    program = [sys.executable, str(PROGRAMS / "disagreeing.py")]
    done = subprocess.run(
        [*launch, *program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "a trip count, and a queue is used inside: [3, 4]" in done.stderr
    assert done.stdout.count("it agreed 0 1 2") == 2


@pytest.mark.exhaustive
def test_kernels_of_several_processes_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the first process would have kept some, with their collectives in another order.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "variable"))
    options = ["--num-instances", "2", "--executable-cache-path", str(tmp_path / "a flag")]
    launch = [sys.executable, "-m", "ipujax.distribution.launch", *options]
    program = [sys.executable, str(PROGRAMS / "loop.py")]
    subprocess.run([*launch, *program], timeout=120, check=True, capture_output=True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
