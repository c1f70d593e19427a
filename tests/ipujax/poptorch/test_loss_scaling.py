"""Automatic loss scaling: the factor follows the gradients in float16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `torch` is not installed")

from ipujax import poptorch  # noqa: E402

GREATEST = 65504.0


class Product(torch.nn.Module):
    """Weights times the input, added up: the gradient of a weight is its input."""

    def __init__(self, dtype: Any = torch.float16):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.ones(4, dtype=dtype))

    def forward(self, x: Any) -> Any:
        y = self.weights * x
        return y, poptorch.identity_loss(y, reduction="sum")


class TwoStages(torch.nn.Module):
    """A linear layer on each of two IPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        with poptorch.Block(ipu_id=0):
            x = self.first(x)
        with poptorch.Block(ipu_id=1):
            y = self.second(x)
            return y, poptorch.identity_loss(y**2, reduction="mean")


def scaled(**settings: Any) -> Any:
    options = poptorch.Options().anchorTensor("scale", "finalLossScale", poptorch.OutputMode.All)
    options.Training.setAutomaticLossScaling(True)
    for name, value in settings.items():
        options._Popart.set(f"automaticLossScalingSettings.{name}", value)
    return options


def trained(module: Any, options: Any, loss_scaling: float, rate: float = 0.0) -> tuple[Any, Any]:
    optimizer = poptorch.optim.SGD(
        module.parameters(), lr=rate, loss_scaling=loss_scaling, use_combined_accum=False
    )
    return poptorch.trainingModel(module, options, optimizer), optimizer


def scales_by_hand(first: float, greatest_input: float, count: int, period: int = 1) -> list[float]:
    """The gradients of the values are the scale, and those of the weights the scale times input."""
    scale, found = first, list[float]()
    for number in range(count):
        found.append(scale)
        if number % period == 0:
            is_large = scale * max(greatest_input, 1.0) >= GREATEST / 8
            scale *= 0.5 if is_large else 2.0
    return found


@pytest.mark.parametrize(("period", "greatest_input"), [(1, 1.0), (1, 4.0), (3, 4.0)])
def test_the_factor_is_doubled_until_gradients_are_large(
    period: int, greatest_input: float
) -> None:
    options = scaled(updatePeriod=period).deviceIterations(9)
    model, optimizer = trained(Product(), options, loss_scaling=256.0)
    model(torch.tensor([0.0, 0.5, 1.0, greatest_input] * 9).half())
    expected = scales_by_hand(256.0, greatest_input, 10, period)
    np.testing.assert_array_equal(model.getAnchoredTensor("scale"), expected[:9])
    factor = optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"]
    assert float(factor) == expected[9] / 256


def test_weights_are_trained_as_without_a_factor() -> None:
    x = torch.tensor([1.0, 0.5, 0.25, 2.0]).half()
    module = Product()
    model, _ = trained(module, scaled(), loss_scaling=64.0, rate=0.125)
    for _ in range(3):
        model(x)
    torch.testing.assert_close(module.weights.detach(), 1 - 3 * 0.125 * x)


def test_gradients_too_great_for_float16_are_cut_off() -> None:
    module = Product()
    model, _ = trained(module, scaled(), loss_scaling=65536.0 * 4, rate=1.0)
    model(torch.ones(4).half())
    assert torch.isfinite(module.weights).all()
    scale = float(model.getAnchoredTensor("scale"))
    expected = torch.full((4,), 1 - GREATEST / scale)
    torch.testing.assert_close(module.weights.float().detach(), expected, rtol=1e-3, atol=1e-3)


def greatest_gradient(module: Any, rows: Any) -> float:
    """Of the first layer's weights, by PyTorch in float32."""
    _, loss = module(rows)
    (gradient,) = torch.autograd.grad(loss, [module.first.weight])
    return float(gradient.abs().max())


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["PipelinedExecution", "ShardedExecution"])
def test_gradients_of_all_stages_count(strategy: str) -> None:
    torch.manual_seed(0)
    module, x = TwoStages(), 16 * torch.randn(16, 4)
    greatest = max(greatest_gradient(module, rows) for rows in x.split(4))
    assert greatest > 50  # of the first stage's weights; the loss's is 1
    options = scaled().setExecutionStrategy(getattr(poptorch, strategy)())
    options.Training.gradientAccumulation(4)
    model, _ = trained(module.half(), options, loss_scaling=32.0)
    found: list[float] = []
    for _ in range(6):
        model(x.half())
        found.append(float(model.getAnchoredTensor("scale")[-1]))
    assert found == scales_by_hand(32.0, greatest, 6)


def test_the_factor_goes_on_in_another_program() -> None:
    module = Product()
    model, optimizer = trained(module, scaled(), loss_scaling=2.0)
    for _ in range(3):
        model(torch.ones(4).half())
    saved = optimizer.state_dict()
    model.destroy()
    other, fresh = trained(module, scaled(), loss_scaling=2.0)
    fresh.load_state_dict(saved)
    other(torch.ones(4).half())
    assert float(other.getAnchoredTensor("scale")) == 16.0


def test_a_module_in_float32_needs_no_scaling() -> None:
    model, _ = trained(Product(torch.float32), scaled(), loss_scaling=2.0)
    with pytest.raises(poptorch.Error, match="No tracked gradient tensors of type fp16"):
        model(torch.ones(4))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("binEdgeLocation", 1.5, "Out of range value for 'binEdgeLocation'"),
        ("thresholdUpperCountProportion", -1.0, "should be in the range"),
        ("updatePeriod", 0, "updatePeriod"),
        ("gradientTensorTrackingMethod", 2, "tensors that the user names are missing"),
    ],
)
def test_settings_out_of_their_range(name: str, value: Any, message: str) -> None:
    with pytest.raises(poptorch.Error, match=message):
        trained(Product(), scaled(**{name: value}), loss_scaling=2.0)
