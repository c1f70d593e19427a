"""Float16 beside float32: products have the dtype of what they are applied to."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `torch` is not installed")

from ipujax import poptorch  # noqa: E402

HALF, SINGLE = torch.float16, torch.float32


class Layers(torch.nn.Module):
    """A convolution, a linear layer, and a product with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.linear = torch.nn.Conv1d(2, 3, 2), torch.nn.Linear(3, 4)
        self.matrix = torch.nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Any) -> Any:
        y = self.linear(self.convolution(x).transpose(1, 2))
        return (y @ self.matrix, torch.matmul(y, self.matrix), y + self.linear.bias)


@pytest.mark.parametrize(("weights", "inputs"), [(SINGLE, HALF), (HALF, SINGLE)])
def test_products_have_the_dtype_of_what_they_are_applied_to(weights: Any, inputs: Any) -> None:
    torch.manual_seed(0)
    module, x = Layers().to(weights), torch.randn(5, 2, 4, dtype=inputs)
    found = poptorch.inferenceModel(module)(x)
    expected = module.float()(x.float())
    assert [y.dtype for y in found] == [inputs, inputs, SINGLE]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.float(), other, rtol=1e-2, atol=1e-2)


def test_weights_in_float32_train_a_model_in_float16() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8, 4), torch.randn(8, 2)

    class Regression(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x: Any, y: Any) -> Any:
            return torch.nn.functional.mse_loss(self.layer(x), y)

    module = Regression()
    eager = Regression()
    eager.load_state_dict(module.state_dict())
    model = poptorch.trainingModel(module, None, torch.optim.SGD(module.parameters(), lr=0.1))
    plain = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        assert model(x.half(), y.half()).dtype == HALF
        plain.zero_grad()
        eager(x, y).backward()
        plain.step()
    assert module.layer.weight.dtype == SINGLE
    torch.testing.assert_close(module.layer.weight, eager.layer.weight, rtol=1e-2, atol=1e-2)
