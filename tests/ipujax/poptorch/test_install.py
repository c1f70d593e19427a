"""`install()`: programs that stay as they are, and the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the extra `torch` is not installed")

PROGRAM = """
import multiprocessing
import subprocess
import sys


def name_of_it(queue):
    import poptorch.options

    queue.put(poptorch.options.__name__)


if __name__ == "__main__":
    from ipujax.poptorch import install

    install()
    import torch

    class Evens(torch.utils.data.Sampler):
        def __init__(self, data):
            super().__init__(None)

        def __iter__(self):
            return iter([0, 2])

    print(*Evens([1, 2, 3]))
    source = "import poptorch.options; print(poptorch.options.__name__)"
    subprocess.run([sys.executable, "-c", source], check=True)
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=name_of_it, args=(queue,))
    child.start()
    child.join()
    print(queue.get() if child.exitcode == 0 else child.exitcode)
"""


@pytest.mark.exhaustive
def test_children_find_it_and_older_calls_are_taken(tmp_path: object) -> None:
    file = f"{tmp_path}/program.py"
    with open(file, "w", encoding="utf-8") as script:
        script.write(PROGRAM)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    run = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, env=environment, timeout=300
    )
    lines = [line for line in run.stdout.splitlines() if line]
    assert lines == ["0 2", "ipujax.poptorch.options", "ipujax.poptorch.options"], run.stderr


@pytest.mark.exhaustive
def test_popdist_is_found_with_poptorch() -> None:
    source = (
        "import ipujax.poptorch; ipujax.poptorch.install()\n"
        "import poptorch, popdist, popdist.poptorch\n"
        "options = popdist.poptorch.Options(ipus_per_replica=2)\n"
        "print(popdist.isPopdistEnvSet(), isinstance(options, poptorch.Options))\n"
        "print(options.Distributed.processId, options.Distributed.numProcesses)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.split() == ["False", "True", "0", "1"]
