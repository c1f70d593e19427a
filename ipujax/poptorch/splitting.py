"""Blocks that nobody has written: a module's parts over IPUs, so that its weights fit best."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ipujax.frontends.pytorch.capture import captured
from ipujax.poptorch.blocks import BeginBlock
from ipujax.poptorch.checks import check
from ipujax.poptorch.operators import OPERATORS
from ipujax.poptorch.weights import unwatched


@check.guard
def splitOverIpus(model: torch.nn.Module, ipus: int, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Has a block begin in front of some of a module's parts, one for each IPU, in order.

    The parts are those that hold operators, in the order of their first calls. They are cut into
    as many series as there are IPUs so that the most bytes of parameters on one IPU are as few as
    can be. `removeBlocks` takes the blocks away again.

    Args:
      model: without blocks of its own.
      ipus: how many.
      args: of a call of the module.
      kwargs: the same.

    Returns:
      The module.

    Raises:
      Error: (a `ValueError`) the module has too few parts.
      FrontendError: (the same) it cannot be traced.
    """
    check.instance(model, torch.nn.Module, "the model", "a torch.nn.Module")
    check.integer(ipus, "the number of IPUs", at_least=1)
    with unwatched(model):
        graph = captured(model, args, kwargs, OPERATORS).graph
    runs = [scope for scope, _ in itertools.groupby(node.scope for node in graph.nodes)]
    parts = [scope for scope in dict.fromkeys(runs) if scope and runs.count(scope) == 1]
    if len(parts) < ipus:
        raise check.refuse(
            f"the model has {len(parts)} parts that are called once, and is to be split over "
            f"{ipus} IPUs",
            "use fewer IPUs, or mark the parts with poptorch.BeginBlock",
        )
    sizes = [_bytes_of(model.get_submodule(part)) for part in parts]
    for ipu, first in enumerate(first_of_series(sizes, ipus)):
        BeginBlock(model.get_submodule(parts[first]), ipu_id=ipu)
    return model


def _bytes_of(module: torch.nn.Module) -> int:
    own = module.parameters(recurse=False)
    return sum(parameter.numel() * parameter.element_size() for parameter in own)


def first_of_series(sizes: list[int], count: int) -> list[int]:
    """Where series of numbers begin whose largest sum is as small as can be; none is empty."""
    sums = [0, *itertools.accumulate(sizes)]
    # For so many series, of the first so many numbers: the largest sum, and where the last begins.
    best = [[(float(total), 0) for total in sums]]
    for used in range(1, count):
        before = best[-1]
        best.append([
            min(
                ((max(before[k][0], sums[n] - sums[k]), k) for k in range(used, n)),
                default=(float("inf"), 0),
            )
            for n in range(len(sums))
        ])  # fmt: skip
    firsts: list[int] = []
    end = len(sizes)
    for row in reversed(best):
        end = row[end][1]
        firsts.append(end)
    return firsts[::-1]
