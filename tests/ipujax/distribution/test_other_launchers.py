"""Processes that Slurm or Open MPI has started, as far as their variables tell."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import numpy as np
import pytest

from ipujax.distribution.probe import find_free_port

PROGRAMS = Path(__file__).parent / "programs"
LOCAL_REPLICAS = 2


def slurm(number: int) -> dict[str, str]:
    """The variables of a task of two."""
    return {
        "SLURM_JOB_ID": str(os.getpid()),  # of which JAX makes a port
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(number),
    }


def open_mpi(number: int) -> dict[str, str]:
    """The variables of a process of two."""
    return {
        "OMPI_MCA_orte_hnp_uri": f"{os.getpid() * 2**12}.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
    }


def tf_config(port: int, has_chief: bool) -> Callable[[int], dict[str, str]]:
    """The variables of a worker of two."""
    first, second = (f"127.0.0.1:{port + k}" for k in range(2))
    plain, tasks = {"worker": [first, second]}, [("worker", 0), ("worker", 1)]
    chief, chief_tasks = {"chief": [first], "worker": [second]}, [("chief", 0), ("worker", 0)]
    cluster, tasks = (chief, chief_tasks) if has_chief else (plain, tasks)

    def variables(number: int) -> dict[str, str]:
        kind, index = tasks[number]
        whole = {"cluster": cluster, "task": {"type": kind, "index": index}}
        return {"TF_CONFIG": json.dumps(whole), "JAX_NUM_CPU_DEVICES": "1"}

    return variables


@contextlib.contextmanager
def started(
    arguments: Sequence[str], variables: Callable[[int], dict[str, str]]
) -> Generator[list[subprocess.Popen[str]]]:
    """Two processes of a program; none is left afterwards."""
    pipe = subprocess.PIPE
    shared = {**os.environ, "JAX_NUM_CPU_DEVICES": str(LOCAL_REPLICAS)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / arguments[0]), *arguments[1:]],
            env={**shared, **variables(number)},
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        for number in range(2)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("variables", [slurm, open_mpi])
def test_the_script_needs_no_launcher_of_ours(variables: Callable[[int], dict[str, str]]) -> None:
    launch = [sys.executable, "-m", "ipujax.distribution.launch", "--num-replicas", "4"]
    program = [sys.executable, str(PROGRAMS / "loop.py")]
    done = subprocess.run([*launch, *program], capture_output=True, text=True, timeout=120)
    alone = json.loads(done.stdout)
    with started(["loop.py"], variables) as processes:
        for number, process in enumerate(processes):
            out, complaint = process.communicate(timeout=120)
            assert process.returncode == 0, complaint
            told = json.loads(out.splitlines()[-1])
            assert told["index"] == number
            np.testing.assert_allclose(told["weights"], alone["weights"], rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("peer", ["alone", "waiting"])
def test_the_peer_of_one_that_is_killed_ends_too_and_says_who_has_died(peer: str) -> None:
    way = ["SIGKILL", "alone"] if peer == "alone" else ["SIGKILL"]
    with started(["ending.py", *way], slurm) as (first, last):
        assert last.wait(60) == -9
        died = time.monotonic()
        _, told = first.communicate(timeout=60)
        assert time.monotonic() - died < 12  # JAX waits 8 seconds for a sign of life
        assert first.returncode
        assert "The following tasks are unhealthy (stopped sending heartbeats):\n1\n" in told


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("has_chief", [False, True])
def test_workers_meet_as_tf_config_says(has_chief: bool) -> None:
    with started(["tf_config.py"], tf_config(find_free_port(), has_chief)) as processes:
        for number, process in enumerate(processes):
            out, complaint = process.communicate(timeout=120)
            assert process.returncode == 0, complaint
            # Both take the steps of both: 0 - 0.1 * 4 * (1 + 2).
            assert f"RESULT 2 {number} -1.2\n" in out


def test_a_worker_that_has_computed_before_is_refused() -> None:
    with started(["tf_config.py", "late"], tf_config(find_free_port(), False)) as processes:
        for process in processes:
            _, complaint = process.communicate(timeout=120)
            assert process.returncode == 1
            assert "DistributionError: this process cannot meet the others" in complaint
            assert "before anything computes with JAX" in complaint
