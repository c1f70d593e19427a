"""What a wrapped model tells of its runs."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402


class Product(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x @ y


@pytest.mark.parametrize(("mode", "kept"), [("All", 12), ("Final", 2), ("Sum", 2), ("EveryN", 6)])
def test_there_is_a_time_for_each_tensor_of_each_micro_batch(mode: str, kept: int) -> None:
    options = poptorch.Options().deviceIterations(6).replicationFactor(2)
    options.outputMode(poptorch.OutputMode[mode], 2)
    model = poptorch.inferenceModel(Product(), options)
    with pytest.raises(poptorch.Error, match="has not run"):
        model.getPerfCounters()
    model(torch.ones(12, 2, 2), torch.ones(12, 2, 2))
    times = model.getPerfCounters()
    assert [len(times["input"]), len(times["output"])] == [2, 1]
    assert [len(times["input_complete"][1]), len(times["output_complete"][0])] == [12, kept]
    parts = model.getHostIpuLatency()[2], model.getComputeLatency()[2], model.getIpuHostLatency()[2]
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(model.getLatency()[2])


def test_cycles_are_those_of_the_report() -> None:
    x = torch.ones(2, 2)
    without = poptorch.inferenceModel(Product())
    with pytest.raises(poptorch.Error, match="Cycle count logging is disabled"):
        without.cycleCount()
    model = poptorch.inferenceModel(Product(), poptorch.Options().logCycleCount(True))
    with pytest.raises(poptorch.Error, match="run the model at least once"):
        model.cycleCount()
    model(x, x)
    assert model.cycleCount() == model.report().cycles > 0


def test_the_time_of_a_compilation_is_told() -> None:
    x = torch.ones(2, 2)
    model = poptorch.inferenceModel(Product())
    with pytest.raises(poptorch.Error, match="compile the model before"):
        model.compilationTime()
    model(x, x)
    assert model.compilationTime() > datetime.timedelta(0)
    quiet = poptorch.inferenceModel(Product(), poptorch.Options().showCompilationProgressBar(False))
    quiet(x, x)
    with pytest.raises(poptorch.Error, match="showCompilationProgressBar"):
        quiet.compilationTime()


def test_synthetic_data_takes_no_time_to_move() -> None:
    model = poptorch.inferenceModel(Product(), poptorch.Options().enableSyntheticData(True))
    model(torch.ones(2, 2), torch.ones(2, 2))
    assert model.getLatency() == (0.0, 0.0, 0.0)
    assert model.getPerfCounters()["input"] == [[], []]
