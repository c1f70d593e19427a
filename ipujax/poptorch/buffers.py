"""What becomes of a module's buffers: which of them may change, and on which replica."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch
from torch.nn.modules.batchnorm import (
    _NormBase,  # pyright: ignore[reportPrivateUsage] - of batch and instance normalizations
)

from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.capture import Captured
from ipujax.poptorch.forward import written_buffers
from ipujax.poptorch.options import Options

_KINDS = {"_parameters": "Parameter", "_buffers": "Buffer"}


def updatable(options: Options) -> list[str]:
    """The names of the buffers that `copyNamedBuffersToDevice` writes."""
    return options._Popart.options.get("updatableNamedBuffers", [])  # pyright: ignore[reportPrivateUsage]


def check_updatable(module: torch.nn.Module, options: Options) -> None:
    """Refuses names of buffers that a module does not have.

    Raises:
      PopTorchError: (a `ValueError`) there are some.
    """
    buffers = {name for name, _ in module.named_buffers()}
    if unknown := sorted(set(updatable(options)) - buffers):
        raise PopTorchError(
            f"updatableNamedBuffers: the module has no buffer {', '.join(unknown)}",
            fix=f"its buffers are {', '.join(sorted(buffers)) or 'none'}",
        )


def own_buffers(
    module: torch.nn.Module, captured: Captured, options: Options, replicas: int
) -> tuple[str, ...]:
    """The buffers of which each replica is to have its own: those that the module writes to.

    Args:
      module: the user's.
      captured: the same, traced.
      options: the model's.
      replicas: of all processes that run it together.

    Raises:
      PopTorchError: (a `ValueError`) the options want them to be the same on all replicas. That
        says nothing of the statistics of normalizations, as it did not in the original.
    """
    written = written_buffers(captured) if replicas > 1 else ()
    others = [name for name in written if name not in _statistics(module)]
    if others and options.broadcast_buffers:
        raise PopTorchError(
            f"the module writes to its buffers {', '.join(others)}, and PopTorch does not "
            "support broadcasting buffers. If your model is able to tolerate buffers becoming out "
            "of sync between replicas, you can disable buffer broadcasting using "
            "poptorch.Options.broadcastBuffers(False)."
        )
    return written


def _statistics(module: torch.nn.Module) -> set[str]:
    """The names of buffers in which normalizations keep statistics, and count batches."""
    parts = dict(module.named_modules())
    names = [name for name, _ in module.named_buffers()]
    return {name for name in names if isinstance(parts[name.rpartition(".")[0]], _NormBase)}


@contextlib.contextmanager
def kept_tensors(module: torch.nn.Module) -> Generator[None]:
    """In the block a module must keep its tensors; afterwards it has the very ones of before.

    Raises:
      PopTorchError: (a `ValueError`) one was removed, or another one is in its place.
    """
    before = [
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
            _what(_KINDS[kinds[id(held)]], path, name in held)
            for path, held, name, tensor in before
            if held.get(name) is not tensor
        ]
    finally:
        for _, held, name, tensor in before:
            held[name] = tensor
    if wrong:
        raise PopTorchError(wrong[0])


def _what(kind: str, path: str, is_there: bool) -> str:
    if not is_there:
        return f"{kind} {path} is removed from the model when calling the forward method."
    return (
        f"{kind} {path} is reassigned within the model when calling the forward method. This is "
        f"not supported. Consider using self.{path}.copy_(src) to copy data from a source tensor, "
        "where src is the name of the source tensor."
    )
