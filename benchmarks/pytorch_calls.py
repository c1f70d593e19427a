"""A call of a small PyTorch module, where JAX computes in the thread that asks for it.

By default XLA hands programs for a CPU to another thread, and that takes about as long as a small
program itself. JAX is told otherwise before it computes anything, hence a process of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Row, print_rows, row, rows_of_process


def rows() -> list[Row]:
    """The call with JAX as it is, and where it dispatches nothing."""
    what = "pytorch: inference call of a small MLP / torch eager"
    return [
        row(what, 1.0, *_calls(), pairs=9, times=200),
        *rows_of_process("benchmarks.pytorch_calls", devices=1),
    ]


def _calls() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Of a wrapper, and of PyTorch without gradients."""
    import torch
    from torch import nn

    from ipujax import poptorch

    module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                           nn.Linear(64, 10)).eval()  # fmt: skip
    x = torch.randn(16, 64)
    wrapped = poptorch.inferenceModel(copy.deepcopy(module))

    def eager() -> Any:
        with torch.no_grad():
            return module(x)

    return lambda: wrapped(x), eager


if __name__ == "__main__":
    import jax
    import torch

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    torch.set_num_threads(2)
    torch.manual_seed(0)
    what = "pytorch: the same without jax_cpu_enable_async_dispatch / torch eager"
    print_rows([row(what, 1.0, *_calls(), pairs=9, times=200)])
