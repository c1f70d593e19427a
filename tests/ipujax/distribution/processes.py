"""Runs the programs of these tests, each as several processes, once."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


@functools.cache
def told_by(
    program: str, instances: int, replicas: int, *arguments: str, options: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """What each instance prints, as JSON, in their order.

    Args:
      program: a file in `PROGRAMS`.
      instances: how many.
      replicas: of all of them together.
      arguments: of the program.
      options: of the launcher, besides.
    """
    launch = [sys.executable, "-m", "ipujax.distribution.launch"]
    count = ["--num-instances", str(instances), "--num-replicas", str(replicas)]
    command = [*launch, *count, *options, sys.executable, str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(told, key=lambda each: each["index"])
