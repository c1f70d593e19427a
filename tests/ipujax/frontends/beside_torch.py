"""Modules of PyTorch beside what `from_torch` makes of them: values, gradients, buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from ipujax.doors.torch import to_jax
from ipujax.frontends import from_torch

KEY = jax.random.key(5)


class Functions(torch.nn.Module):
    """Some functions of the same tensors; gives all their results."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> list[Any]:
        return [function(*inputs) for function in self.functions]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers that need gradients."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).requires_grad_()


def same_as_torch(module: torch.nn.Module, *inputs: torch.Tensor, limit: float = 2e-5) -> None:
    """Fails unless results, gradients of parameters and inputs, and buffers are PyTorch's.

    Args:
      module: in the mode to compare; it is not changed.
      inputs: those that require gradients are differentiated.
      limit: of the differences, relative to one plus the number.
    """
    model = from_torch(module, tuple(t.detach() for t in inputs))
    eager = copy.deepcopy(module)
    given = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    wanted = [t for t in pytree.tree_leaves(eager(*given)) if isinstance(t, torch.Tensor)]
    parameters = {n: p for n, p in eager.named_parameters() if p.requires_grad}
    sources = [*parameters.values(), *(t for t in given if t.requires_grad)]
    smooth = [i for i, t in enumerate(wanted) if t.requires_grad]
    slopes = [numbers(*wanted[i].shape, seed=i).detach().to(wanted[i].dtype) for i in smooth]
    gradients = torch.autograd.grad(
        [wanted[i] for i in smooth], sources, slopes, allow_unused=True, materialize_grads=True
    ) if smooth else ()  # fmt: skip

    @jax.jit
    def run(variables: Any, inputs: Any) -> Any:
        def function(trained: Any, floats: Any) -> Any:
            values = [floats.get(i, x) for i, x in enumerate(inputs)]
            results, after = model.apply(variables | trained, *values, key=KEY)
            leaves = jax.tree.leaves(results)
            return [leaves[i] for i in smooth], (leaves, after)

        trained = {name: variables[name] for name in parameters}
        floats = {i: x for i, x in enumerate(inputs) if given[i].requires_grad}
        _, back, (leaves, after) = jax.vjp(function, trained, floats, has_aux=True)
        mine, of_inputs = back([to_jax(s) for s in slopes])
        return leaves, [*(mine[n] for n in parameters), *of_inputs.values()], after

    leaves, mine, after = run(model.variables, [to_jax(t) for t in inputs])
    _close(leaves, wanted, "results", limit)
    if smooth:
        _close(mine, gradients, "gradients", limit)
    buffers = dict(eager.named_buffers())
    _close([after[n] for n in buffers], list(buffers.values()), "buffers", limit)


def _close(mine: Any, theirs: Any, what: str, limit: float) -> None:
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        np.testing.assert_allclose(
            np.asarray(one), other.detach().numpy(), limit, limit, err_msg=f"{what} {number}"
        )
