"""The conversion of operands of matmuls and convolutions that mix float16 and float32.

PyTorch refuses mixed operands. PopTorch converts them to the dtype of the first one, so that
parameters in float32 can train a model that computes in float16, and the other way round.
Elementwise operators are as in PyTorch, where the result is float32.
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


def _iterate_product_functions() -> Iterator[Callable[..., object]]:
    yield from (F.linear, F.bilinear)
    for name in ("conv1d", "conv2d", "conv3d"):
        yield getattr(F, name)
        yield getattr(F, name.replace("conv", "conv_transpose"))
    for name in ("matmul", "mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm"):
        yield getattr(torch, name)
        yield getattr(torch.Tensor, name)
    yield torch.Tensor.__matmul__


_PRODUCTS = frozenset(_iterate_product_functions())


class MixedPrecision(TorchFunctionMode):
    """A mode in which the operands of products get the dtype of the first one."""

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Calls a function of PyTorch, with converted operands if it is a product."""
        operands = tuple(args), dict(kwargs or {})
        args, keywords = _convert_to_first_dtype(operands) if func in _PRODUCTS else operands
        return func(*args, **keywords)


def _convert_to_first_dtype(operands: Operands) -> Operands:
    dtypes = [
        leaf.dtype for leaf in pytree.tree_leaves(operands) if _is_mixed_precision_tensor(leaf)
    ]
    if len(set(dtypes)) < 2:
        return operands  # as they are: a conversion to the same dtype would be in the graph, too
    dtype = dtypes[0]
    return pytree.tree_map(
        lambda leaf: leaf.to(dtype) if _is_mixed_precision_tensor(leaf) else leaf, operands
    )


def _is_mixed_precision_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in _MIXED
