"""The automatic split of a module into blocks on several IPUs, so that its weights fit best."""

from __future__ import annotations

import itertools

import torch

from ipujax.doors.torch import trace_torch_module
from ipujax.poptorch.blocks import BeginBlock
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_operators import OPERATORS
from ipujax.poptorch.poptorch_weights import suspend_watching


@check.guard
def splitOverIpus(
    model: torch.nn.Module, ipus: int, *args: object, **kwargs: object
) -> torch.nn.Module:
    """Places consecutive parts of a module on IPUs, with blocks that balance parameter memory.

    The parts are those that hold operators, in the order of their first calls. They are cut into
    as many series as there are IPUs so that the most bytes of parameters on one IPU are as few as
    can be. `removeBlocks` takes the blocks away again.

    Args:
      model: a module without blocks.
      ipus: the number of IPUs.
      args: the arguments of a call of the module.
      kwargs: the arguments by name.

    Returns:
      The module.

    Raises:
      Error: (a `ValueError`) the module has too few parts.
      FrontendError: (the same) it cannot be traced.
    """
    check.require_instance(model, torch.nn.Module, "the model", "a torch.nn.Module")
    check.require_integer(ipus, "the number of IPUs", at_least=1)
    with suspend_watching(model):
        graph = trace_torch_module(model, args, kwargs, OPERATORS).graph
    runs = [scope for scope, _ in itertools.groupby(node.scope for node in graph.nodes)]
    parts = [scope for scope in dict.fromkeys(runs) if scope and runs.count(scope) == 1]
    if len(parts) < ipus:
        raise check.value_error(
            f"the model has {len(parts)} parts that are called once, and is to be split over "
            f"{ipus} IPUs",
            "use fewer IPUs, or mark the parts with poptorch.BeginBlock",
        )
    sizes = [_parameter_bytes(model.get_submodule(part)) for part in parts]
    for ipu, first in enumerate(split_into_series(sizes, ipus)):
        BeginBlock(model.get_submodule(parts[first]), ipu_id=ipu)
    return model


def _parameter_bytes(module: torch.nn.Module) -> int:
    parameters = module.parameters(recurse=False)
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def split_into_series(sizes: list[int], count: int) -> list[int]:
    """Returns the starts of consecutive series whose largest sum is least; none is empty."""
    sums = [0, *itertools.accumulate(sizes)]
    # best[series - 1][n]: the least largest sum of the first n numbers, and the last series' start.
    best = [[(float(total), 0) for total in sums]]
    for series_count in range(1, count):
        previous_row = best[-1]
        best.append([
            min(
                ((max(previous_row[k][0], sums[n] - sums[k]), k) for k in range(series_count, n)),
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
