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


@pytest.mark.exhaustive
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
