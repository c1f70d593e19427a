"""Horovod's functions for PyTorch tensors, as PopTorch programs use them with `popdist`.

All processes have to call them, in the same order, with tensors of the same shapes and dtypes. They
return new tensors; functions with a final underscore and `broadcast_parameters` change theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch

from ipujax.distribution import host_collectives
from ipujax.doors.torch import to_jax, to_torch
from ipujax.ground import DistributionNotImplementedError
from ipujax.horovod import Adasum as Adasum
from ipujax.horovod import Average as Average
from ipujax.horovod import ReduceOperation
from ipujax.horovod import Sum as Sum
from ipujax.horovod import init as init
from ipujax.horovod import is_homogeneous as is_homogeneous
from ipujax.horovod import local_rank as local_rank
from ipujax.horovod import local_size as local_size
from ipujax.horovod import rank as rank
from ipujax.horovod import shutdown as shutdown
from ipujax.horovod import size as size
from ipujax.strategies import check


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
) -> torch.Tensor:
    """Returns the mean, or the sum, over all processes.

    Args:
      tensor: a tensor of any shape; the mean of integers is of floating point.
      average: False for the sum; an older form of `op`.
      name: does nothing: tensors need no names to be told apart.
      op: `Average` by default, or `Sum`.

    Raises:
      DistributionNotImplementedError: (a `NotImplementedError`) `Adasum`.
      DistributionError: (a `ValueError`) both `average` and `op`.
      DistributionTypeError: (a `TypeError`) no tensor, another operation.
    """
    return grouped_allreduce([tensor], average, name, op)[0]


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
) -> list[torch.Tensor]:
    """Reduces several tensors at once; arguments and errors as of `allreduce`."""
    check.require_text(name, "the name of allreduce", optional=True)
    arrays = [
        _tensor_to_array(tensor, "allreduce")
        for tensor in check.require_sequence(tensors, "tensors")
    ]
    reduce_arrays = (
        host_collectives.average_over_processes
        if _parse_averages(average, op)
        else host_collectives.sum_over_processes
    )
    return list(map(to_torch, _call_with_64_bits(reduce_arrays, arrays)))


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """Concatenates the tensors of all processes along the first axis.

    Args:
      tensor: `[any, ...]`; the first axis may differ from process to process.
      name: does nothing: tensors need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) a tensor without axes.
      DistributionTypeError: (a `TypeError`) no tensor.
    """
    check.require_text(name, "the name of allgather", optional=True)
    array = _tensor_to_array(tensor, "allgather")
    if not array.ndim:
        raise check.value_error("allgather was given a scalar", "give it an axis: x[None]")
    return to_torch(_call_with_64_bits(host_collectives.concatenate_over_processes, array))


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Returns the tensor of one process, on all of them.

    Args:
      tensor: a tensor of any shape.
      root_rank: the index of that process.
      name: does nothing: tensors need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) no such process.
      DistributionTypeError: (a `TypeError`) no tensor.
    """
    check.require_text(name, "the name of broadcast", optional=True)
    return _broadcast_tensors([tensor], root_rank)[0]


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Copies the result of `broadcast` into the tensor itself, and returns it."""
    with torch.no_grad():
        return tensor.copy_(broadcast(tensor, root_rank, name))


def broadcast_parameters(
    params: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], root_rank: int
) -> None:
    """Copies the tensors of one process into those of all processes.

    Args:
      params: `module.state_dict()` or `module.named_parameters()`.
      root_rank: the index of that process.

    Raises:
      DistributionError: (a `ValueError`) no such process.
      DistributionTypeError: (a `TypeError`) values that are no tensors.
    """
    is_dict = isinstance(params, Mapping)
    pairs = (
        params.items() if is_dict else check.require_iterable(params, "params", "names and tensors")
    )
    tensors = [tensor for _, tensor in sorted(pairs, key=lambda pair: pair[0])]
    with torch.no_grad():
        for tensor, value in zip(tensors, _broadcast_tensors(tensors, root_rank), strict=True):
            tensor.copy_(value)


def _parse_averages(average: bool | None, op: ReduceOperation | None) -> bool:
    check.require_optional_flag(average, "average")
    check.require_instance(op, ReduceOperation, "op of allreduce", optional=True)
    if average is not None and op is not None:
        raise check.value_error("allreduce was given both average and op", "leave average out")
    if op is Adasum:
        raise DistributionNotImplementedError(
            "The Adasum reduction is not implemented, nor was it in the original",
            fix="use Average or Sum",
        )
    return op is not Sum and average is not False


def _broadcast_tensors(tensors: Sequence[torch.Tensor], root: int) -> list[torch.Tensor]:
    if check.require_integer(root, "root_rank", at_least=0) >= size():
        raise check.value_error(f"root_rank is {root}", f"give a number below {size()}")
    arrays = [_tensor_to_array(tensor, "broadcast") for tensor in tensors]
    return list(
        map(
            to_torch,
            _call_with_64_bits(
                lambda arrays: host_collectives.broadcast_from_process(root, arrays), arrays
            ),
        )
    )


def _call_with_64_bits(collective: Callable[[Any], object], arrays: Any) -> Any:
    """Calls a collective with JAX's 64-bit types enabled: no value is converted to 32 bits."""
    with jax.enable_x64(True):
        return collective(arrays)


def _tensor_to_array(tensor: torch.Tensor, function_name: str) -> np.ndarray:
    description = f"a tensor of {function_name}"
    detached_tensor = check.require_instance(
        tensor, torch.Tensor, description, "a torch.Tensor"
    ).detach()
    # Numbers of 64 bits must not be converted by JAX, and NumPy has dtypes for all of them.
    return (
        detached_tensor.numpy(force=True)
        if detached_tensor.dtype.itemsize >= 8
        else np.asarray(to_jax(detached_tensor))
    )
