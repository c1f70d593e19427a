"""What a wrapped module is trained for, and what is called around its compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from ipujax import poptorch  # noqa: E402
from ipujax.doors.torch import trace_torch_module  # noqa: E402
from ipujax.poptorch.loss import find_loss  # noqa: E402
from ipujax.poptorch.poptorch_operators import OPERATORS  # noqa: E402
from tests.ipujax.poptorch.test_ops import Applied, X  # noqa: E402


def found(function: Callable[..., Any]) -> str:
    """The operator whose result is the loss."""
    module = Applied(lambda module, x: function(module.layer(x)))
    graph = trace_torch_module(module, (X,), None, OPERATORS).graph
    loss = find_loss(graph, module)
    return next(node.operator for node in graph.nodes if loss in node.results)


def test_a_loss_function_gives_the_loss() -> None:
    operator = found(lambda x: (x, F.mse_loss(x, x + 1, reduction="sum") * 2))
    assert operator == "aten.mse_loss.default"


def test_parts_of_a_marked_loss_are_none() -> None:
    def function(x: Any) -> Any:
        both = F.mse_loss(x, x + 1) + poptorch.identity_loss(x, "none")
        return poptorch.identity_loss(both, "sum"), x

    operator = found(function)
    assert "identity_loss" in operator


def test_several_losses_must_become_one() -> None:
    message = "Multiple independent losses found in graph"
    with pytest.raises(poptorch.Error, match=message):
        found(lambda x: F.mse_loss(x, x + 1) + F.l1_loss(x, x + 2))


def test_a_module_without_a_loss() -> None:
    assert found(lambda x: x.sum()) == "aten.sum.default"
    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph!"):
        found(lambda x: x + 1)


def test_hooks_are_called_around_compilations() -> None:
    calls: list[str] = []
    handles = [
        poptorch.registerPreCompileHook(lambda: calls.append("first")),
        poptorch.registerPreCompileHook(lambda: calls.append("second")),
        poptorch.registerPostCompileHook(lambda: calls.append("after")),
    ]
    module = Applied(lambda _, x: calls.append("traced") or x + 1)
    inference = poptorch.inferenceModel(module)
    inference(X)
    inference(X)
    assert calls == ["first", "second", "traced", "after"]
    for handle in handles:
        handle.remove()
    poptorch.inferenceModel(module)(X)
    assert calls == ["first", "second", "traced", "after", "traced"]
    with pytest.raises(RuntimeError, match="must be callable"):
        poptorch.registerPostCompileHook(3)  # pyright: ignore[reportArgumentType]
