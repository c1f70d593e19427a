"""The pipeline in torch.distributed.pipelining, as a contender: 1F1B over gloo, two processes.

Each process has one thread and one stage of half the model. torch is no dependency of ipujax: it
is looked for in the Python that `IPUJAX_TORCH_PYTHON` names, else in the running one.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pipeline_models
from benchmarks.pipeline_models import Model, flat_parameters

MISSING = (
    "left out: the rows against torch.distributed.pipelining; to have them, `pip install "
    "torch==2.13.0`, or name a Python that has it in IPUJAX_TORCH_PYTHON"
)
_ROOT = Path(__file__).parent.parent


@functools.cache
def available() -> bool:
    """Whether the chosen Python has torch and its pipelines."""
    command = [_python(), "-c", "import numpy, torch.distributed.pipelining"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class TorchSteps:
    """(d): a training step of two processes, which keep their parameters between steps."""

    def __init__(self, model: Model):
        self._files = tempfile.TemporaryDirectory()
        folder = Path(self._files.name)
        self._like = model.parameters
        np.savez(folder / "weights.npz", **flat_parameters(model.parameters))  # pyright: ignore[reportArgumentType]
        x, y = (np.concatenate(column) for column in zip(*model.data, strict=True))
        np.savez(folder / "data.npz", x=x, y=y)
        settings = {
            "stages": pipeline_models.STAGES,
            "heads": pipeline_models.HEADS if model.name == "transformer" else 0,
            "micro_batches": len(model.data),
            "learning_rate": pipeline_models.LEARNING_RATE,
        }
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        self._processes = [self._start(rank) for rank in range(2)]

    def __call__(self) -> Any:
        """The losses, once both processes have made their updates."""
        return self._ask("step")

    @property
    def parameters(self) -> Any:
        """All stages' parameters, as NumPy arrays in our layout."""
        self._ask("save")
        found: dict[str, np.ndarray] = {}
        for rank in range(2):
            with np.load(Path(self._files.name) / f"parameters{rank}.npz") as file:
                found |= dict(file)
        return pipeline_models.unflatten(self._like, found)

    def close(self) -> None:
        """Ends both processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(60)
        self._files.cleanup()

    def _start(self, rank: int) -> subprocess.Popen[str]:
        command = [_python(), "-m", "benchmarks.pipeline_torch_worker", str(rank)]
        return subprocess.Popen(
            [*command, self._files.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    def _ask(self, command: str) -> list[float]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
        answers: list[list[float]] = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("a process of the pipeline in torch ended early")
            answers.append(json.loads(line))
        return answers[-1]


def _python() -> str:
    return os.environ.get("IPUJAX_TORCH_PYTHON", sys.executable)
