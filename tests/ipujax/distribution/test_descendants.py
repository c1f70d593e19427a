"""Which processes are ended with this one, and which are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ipujax.distribution import descendants

SCRIPT = """
import subprocess
from ipujax.distribution import descendants
before = subprocess.Popen(["sleep", "50"])
descendants.adopt_orphans()
after = subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 51; true' & sleep 52; true"])
descendants.kill_descendants()
assert after.wait(5) == -9
assert before.poll() is None
before.kill()
"""


def test_what_was_there_before_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes are stopped")
@pytest.mark.parametrize("command", [["sleep", "50"], ["sh", "-c", "sleep 50; true"]])
def test_one_that_is_stopped_for_long_is_told_from_one_that_waits(command: list[str]) -> None:
    ticks = range(descendants._MOST_STOPPED_TICKS - 1)
    process = subprocess.Popen(command, start_new_session=True)
    try:
        watch = descendants.StopWatch(process.pid)
        assert not any(watch.check_has_stopped() for _ in range(20))
        below = psutil.Process(process.pid).children()
        stopped = below[0] if below else psutil.Process(process.pid)
        for _ in range(2):  # one that goes on counts anew
            stopped.send_signal(signal.SIGSTOP)
            wait_for(stopped, psutil.STATUS_STOPPED)
            assert not any(watch.check_has_stopped() for _ in ticks)
            stopped.send_signal(signal.SIGCONT)
            wait_for(stopped, psutil.STATUS_SLEEPING)
            assert not watch.check_has_stopped()
        stopped.send_signal(signal.SIGSTOP)
        wait_for(stopped, psutil.STATUS_STOPPED)
        assert not any(watch.check_has_stopped() for _ in ticks)
        assert watch.check_has_stopped()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: psutil.Process, status: str) -> None:
    until = time.monotonic() + 5
    while process.status() != status:
        assert time.monotonic() < until
        time.sleep(0.01)
