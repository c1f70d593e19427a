"""The marking of a loss by `identity_loss`, and the search for the loss of a module's graph."""

from __future__ import annotations

from typing import Any

import torch

from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.doors.torch import differentiable_inputs
from ipujax.ground import PopTorchError
from ipujax.poptorch.enums import ReductionType
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_operators import (
    define_traced_operator,
    isRunningOnIpu,
    qualify_operator_name,
    trace_operator,
)

_IDENTITY = qualify_operator_name("identity_loss")


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
    check.require_instance(x, torch.Tensor, "an argument of identity_loss", "a torch.Tensor")
    check.require_one_of(reduction, _REDUCTIONS, "the reduction of identity_loss")
    number = int(_REDUCTIONS[reduction])
    return (
        trace_operator("identity_loss", x, number)
        if isRunningOnIpu()
        else _reduce_elements(x, number)
    )


_REDUCTIONS = {
    "sum": ReductionType.Sum,
    "mean": ReductionType.Mean,
    "none": ReductionType.NoReduction,
}


def _reduce_elements(x: Any, reduction: int) -> Any:
    """Reduces the elements of a tensor or an array to their sum or mean."""
    if reduction == ReductionType.NoReduction:
        return x
    return x.mean() if reduction == ReductionType.Mean else x.sum()


define_traced_operator(
    "identity_loss(Tensor x, int reduction) -> Tensor",
    lambda x, reduction: _reduce_elements(torch.empty_like(x), reduction),
)(_reduce_elements)


def find_loss(graph: Graph, module: torch.nn.Module) -> str:
    """Finds the loss of a graph: what `identity_loss` marks, or a loss function's result.

    If there are several, all but one must be parts of that one; if there are none, the last scalar
    among the outputs is the loss.

    Raises:
      PopTorchError: (a `ValueError`) there is no loss, or none that all others are parts of.
    """
    final = _find_final_losses(graph)
    if len(final) > 1:
        descriptions = ", ".join(f"{node.operator} ({node.where})" for node in final)
        raise PopTorchError(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap "
            f"final graph loss in poptorch.identity_loss. They are {descriptions}",
            fix="poptorch.identity_loss(loss + other, reduction='mean')",
        )
    if final:
        return _find_loss_behind_functions(graph, final[0].results[0])
    scalars = [o for o in graph.outputs if isinstance(o, Ref) and _is_scalar_value(graph, o.name)]
    if scalars:
        return scalars[-1].name
    raise PopTorchError(
        f"Couldn't find a loss in graph! None of the operators of module {type(module).__name__} "
        "is a loss function, and no output is marked as the loss or a scalar",
        fix="compute a loss such as torch.nn.CrossEntropyLoss() in forward and return it, or mark "
        "it by poptorch.identity_loss(value, reduction='mean')",
    )


def _find_final_losses(graph: Graph) -> list[Node]:
    """Returns the losses that are no parts of others, the last one first."""
    parts: set[str] = set()  # the values that losses depend on
    final: list[Node] = []
    for node in reversed(graph.nodes):
        is_part, is_loss = not parts.isdisjoint(node.results), "_loss" in node.operator
        if is_loss and not is_part:
            final.append(node)
        if is_loss or is_part:
            parts |= node.reads
    return final


def _find_loss_behind_functions(graph: Graph, loss: str) -> str:
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
            and _is_scalar_value(graph, node.results[0])
        ):
            loss, results_list = node.results[0], None
    return loss


def _is_scalar_value(graph: Graph, name: str) -> bool:
    avals = [node.avals[0] for node in graph.nodes if node.results[:1] == (name,)]
    return bool(avals) and avals[-1] is not None and avals[-1].shape == ()
