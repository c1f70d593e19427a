"""Dtypes that are chosen by a policy: `Module.autocast`, `poptorch.autocast` and the options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ipujax import poptorch

HALF, FLOAT = torch.float16, torch.float32


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(1, 8, 8), torch.randn(1, 8, 8)


class Product(torch.nn.Module):
    """A product in a scope, or in a decorated function."""

    def __init__(self, scope: Callable[[], Any]):
        super().__init__()
        self.scope = scope

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with self.scope():
            return torch.bmm(x, y)


class Convolution(torch.nn.Module):
    """A convolution whose result is scaled and rectified."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        convolved = self.conv(x)
        scaled = 0.5 * convolved
        return convolved, scaled, torch.relu(scaled)


def dtypes_of(policy: Any = None, *, enabled: bool = True) -> list[torch.dtype]:
    model = Convolution()
    set_autocast(model)
    options = poptorch.Options()
    options.Precision.autocastEnabled(enabled)
    if policy is not None:
        options.Precision.autocastPolicy(policy)
    return [y.dtype for y in poptorch.inferenceModel(model, options)(torch.ones(1, 1, 6, 6))]


def set_autocast(module: Any, enabled: bool = True) -> None:
    module.autocast(enabled)


@pytest.mark.parametrize(
    ("scope", "dtype"),
    [
        (poptorch.autocast, HALF),
        (lambda: poptorch.autocast(True), HALF),
        (lambda: poptorch.autocast(enabled=False), FLOAT),
    ],
)
def test_a_scope_has_products_in_float16(scope: Callable[[], Any], dtype: torch.dtype) -> None:
    x, y = operands()
    z = poptorch.inferenceModel(Product(scope))(x, y)
    assert z.dtype == dtype
    torch.testing.assert_close(z.float(), x @ y, rtol=1e-2, atol=1e-2)
    assert Product(scope)(x, y).dtype == FLOAT  # on the CPU nothing is cast


def test_a_decorated_function_has_products_in_float16() -> None:
    class Decorated(torch.nn.Module):
        @poptorch.autocast()
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x @ y

    x, y = operands()
    assert poptorch.inferenceModel(Decorated())(x, y).dtype == HALF


def test_policies_say_what_computes_in_which_dtype() -> None:
    policy = poptorch.autocasting.Policy
    assert dtypes_of() == [HALF, HALF, HALF]
    assert dtypes_of(enabled=False) == [FLOAT, FLOAT, FLOAT]
    assert dtypes_of(policy([torch.nn.Conv2d], [torch.mul, torch.relu])) == [HALF, FLOAT, FLOAT]
    assert dtypes_of(policy([torch.nn.Conv2d, torch.relu], [torch.mul])) == [HALF, FLOAT, HALF]
    assert dtypes_of(policy([torch.mul], [torch.nn.Conv2d, torch.relu])) == [FLOAT, HALF, FLOAT]
    assert dtypes_of(policy()) == [FLOAT, FLOAT, FLOAT]


def test_operands_in_both_dtypes_are_promoted_or_demoted() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with poptorch.autocast():
                return torch.cat([x, y]), torch.stack([x, y]), torch.stack([y, y])

    options = poptorch.Options()
    policy = poptorch.autocasting.Policy(promote=[torch.cat], demote=[torch.stack])
    options.Precision.autocastPolicy(policy)
    inference = poptorch.inferenceModel(Mixed(), options)
    results = inference(torch.ones(2), torch.ones(2, dtype=HALF))
    assert [result.dtype for result in results] == [FLOAT, HALF, HALF]


def test_a_layer_may_be_left_out_and_keeps_float32_parameters() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    set_autocast(model)
    set_autocast(model[1], False)
    x = torch.randn(3, 4)
    inference = poptorch.inferenceModel(model)
    with torch.no_grad():
        hidden = torch.nn.functional.linear(x.half(), model[0].weight.half(), model[0].bias.half())
        expected = model[1].half()(hidden)
    model.float()
    assert inference(x).dtype == HALF  # the second one's input is: products have its dtype
    torch.testing.assert_close(inference(x), expected, rtol=1e-2, atol=2e-3)


def test_float32_parameters_train_by_products_in_float16() -> None:
    class Regression(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        @poptorch.autocast()
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            prediction = self.layer(x)
            return prediction, torch.nn.functional.mse_loss(prediction.float(), y)

    torch.manual_seed(0)
    x = torch.randn(16, 4)
    y = x.sum(1, keepdim=True)
    model = Regression()
    training = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    losses = [float(training(x, y)[1]) for _ in range(30)]
    assert training(x, y)[0].dtype == HALF
    assert model.layer.weight.dtype == FLOAT
    assert losses[-1] < 0.05 * losses[0]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(poptorch.Error, match="an entry of fp16"):
        poptorch.autocasting.Policy(["bmm"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(poptorch.Error, match="autocastPolicy"):
        poptorch.Options().Precision.autocastPolicy("half")  # pyright: ignore[reportArgumentType]
    with pytest.raises(poptorch.Error, match="enabled"):
        poptorch.autocast(2)  # pyright: ignore[reportArgumentType]
