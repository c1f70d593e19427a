"""Hooks around compilation."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402


def test_hooks_are_called_in_order_until_they_are_removed() -> None:
    called: list[str] = []
    handles = [
        poptorch.registerPreCompileHook(lambda: called.append("before")),
        poptorch.registerPreCompileHook(lambda: called.append("before too")),
        poptorch.registerPostCompileHook(lambda: called.append("after")),
    ]

    class Tracing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            called.append("forward")
            return x

    poptorch.inferenceModel(Tracing())(torch.ones(1))
    assert called == ["before", "before too", "forward", "after"]
    for handle in handles:
        handle.remove()
    poptorch.inferenceModel(Tracing())(torch.ones(1))
    assert called[4:] == ["forward"]
    with pytest.raises(RuntimeError, match="must be callable"):
        poptorch.registerPreCompileHook(3)
