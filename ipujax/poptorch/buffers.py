"""The rules for a module's buffers: which may be written, and which differ between replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch
from torch.nn.modules.batchnorm import (
    _NormBase,  # pyright: ignore[reportPrivateUsage] - of batch and instance normalizations
)

from ipujax.doors.torch import ModuleTrace
from ipujax.ground import PopTorchError
from ipujax.poptorch.options import Options
from ipujax.poptorch.poptorch_forward import find_written_buffers

_KINDS = {"_parameters": "Parameter", "_buffers": "Buffer"}


def get_updatable_buffer_names(options: Options) -> list[str]:
    """Returns the names of the buffers that `copyNamedBuffersToDevice` writes."""
    return options._Popart.options.get("updatableNamedBuffers", [])  # pyright: ignore[reportPrivateUsage]


def check_updatable_buffers(module: torch.nn.Module, options: Options) -> None:
    """Checks that a module has the buffers of `Options.updatableNamedBuffers`.

    Raises:
      PopTorchError: (a `ValueError`) the module does not have some of them.
    """
    buffers = {name for name, _ in module.named_buffers()}
    if unknown := sorted(set(get_updatable_buffer_names(options)) - buffers):
        raise PopTorchError(
            f"updatableNamedBuffers: the module has no buffer {', '.join(unknown)}",
            fix=f"its buffers are {', '.join(sorted(buffers)) or 'none'}",
        )


def find_buffers_per_replica(
    module: torch.nn.Module, captured: ModuleTrace, options: Options, replicas: int
) -> tuple[str, ...]:
    """Returns the names of buffers that each replica has for itself: those the module writes to.

    Args:
      module: the user's module.
      captured: the same module, traced.
      options: the model's options.
      replicas: the number of replicas in all processes that run the model together.

    Raises:
      PopTorchError: (a `ValueError`) the options ask for the same buffers on all replicas. The
        statistics of normalizations are excepted, as in the original.
    """
    written_names = find_written_buffers(captured) if replicas > 1 else ()
    other_names = [name for name in written_names if name not in _find_statistics_buffers(module)]
    if other_names and options.broadcast_buffers:
        raise PopTorchError(
            f"the module writes to its buffers {', '.join(other_names)}, and PopTorch does not "
            "support broadcasting buffers. If your model is able to tolerate buffers becoming out "
            "of sync between replicas, you can disable buffer broadcasting using "
            "poptorch.Options.broadcastBuffers(False)."
        )
    return written_names


def _find_statistics_buffers(module: torch.nn.Module) -> set[str]:
    """Returns the names of buffers that hold statistics and batch counts of normalizations."""
    parts = dict(module.named_modules())
    names = [name for name, _ in module.named_buffers()]
    return {name for name in names if isinstance(parts[name.rpartition(".")[0]], _NormBase)}


@contextlib.contextmanager
def preserve_tensors(module: torch.nn.Module) -> Generator[None]:
    """Restores a module's parameters and buffers after the block, and checks that all were kept.

    Raises:
      PopTorchError: (a `ValueError`) one was removed, or another one is in its place.
    """
    saved_tensors = [
        (f"{path}.{name}" if path else name, getattr(part, kind), name, tensor)
        for path, part in module.named_modules()
        for kind in _KINDS
        for name, tensor in getattr(part, kind).items()
    ]
    kinds = {id(getattr(part, kind)): kind for part in module.modules() for kind in _KINDS}
    wrong: list[str] = []
    try:
        yield
        wrong += [
            _describe_lost_tensor(_KINDS[kinds[id(tensor_dict)]], path, name in tensor_dict)
            for path, tensor_dict, name, tensor in saved_tensors
            if tensor_dict.get(name) is not tensor
        ]
    finally:
        for _, held, name, tensor in saved_tensors:
            held[name] = tensor
    if wrong:
        raise PopTorchError(wrong[0])


def _describe_lost_tensor(kind: str, path: str, is_there: bool) -> str:
    if not is_there:
        return f"{kind} {path} is removed from the model when calling the forward method."
    return (
        f"{kind} {path} is reassigned within the model when calling the forward method. This is "
        f"not supported. Consider using self.{path}.copy_(src) to copy data from a source tensor, "
        "where src is the name of the source tensor."
    )
