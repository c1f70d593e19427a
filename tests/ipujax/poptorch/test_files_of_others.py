"""Files of PopTorch that somebody else wrote: the forms that run nothing of them."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import ipujax.poptorch as poptorch
from ipujax.errors import IPUError, PopTorchFileError
from tests.file_fuzz.changes import change_bytes


class Runs:
    """What makes a folder when it is unpickled."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.shift


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, torch.Tensor]:
    torch.manual_seed(1)
    wrapped = poptorch.inferenceModel(Model().eval())
    path = tmp_path / "model.poptorch"
    wrapped.compileAndExport(path, torch.ones(4, 3))
    return path, wrapped(torch.ones(4, 3))


def test_a_model_of_ones_own_gets_the_weights(saved: tuple[Path, torch.Tensor]) -> None:
    path, wanted = saved
    loaded = poptorch.load(path, model=Model())
    torch.testing.assert_close(loaded(torch.ones(4, 3)), wanted)
    with pytest.raises(IPUError, match="do not fit the model"):
        poptorch.load(path, model=torch.nn.Linear(2, 2))


def test_nothing_of_a_file_runs(saved: tuple[Path, torch.Tensor], tmp_path: Path) -> None:
    fields: Any = torch.load(saved[0], weights_only=False)
    for name in ("module", "options", "arguments", "rng_state", "more"):
        torch.save(fields | {name: Runs(tmp_path / name)}, saved[0])
        for read in (
            lambda: poptorch.load(saved[0], model=Model()),
            lambda: poptorch.inferenceModel(Model()).loadExecutable(saved[0]),
        ):
            try:
                read()
            except IPUError:
                pass
        assert not (tmp_path / name).exists()


def test_changed_files_are_refused_or_read(saved: tuple[Path, torch.Tensor]) -> None:
    path, rng = saved[0], random.Random(0)
    whole = path.read_bytes()
    for _ in range(30):
        path.write_bytes(change_bytes(whole, rng))
        try:
            poptorch.inferenceModel(Model()).loadExecutable(path)
        except (IPUError, PopTorchFileError):
            pass


def test_options_of_literals_alone(tmp_path: Path) -> None:
    path = tmp_path / "options"
    path.write_text(
        "# mine\ndeviceIterations(2)\nTraining.gradientAccumulation(4)\n"
        "options.outputMode(poptorch.OutputMode.All)\n"
    )
    options = poptorch.Options().loadFromFile(str(path), literals_only=True)
    assert options.device_iterations == 2
    assert options.Training.gradient_accumulation == 4
    assert options.output_mode is poptorch.OutputMode.All


@pytest.mark.parametrize(
    "line",
    [
        "__import__('os').mkdir({folder!r})",
        "deviceIterations(__import__('os').mkdir({folder!r}) or 1)",
        "loadFromFile({folder!r})",
        "__init__()",
        "Training.__class__.__init__()",
        "_freeze()",
        "deviceIterations",
        "deviceIterations(2); 1",
        "outputMode(poptorch.os.mkdir)",
        "deviceIterations(*[1])",
    ],
)
def test_lines_that_are_more_than_literals(line: str, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    path = tmp_path / "options"
    path.write_text(line.format(folder=str(folder)))
    with pytest.raises(IPUError):
        poptorch.Options().loadFromFile(str(path), literals_only=True)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["__class__", "_freeze", "__init__.__globals__.get", "clone"])
def test_options_of_json_are_methods_of_theirs(name: str) -> None:
    with pytest.raises(IPUError, match="there is no option"):
        poptorch.Options().from_json(f'{{"{name}": 1}}')
