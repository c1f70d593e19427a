"""The layer `CPU`: functions that run on the host in the middle of a program."""

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

from ipujax.doors.torch import aval_of_tensor
from ipujax.ground import PyTree
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_operators import (
    define_traced_operator,
    isRunningOnIpu,
    trace_operator,
)

_calls: weakref.WeakValueDictionary[int, CPU] = weakref.WeakValueDictionary()
_numbers = itertools.count()


@check.guard
class CPU:
    """A function that runs on the host whenever the program reaches it; only in inference.

    When a module is traced, the function is called with zeros, for the shapes of its results.

    Args:
      layer_to_call: a function of tensors, or a module, which is not trained any more; it must not
        use tensors of the model that is traced.
      ID: a name.

    Raises:
      Error: no function, or no name.
    """

    def __init__(
        self, layer_to_call: Callable[..., torch.Tensor | Sequence[torch.Tensor]], ID: str
    ):
        check.require_function(layer_to_call, "the layer_to_call of poptorch.CPU")
        if isinstance(layer_to_call, torch.nn.Module):
            layer_to_call.requires_grad_(False)
        self._layer_to_call = layer_to_call
        self._ID = check.require_text(ID, "the ID of poptorch.CPU")
        self._number = next(_numbers)

    def __call__(self, *input: Any, **kwargs: object) -> PyTree:
        """Calls the function: in a trace, as an operator that runs on the host."""
        if not isRunningOnIpu():
            return self._layer_to_call(*input, **kwargs)
        if kwargs:
            raise check.value_error(
                f"poptorch.CPU {self._ID!r} is called with {', '.join(kwargs)} by name",
                "give tensors by position",
            )
        check.require_iterable(input, f"the arguments of poptorch.CPU {self._ID!r}", "tensors")
        with _disable_current_modes():
            zeros = [torch.zeros(tuple(x.shape), dtype=x.dtype) for x in input]
            outputs = self.call_function(zeros)
        _calls[self._number] = self
        sizes = [list(output.shape) for output in outputs]
        results = trace_operator(
            "on_host",
            list(input),
            self._number,
            [size for shape in sizes for size in shape],
            [len(shape) for shape in sizes],
            [_DTYPES.index(output.dtype) for output in outputs],
        )
        return results[0] if self._gives_one else results

    def call_function(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Calls the function, and returns its results as a list."""
        with torch.no_grad():
            outputs = self._layer_to_call(*tensors)
        self._gives_one = isinstance(outputs, torch.Tensor)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


_DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip


def _empty_results(
    inputs: object, number: int, sizes: Sequence[int], ranks: Sequence[int], dtypes: Sequence[int]
) -> list[torch.Tensor]:
    del inputs, number
    remaining_sizes = iter(sizes)
    return [
        torch.empty([next(remaining_sizes) for _ in range(rank)], dtype=_DTYPES[dtype])
        for rank, dtype in zip(ranks, dtypes, strict=True)
    ]


@define_traced_operator(
    "on_host(Tensor[] inputs, int number, int[] sizes, int[] ranks, int[] dtypes) -> Tensor[]",
    _empty_results,
)
def _run_on_host(
    inputs: Sequence[jax.Array],
    number: int,
    sizes: Sequence[int],
    ranks: Sequence[int],
    dtypes: Sequence[int],
) -> list[jax.Array]:
    call = _calls[number]  # as long as the program may run, it is there
    forms = [aval_of_tensor(form) for form in _empty_results(inputs, number, sizes, ranks, dtypes)]

    def call_with_arrays(*arrays: object) -> list[np.ndarray]:
        # JAX must not be called back from here.
        outputs = call.call_function([torch.from_numpy(np.array(array)) for array in arrays])
        return [x.numpy().astype(form.dtype) for x, form in zip(outputs, forms, strict=True)]

    return jax.pure_callback(call_with_arrays, forms, *inputs, vmap_method="sequential")
