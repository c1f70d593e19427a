"""`CPU`: functions that run on the host in the middle of a program."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch.utils._python_dispatch import (
    _disable_current_modes,  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]
)

from ipujax.frontends.pytorch.arrays import aval_of
from ipujax.poptorch.checks import check
from ipujax.poptorch.operators import isRunningOnIpu, traced, traced_operator

_calls: weakref.WeakValueDictionary[int, CPU] = weakref.WeakValueDictionary()
_numbers = itertools.count()


@check.guard
class CPU:
    """A function that the host computes whenever the program gets to it; only in inference.

    Where a module is traced, the function is called with zeros to see what it gives.

    Args:
      layer_to_call: a function of tensors, or a module, which is not trained any more; it must not
        use tensors of the model that is traced.
      ID: a name.

    Raises:
      Error: no function, or no name.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str):
        check.function(layer_to_call, "the layer_to_call of poptorch.CPU")
        if isinstance(layer_to_call, torch.nn.Module):
            layer_to_call.requires_grad_(False)
        self._layer_to_call = layer_to_call
        self._ID = check.text(ID, "the ID of poptorch.CPU")
        self._number = next(_numbers)

    def __call__(self, *input: Any, **kwargs: Any) -> Any:
        """What the function gives for these tensors."""
        if not isRunningOnIpu():
            return self._layer_to_call(*input, **kwargs)
        if kwargs:
            raise check.refuse(
                f"poptorch.CPU {self._ID!r} is called with {', '.join(kwargs)} by name",
                "give tensors by position",
            )
        check.iterable(input, f"the arguments of poptorch.CPU {self._ID!r}", "tensors")
        with _disable_current_modes():
            zeros = [torch.zeros(tuple(x.shape), dtype=x.dtype) for x in input]
            outputs = self.run(zeros)
        _calls[self._number] = self
        sizes = [list(output.shape) for output in outputs]
        made = traced(
            "on_host",
            list(input),
            self._number,
            [size for shape in sizes for size in shape],
            [len(shape) for shape in sizes],
            [_DTYPES.index(output.dtype) for output in outputs],
        )
        return made[0] if self._gives_one else made

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the function gives, as a list."""
        with torch.no_grad():
            outputs = self._layer_to_call(*tensors)
        self._gives_one = isinstance(outputs, torch.Tensor)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


_DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip


def _forms(
    inputs: Any, number: int, sizes: Sequence[int], ranks: Sequence[int], dtypes: Sequence[int]
) -> list[torch.Tensor]:
    del inputs, number
    left = iter(sizes)
    return [
        torch.empty([next(left) for _ in range(rank)], dtype=_DTYPES[dtype])
        for rank, dtype in zip(ranks, dtypes, strict=True)
    ]


@traced_operator(
    "on_host(Tensor[] inputs, int number, int[] sizes, int[] ranks, int[] dtypes) -> Tensor[]",
    _forms,
)
def _on_host(
    inputs: Sequence[jax.Array],
    number: int,
    sizes: Sequence[int],
    ranks: Sequence[int],
    dtypes: Sequence[int],
) -> list[jax.Array]:
    call = _calls[number]  # as long as the program may run, it is there
    forms = [aval_of(form) for form in _forms(inputs, number, sizes, ranks, dtypes)]

    def run(*arrays: Any) -> list[Any]:
        # JAX must not be called back from here.
        outputs = call.run([torch.from_numpy(np.array(array)) for array in arrays])
        return [x.numpy().astype(form.dtype) for x, form in zip(outputs, forms, strict=True)]

    return jax.pure_callback(run, forms, *inputs, vmap_method="sequential")
