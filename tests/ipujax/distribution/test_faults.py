"""A process that is killed at any moment: its peers end, and the next run goes on from there."""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

PROGRAM = Path(__file__).parent / "programs" / "resuming.py"
LAUNCH = (sys.executable, "-m", "ipujax.distribution.launch", "--num-instances", "2")
MOMENTS = 50
MOST_SECONDS = 10.0  # in which all end


def command(folder: Path) -> list[str]:
    return [*LAUNCH, sys.executable, str(PROGRAM), str(folder)]


def completed(folder: Path) -> np.ndarray:
    """The weights that a run ends with, the same in both processes."""
    done = subprocess.run(command(folder), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    first, other = map(json.loads, done.stdout.splitlines())
    np.testing.assert_array_equal(first, other)
    return np.array(first)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, float]:
    """What a run that nobody kills learns, and the seconds that it takes."""
    started = time.monotonic()
    weights = completed(tmp_path_factory.mktemp("undisturbed"))
    return weights, time.monotonic() - started


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.sampled(0, 4)
def test_the_next_run_goes_on_where_a_killed_one_was(
    moment: int, undisturbed: tuple[np.ndarray, float], tmp_path: Path
) -> None:
    weights, seconds = undisturbed
    chance = random.Random(moment)
    run = subprocess.Popen(
        command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(seconds * (moment + chance.random()) / MOMENTS)
    index = chance.randrange(2)
    started = kill(index, run)
    killed = time.monotonic()
    _, told = run.communicate(timeout=60)
    assert time.monotonic() - killed < MOST_SECONDS
    assert not any(process.is_running() for process in started)
    if run.returncode:  # else all was done
        assert run.returncode == 128 + 9
        assert f"instance {index} ended with exit status 137" in told
    np.testing.assert_array_equal(completed(tmp_path), weights)


def kill(index: int, run: subprocess.Popen[str]) -> list[psutil.Process]:
    """Kills an instance as soon as it is there, unless all has ended; gives all processes."""
    while run.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(run.pid).children(recursive=True)
            victim = instance(index, started)
            if victim is not None:
                victim.kill()
                return started
    return []


def instance(index: int, processes: list[psutil.Process]) -> psutil.Process | None:
    """What runs an instance: its program, or what is about to start that."""
    mark = re.compile(f"POPDIST_INSTANCE_INDEX={index}$")
    for process in processes:
        if any(map(mark.match, process.cmdline())):
            return next(iter(process.children()), process)
    return None
