"""`identity_loss`, which marks a loss, and what finds the loss of a module's graph."""

from __future__ import annotations

from typing import Any

import torch

from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.backward import differentiable_inputs
from ipujax.poptorch.checks import check
from ipujax.poptorch.enums import ReductionType
from ipujax.poptorch.operators import isRunningOnIpu, operator_name, traced, traced_operator

_IDENTITY = operator_name("identity_loss")


@check.guard
def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Marks a value as the loss that training minimizes, or as a part of it.

    Args:
      x: the value.
      reduction: "sum", "mean" or "none" of its elements. Gradients of micro-batches are averaged
        in any case, unless `Options.Training.accumulationAndReplicationReductionType` says `Sum`.

    Raises:
      Error: another reduction, or no tensor.
    """
    check.instance(x, torch.Tensor, "an argument of identity_loss", "a torch.Tensor")
    check.one_of(reduction, _REDUCTIONS, "the reduction of identity_loss")
    number = int(_REDUCTIONS[reduction])
    return traced("identity_loss", x, number) if isRunningOnIpu() else _reduced(x, number)


_REDUCTIONS = {
    "sum": ReductionType.Sum,
    "mean": ReductionType.Mean,
    "none": ReductionType.NoReduction,
}


def _reduced(x: Any, reduction: int) -> Any:
    """What becomes of a tensor, or of an array."""
    if reduction == ReductionType.NoReduction:
        return x
    return x.mean() if reduction == ReductionType.Mean else x.sum()


traced_operator(
    "identity_loss(Tensor x, int reduction) -> Tensor",
    lambda x, reduction: _reduced(torch.empty_like(x), reduction),
)(_reduced)


def loss_of(graph: Graph, module: torch.nn.Module) -> str:
    """The name of a module's loss: what `identity_loss` marks, or the result of a loss function.

    Of several, all but one must be parts of that one; without any, it is the last scalar among the
    outputs.

    Raises:
      PopTorchError: (a `ValueError`) there is none, or none that all others are parts of.
    """
    final = _final_losses(graph)
    if len(final) > 1:
        listed = ", ".join(f"{node.operator} ({node.where})" for node in final)
        raise PopTorchError(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap "
            f"final graph loss in poptorch.identity_loss. They are {listed}",
            fix="poptorch.identity_loss(loss + other, reduction='mean')",
        )
    if final:
        return _follow_functions(graph, final[0].results[0])
    scalars = [o for o in graph.outputs if isinstance(o, Ref) and _is_scalar(graph, o.name)]
    if scalars:
        return scalars[-1].name
    raise PopTorchError(
        f"Couldn't find a loss in graph! None of the operators of module {type(module).__name__} "
        "is a loss function, and no output is marked as the loss or a scalar",
        fix="compute a loss such as torch.nn.CrossEntropyLoss() in forward and return it, or mark "
        "it by poptorch.identity_loss(value, reduction='mean')",
    )


def _final_losses(graph: Graph) -> list[Node]:
    """The losses that are no parts of others, the last one first."""
    parts: set[str] = set()  # what losses are made of
    final: list[Node] = []
    for node in reversed(graph.nodes):
        is_part, is_loss = not parts.isdisjoint(node.results), "_loss" in node.operator
        if is_loss and not is_part:
            final.append(node)
        if is_loss or is_part:
            parts |= node.reads
    return final


def _follow_functions(graph: Graph, loss: str) -> str:
    """Returns the loss behind the functions of the user's that it passes, hooks among them.

    Their operator gives a list, from which others take the results.
    """
    results_list: str | None = None
    for node in graph.nodes:
        if Ref(loss) in differentiable_inputs(node):
            results_list = node.results[0]
        elif (
            results_list is not None
            and node.operator == "getitem"
            and node.args[0] == Ref(results_list)
            and _is_scalar(graph, node.results[0])
        ):
            loss, results_list = node.results[0], None
    return loss


def _is_scalar(graph: Graph, name: str) -> bool:
    avals = [node.avals[0] for node in graph.nodes if node.results[:1] == (name,)]
    return bool(avals) and avals[-1] is not None and avals[-1].shape == ()
