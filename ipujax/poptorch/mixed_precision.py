"""Products of float16 and float32 in a trace: of the dtype of what they are applied to.

PyTorch refuses these. PopTorch converts parameters for the operation, so that those in float32 can
train a model that computes in float16, and the other way round. Elementwise operators are as in
PyTorch, where float32 wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

Operands = tuple[tuple[Any, ...], dict[str, Any]]

_MIXED = (torch.float16, torch.float32)


def _products() -> Iterator[Callable[..., Any]]:
    yield from (F.linear, F.bilinear)
    for name in ("conv1d", "conv2d", "conv3d"):
        yield getattr(F, name)
        yield getattr(F, name.replace("conv", "conv_transpose"))
    for name in ("matmul", "mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm"):
        yield getattr(torch, name)
        yield getattr(torch.Tensor, name)
    yield torch.Tensor.__matmul__


_PRODUCTS = frozenset(_products())


class MixedPrecision(TorchFunctionMode):
    """While it is active, operands of products get the dtype of the first one."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Calls a function of PyTorch, with converted operands if it is a product."""
        operands = tuple(args), dict(kwargs or {})
        args, named = _of_one_dtype(operands) if func in _PRODUCTS else operands
        return func(*args, **named)


def _of_one_dtype(operands: Operands) -> Operands:
    mixed = [leaf.dtype for leaf in pytree.tree_leaves(operands) if _is_mixed(leaf)]
    if len(set(mixed)) < 2:
        return operands  # as they are: a conversion to the same dtype would be in the graph, too
    wanted = mixed[0]
    return pytree.tree_map(lambda leaf: leaf.to(wanted) if _is_mixed(leaf) else leaf, operands)


def _is_mixed(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in _MIXED
