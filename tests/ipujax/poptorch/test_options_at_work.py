"""What options change of a wrapped model: its system, its programs, its gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import ipujax as ipu
from ipujax import poptorch
from ipujax.driver import executable_cache
from ipujax.errors import FloatingPointError as IPUFloatingPointError
from ipujax.poptorch.batch_split import BatchSplit
from ipujax.poptorch.options.config_file import build_ipu_config, get_cache_folder


class Divided(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return 1 / x


class WithLoss(torch.nn.Module):
    """The loss is a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x: Any, y: Any) -> Any:
        return torch.nn.functional.mse_loss(self.layer(x), y)


def test_every_model_has_options_of_its_own() -> None:
    options = poptorch.Options()
    training = poptorch.trainingModel(WithLoss(), options)
    inference = poptorch.inferenceModel(WithLoss(), options)
    assert options.defaultOutputMode()
    assert training.options.output_mode is poptorch.OutputMode.Final
    assert inference.options.output_mode is poptorch.OutputMode.All
    for fixed in (options, training.options, inference.options):
        with pytest.raises(poptorch.Error, match="Can't modify frozen Options"):
            fixed.deviceIterations(2)


def test_options_are_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    poptorch.setLogLevel("DEBUG")
    try:
        poptorch.inferenceModel(Divided(), poptorch.Options().deviceIterations(3))
    finally:
        poptorch.setLogLevel("WARN")
    assert "poptorch.Options set device_iterations to value 3" in caplog.text
    assert "poptorch.Options set execution_mode to value 0" in caplog.text


def test_floating_point_exceptions_are_caught() -> None:
    x = torch.tensor([1.0, 0.0])
    assert poptorch.inferenceModel(Divided())(x).tolist() == [1.0, float("inf")]
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    with pytest.raises(poptorch.Error, match="division by zero") as raised:
        poptorch.inferenceModel(Divided(), options)(x)
    assert isinstance(raised.value.__cause__, IPUFloatingPointError)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reduction", [None, *list(poptorch.ReductionType)[:2]])
def test_gradients_are_reduced_as_asked(reduction: Any) -> None:
    model = WithLoss()
    weight = model.layer.weight.detach().clone()
    x, y = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[1.0], [-1.0]])
    gradients = []
    for row in range(2):
        (gradient,) = torch.autograd.grad(model(x[row], y[row]), [model.layer.weight])
        gradients.append(gradient)
    total = sum(gradients) / (1 if reduction == poptorch.ReductionType.Sum else 2)
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    if reduction is not None:
        options.Training.accumulationAndReplicationReductionType(reduction)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    poptorch.trainingModel(model, options, optimizer)(x, y)
    torch.testing.assert_close(model.layer.weight.detach(), weight - 0.01 * total)


def test_reports_are_in_a_folder_of_the_model(tmp_path: Path) -> None:
    options = poptorch.Options().enableProfiling(str(tmp_path)).modelName("divided")
    poptorch.inferenceModel(Divided(), options).compile(torch.ones(2))
    (report,) = (tmp_path / "divided").rglob("report.json")
    assert report.stat().st_size


def test_compiled_programs_are_kept_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable_cache, "_chosen", None)  # it is for the process
    options = poptorch.Options().enableExecutableCaching(str(tmp_path))
    poptorch.inferenceModel(Divided(), options).compile(torch.ones(2))
    assert list(tmp_path.glob("*.ipujax.json"))
    assert get_cache_folder(options) == str(tmp_path)
    assert get_cache_folder(options.clone().enableExecutableCaching(None)) is None


def test_the_system_is_configured_by_options() -> None:
    options = poptorch.Options().setAvailableMemoryProportion({"IPU0": 0.3, "IPU1": 0.2})
    options.Precision.setPartialsType(torch.half).enableStochasticRounding(True)
    options.enableProfiling("reports").useOfflineIpuTarget(21)
    config = build_ipu_config(options, "training")
    expected = {"partialsType": "half", "availableMemoryProportion": "0.2"}
    assert config.matmuls.poplar_options == config.convolutions.poplar_options == expected
    assert config.floating_point_behaviour.esr
    assert not config.floating_point_behaviour.inv
    assert config.ipu_model.version == "ipu21"
    assert config.compilation_poplar_options["autoReport.directory"] == "reports/training"


def test_the_device_of_an_id_is_used(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(2)
    with caplog.at_level("INFO"):
        poptorch.inferenceModel(Divided(), poptorch.Options().useIpuId(3))(x)
    assert "attached to IPU: 3" in caplog.text
    small = poptorch.Options().useIpuId(3).replicationFactor(2)
    with pytest.raises(poptorch.Error, match=r"names a device of 1 IPUs, but the model needs 2"):
        poptorch.inferenceModel(Divided(), small)(x)


def test_a_system_of_the_users_own_stays_and_decides() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    poptorch.inferenceModel(Divided())(torch.ones(2))
    options = poptorch.Options()
    options.Precision.enableStochasticRounding(True)
    with pytest.raises(poptorch.Error, match=r"floating_point_behaviour\.esr = True"):
        poptorch.inferenceModel(Divided(), options).compile(torch.ones(2))
    with pytest.raises(poptorch.Error, match="2 replicas of 1 IPUs need 2 IPUs"):
        poptorch.inferenceModel(Divided(), poptorch.Options().replicationFactor(2)).compile(
            torch.ones(2)
        )


@pytest.mark.exhaustive
def test_an_offline_model_only_compiles() -> None:
    model = poptorch.inferenceModel(Divided(), poptorch.Options().useOfflineIpuTarget())
    model.compile(torch.ones(2))
    with pytest.raises(poptorch.Error, match="Trying to run a model on an offline device"):
        model(torch.ones(2))


def test_training_in_several_processes_is_refused() -> None:
    options = poptorch.Options()
    options.Distributed.configureProcessId(0, 2)
    with pytest.raises(poptorch.Error, match="2 processes"):
        poptorch.trainingModel(WithLoss(), options)
    poptorch.inferenceModel(WithLoss(), options)


@pytest.mark.parametrize(("are_apart", "given"), [(False, [0, 0, 1, 1]), (True, [0, 1, 0, 1])])
def test_groups_of_replicas_get_the_same_input(are_apart: bool, given: list[int]) -> None:
    shares = BatchSplit(
        iterations=2, accumulation=1, replicas=4, group_size=2, is_orthogonal=are_apart
    )
    keys = np.zeros((8, 2), np.uint32)
    elements = list(shares.iterate_elements([torch.arange(4)], keys))
    assert [int(rows[0]) for rows, _ in elements] == [*given, *(2 + row for row in given)]
