"""The user's lines in the report of a PyTorch model."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

import ipujax as ipu
from ipujax import poptorch
from tests.ipujax.feeding import configure


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        return self.second(hidden)


class WithLoss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.net(x)
        return out, torch.nn.functional.mse_loss(out, y)


def line_of(function: Any, text: str) -> str:
    """The `file:line (function)` of the line of a function that has a text."""
    lines, first = inspect.getsourcelines(function)
    (number,) = (first + i for i, line in enumerate(lines) if text in line)
    return f"{__file__}:{number} ({function.__name__})"


def test_operations_of_a_training_are_on_the_lines_of_the_model() -> None:
    model = WithLoss()
    training = poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters(), lr=0.1))

    def train() -> None:
        training(torch.ones(4, 8), torch.zeros(4, 4))

    train()
    operations = training.report().operations
    asked = line_of(train, "training(").replace("(train)", f"({train.__qualname__})")
    called = line_of(WithLoss.forward, "self.net(x)")
    for line in ("self.first(x)", "self.second(hidden)"):
        path = (asked, called, line_of(Net.forward, line))
        products = [o for o in operations if o.call_path == path and "dot_general" in o.name]
        assert {o.name.endswith("backward") for o in products} == {False, True}
    loss = line_of(WithLoss.forward, "mse_loss")
    assert any(o.call_path == (asked, loss) for o in operations)
    without_line = [o for o in operations if not o.call_path]
    assert not without_line
    assert not any("site-packages" in frame for o in operations for frame in o.call_path)


def test_a_module_in_a_jax_function_is_below_the_line_that_applies_it() -> None:
    configure(1)
    net = ipu.frontends.from_torch(Net().eval(), (torch.ones(3, 8),))

    def run(variables: Any, x: Any) -> Any:
        return net.apply(variables, x)

    report = ipu.compile(run).lower(net.variables, np.ones((3, 8), np.float32)).report()
    inside = {o.call_path[1:] for o in report.operations}
    assert {o.call_path[0].split(" (")[0] for o in report.operations} == {
        line_of(run, "net.apply").split(" (")[0]
    }
    assert (line_of(Net.forward, "self.first(x)"),) in inside
    assert (line_of(Net.forward, "self.second(hidden)"),) in inside


def test_lines_of_a_model_run_one_by_one() -> None:
    """As PopART's operations; in a function of JAX they are one chain."""

    class Lines(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(x)
            return torch.exp(y)

    inference = poptorch.inferenceModel(Lines())
    inference(torch.ones(4, 8))
    assert [o.name.split()[0] for o in inference.report().operations] == ["tanh", "exp"]
