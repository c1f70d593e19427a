"""What a pipeline of PopTorch keeps for its backward pass, and where its log says it runs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402

ROWS = 4


class Deep(torch.nn.Module):
    """Two stages, whose first has values between its layers."""

    def __init__(self, keeps: bool):
        super().__init__()
        self.keeps = keeps
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Any) -> Any:
        with poptorch.Block("first", ipu_id=0):
            x = torch.tanh(self.layers[0](x))
            if self.keeps:
                x = poptorch.recomputationCheckpoint(x)
            x = torch.tanh(self.layers[1](x))
        with poptorch.Block("second", ipu_id=1):
            return poptorch.identity_loss(self.layers[2](x), "mean")


def kept(recomputation: int, keeps: bool) -> str:
    """What the first stage hands from its forward to its backward pass."""
    options = poptorch.Options()
    options.Training.gradientAccumulation(3)
    options._Popart.set("autoRecomputation", recomputation)
    training = poptorch.trainingModel(Deep(keeps), options)
    training.compile(torch.zeros(3 * ROWS, 8))
    lines = training.executable.lowered.as_text().splitlines()
    training.destroy()
    return next(line for line in lines if "fifo ipu 0: stage 0" in line)


@pytest.mark.exhaustive
def test_recomputation_keeps_less() -> None:
    everything, inputs, checkpoint = kept(0, False), kept(3, False), kept(3, True)
    assert inputs.count("float32") == 1
    assert checkpoint.count("float32") == 2
    assert everything.count("float32") > 2


def test_the_log_says_where_operators_run(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("poptorch::python").addHandler(caplog.handler)
    caplog.set_level(logging.DEBUG, "poptorch::python")
    options = poptorch.Options().deviceIterations(2)
    poptorch.inferenceModel(Deep(False), options).compile(torch.zeros(2 * ROWS, 8))
    logging.getLogger("poptorch::python").removeHandler(caplog.handler)
    assert "enablePipelining set to value 1" in caplog.text
    assert "layers/0/Linear:0 , mode(Pipelined), ipu(0), stage(0)" in caplog.text
    assert "Tanh:0/1 , mode(Pipelined), ipu(0), stage(0)" in caplog.text
    assert "layers/2/Linear:0 , mode(Pipelined), ipu(1), stage(1)" in caplog.text
