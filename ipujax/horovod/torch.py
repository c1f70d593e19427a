"""Horovod's functions of PyTorch's tensors, as programs of PopTorch use them beside `popdist`.

All processes have to call them, in the same order, with tensors of the same shapes and dtypes. What
they give is new, but for names that end in an underscore, and `broadcast_parameters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch

from ipujax.distribution import collectives
from ipujax.distribution.strategy import check
from ipujax.errors import DistributionNotImplementedError
from ipujax.frontends.pytorch.arrays import to_jax, to_torch
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


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOperation | None = None,
) -> torch.Tensor:
    """The mean, or the sum, over all processes.

    Args:
      tensor: of any shape; the mean of integers is of floating point.
      average: False for the sum; an older name of what `op` says.
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
    """`allreduce` of several tensors at once; arguments and errors as there."""
    check.text(name, "the name of allreduce", optional=True)
    arrays = [_array(tensor, "allreduce") for tensor in check.sequence(tensors, "tensors")]
    whole = collectives.averaged if _averages(average, op) else collectives.summed
    return list(map(to_torch, _exact(whole, arrays)))


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """The tensors of all processes, one after the other along the first axis.

    Args:
      tensor: `[any, ...]`; the first axis may differ from process to process.
      name: does nothing: tensors need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) a tensor without axes.
      DistributionTypeError: (a `TypeError`) no tensor.
    """
    check.text(name, "the name of allgather", optional=True)
    array = _array(tensor, "allgather")
    if not array.ndim:
        raise check.refuse("allgather was given a scalar", "give it an axis: x[None]")
    return to_torch(_exact(collectives.gathered, array))


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """What one process has, on all of them.

    Args:
      tensor: of any shape.
      root_rank: which process.
      name: does nothing: tensors need no names to be told apart.

    Raises:
      DistributionError: (a `ValueError`) no such process.
      DistributionTypeError: (a `TypeError`) no tensor.
    """
    check.text(name, "the name of broadcast", optional=True)
    return _sent([tensor], root_rank)[0]


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """`broadcast` into the tensor itself, which is given back."""
    with torch.no_grad():
        return tensor.copy_(broadcast(tensor, root_rank, name))


def broadcast_parameters(
    params: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]], root_rank: int
) -> None:
    """Gives tensors the values that one process has.

    Args:
      params: `module.state_dict()` or `module.named_parameters()`.
      root_rank: which process.

    Raises:
      DistributionError: (a `ValueError`) no such process.
      DistributionTypeError: (a `TypeError`) values that are no tensors.
    """
    is_dict = isinstance(params, Mapping)
    pairs = params.items() if is_dict else check.iterable(params, "params", "names and tensors")
    tensors = [tensor for _, tensor in sorted(pairs, key=lambda pair: pair[0])]
    with torch.no_grad():
        for tensor, value in zip(tensors, _sent(tensors, root_rank), strict=True):
            tensor.copy_(value)


def _averages(average: bool | None, op: ReduceOperation | None) -> bool:
    check.optional_flag(average, "average")
    check.instance(op, ReduceOperation, "op of allreduce", optional=True)
    if average is not None and op is not None:
        raise check.refuse("allreduce was given both average and op", "leave average out")
    if op is Adasum:
        raise DistributionNotImplementedError(
            "The Adasum reduction is not implemented, nor was it in the original",
            fix="use Average or Sum",
        )
    return op is not Sum and average is not False


def _sent(tensors: Sequence[torch.Tensor], root: int) -> list[torch.Tensor]:
    if check.integer(root, "root_rank", at_least=0) >= size():
        raise check.refuse(f"root_rank is {root}", f"give a number below {size()}")
    arrays = [_array(tensor, "broadcast") for tensor in tensors]
    return list(map(to_torch, _exact(lambda arrays: collectives.sent_by(root, arrays), arrays)))


def _exact(whole: Callable[[Any], Any], arrays: Any) -> Any:
    """What a collective gives, without JAX's shortening of numbers of 64 bits."""
    with jax.enable_x64(True):
        return whole(arrays)


def _array(tensor: torch.Tensor, name: str) -> np.ndarray[Any, Any]:
    what = f"a tensor of {name}"
    own = check.instance(tensor, torch.Tensor, what, "a torch.Tensor").detach()
    # Numbers of 64 bits stay what they are, and NumPy knows all of them.
    return own.numpy(force=True) if own.dtype.itemsize >= 8 else np.asarray(to_jax(own))
