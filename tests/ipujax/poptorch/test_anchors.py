"""Anchors: gradients, updated weights and other values of the graph."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from tests.ipujax.poptorch.modules import Regression, batch  # noqa: E402

Mode = poptorch.OutputMode


def eager_gradients(module: Any, x: Any, y: Any, parts: int) -> list[Any]:
    """The gradient of the last bias of each micro-batch, without any update."""
    found: list[Any] = []
    for one, other in zip(x.chunk(parts), y.chunk(parts), strict=True):
        loss = module(one, other)[1]
        found += torch.autograd.grad(loss, [module.last.bias])
    return found


def trained(options: Any, module: Any) -> Any:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return poptorch.trainingModel(module, options, optimizer)


@pytest.mark.exhaustive
def test_gradients_and_updated_weights_are_kept() -> None:
    module, (x, y) = Regression(), batch()
    expected = eager_gradients(copy.deepcopy(module), x, y, 1)[0]
    before = module.last.bias.detach().clone()
    options = poptorch.Options()
    options.anchorTensor("gradient", "Gradient___last.bias")
    options.anchorTensor("weights", "UpdatedVar___last.bias")
    model = trained(options, module)
    model(x, y)
    torch.testing.assert_close(model.getAnchoredTensor("gradient"), expected)
    updated = before - 0.1 * expected
    torch.testing.assert_close(model.getAnchoredTensor("weights"), updated)
    torch.testing.assert_close(module.last.bias.detach(), updated)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", [Mode.All, Mode.Final, Mode.Sum, Mode.EveryN])
def test_gradients_of_micro_batches_come_back_by_their_own_mode(mode: Any) -> None:
    module, (x, y) = Regression(), batch(8)
    each = eager_gradients(copy.deepcopy(module), x, y, 4)
    expected = {
        Mode.All: torch.cat(each),
        Mode.Final: each[3],
        Mode.Sum: sum(each),
        Mode.EveryN: torch.cat([each[1], each[3]]),
    }[mode]
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    options.anchorTensor("gradient", "Gradient___last.bias", mode, 2)
    model = trained(options, module)
    model(x, y)
    torch.testing.assert_close(model.getAnchoredTensor("gradient"), expected)


def test_every_value_that_has_a_name_can_be_kept() -> None:
    x, y = batch()
    module = Regression()
    first = trained(poptorch.Options(), module)
    with pytest.raises(poptorch.Error, match="has not been compiled"):
        first.getTensorNames()
    first(x, y)
    names = first.getTensorNames()
    assert {"input", "input.1", "loss", "last.bias", "Gradient___last.bias"} <= {*names}
    first.destroy()
    inner = next(name for name in names if name.startswith("first/"))
    expected = module.first(x).detach()
    options = poptorch.Options().anchorTensor("hidden", inner).anchorTensor("loss", "loss")
    again = trained(options, module)
    loss = again(x, y)[1]
    torch.testing.assert_close(again.getAnchoredTensor("hidden"), expected)
    assert again.getAnchoredTensor("loss") == loss
    with pytest.raises(poptorch.Error, match="no anchor 'other'"):
        again.getAnchoredTensor("other")


def test_an_anchor_of_nothing_is_refused() -> None:
    options = poptorch.Options().anchorTensor("gradient", "Gradient___middle.bias")
    with pytest.raises(
        poptorch.Error, match=r"'Gradient___middle\.bias'\): the model has no value"
    ):
        trained(options, Regression())(*batch())
