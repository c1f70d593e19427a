"""Which processes are ended with this one, and which are not."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import subprocess
from ipujax.distribution import descendants
before = subprocess.Popen(["sleep", "50"])
descendants.adopt()
after = subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 51; true' & sleep 52; true"])
descendants.end()
assert after.wait(5) == -9
assert before.poll() is None
before.kill()
"""


def test_what_was_there_before_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
