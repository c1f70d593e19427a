"""The anchors of a program: values of a model's graph that are kept for the user after a call."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ipujax.doors.graphs import FINAL_SCALE, GRADIENT, UPDATED
from ipujax.doors.torch import ModuleTrace, to_torch
from ipujax.ground import PopTorchError
from ipujax.poptorch.batch_split import BatchSplit
from ipujax.poptorch.enums import OutputMode
from ipujax.poptorch.options import Options
from ipujax.poptorch.poptorch_log import logger


@dc.dataclass(frozen=True)
class Anchors:
    """The values that a program keeps for the user.

    Attributes:
      names: the user's names of the returned values: values of the graph, then gradients.
      values: the names of those values in the graph.
      gradients: the variables whose gradients are returned.
      updated: the variables whose values after a call are kept, by the user's names.
      modes: the output mode and period of each of `names`; None for the mode of the outputs.
    """

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    updated: Mapping[str, str] = dc.field(default_factory=dict[str, str])
    modes: tuple[tuple[OutputMode | None, int], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def combine_anchor_results(
        self, results: Sequence[np.ndarray], batch_split: BatchSplit, mode: OutputMode
    ) -> dict[str, torch.Tensor]:
        """Combines the results of micro-batches to the anchors' values, by the user's names.

        Args:
          results: the anchors' values of each micro-batch.
          batch_split: the micro-batches of a call.
          mode: the mode of the outputs.
        """
        anchor_results = zip(self.names, self.modes, results, strict=True)
        return {
            name: to_torch(batch_split.combine_micro_batches(leaf, anchor_mode or mode, period))
            for name, (anchor_mode, period), leaf in anchor_results
        }


def choose_anchors(module: ModuleTrace, loss: str | None, options: Options) -> Anchors:
    """Finds the values of a module that the options anchor.

    Args:
      module: the traced module.
      loss: the name of its loss; None in inference.
      options: the options with their anchors.

    Raises:
      PopTorchError: (a `ValueError`) the module has no value of a name.
    """
    if not options.anchored_tensors:
        return Anchors()
    graph_names = list_anchor_names(module, loss)
    chosen: dict[str, tuple[str, OutputMode | None, int]] = {}
    for short, (long, is_default, mode, period) in options.anchored_tensors.items():
        tensor_name = next(
            (n for n in (long, long.replace("___model.", "___")) if n in graph_names), None
        )
        if tensor_name is None:
            raise PopTorchError(
                f"anchorTensor({short!r}, {long!r}): the model has no value of this name",
                fix="choose one of getTensorNames(), of the model without this anchor",
            )
        chosen[short] = tensor_name, None if is_default else mode, period
        if not is_default:
            logger.debug("Anchor %s %s/%d", long, _LOGGED[mode], period)
    updated = {
        short: anchor[0] for short, anchor in chosen.items() if anchor[0].startswith(UPDATED)
    }
    returned = {short: one for short, one in chosen.items() if short not in updated}
    order = sorted(returned, key=lambda short: returned[short][0].startswith(GRADIENT))
    gradients = [n for n in order if returned[n][0].startswith(GRADIENT)]
    return Anchors(
        tuple(order),
        tuple(graph_names[returned[short][0]] for short in order if short not in gradients),
        tuple(graph_names[returned[short][0]] for short in gradients),
        {short: graph_names[name] for short, name in updated.items()},
        tuple(returned[short][1:] for short in order),
    )


_LOGGED: dict[object, str] = {
    OutputMode.All: "ALL", OutputMode.EveryN: "EVERYN", OutputMode.Final: "FINAL",
    OutputMode.Sum: "Sum",
}  # fmt: skip


def list_anchor_names(module: ModuleTrace, loss: str | None) -> dict[str, str]:
    """Lists the values of a module that can be anchored, by the names that the user gives them.

    Inputs are `input`, `input.1`, ..., the parameters and buffers have their own names, the results
    of operators are `path.of.the.module/name`. In training there are `loss`, and for each parameter
    `Gradient___path`, as a micro-batch gives it, and `UpdatedVar___path`, after a call; and
    `finalLossScale`, by which the loss is multiplied before it is differentiated.

    Args:
      module: traced.
      loss: the name of its loss; None in inference.
    """
    names = {f"input.{i}" if i else "input": n for i, n in enumerate(module.inputs) if n}
    names |= {name: graph_names[0] for name, graph_names in module.names.items()}
    for node in module.graph.nodes:
        if isinstance(node.avals[0], (list, tuple)) or node.avals[0] is None:
            continue
        names[f"{node.scope}/{node.results[0]}".lstrip("/")] = node.results[0]
    if loss is not None:
        names |= {"loss": loss, FINAL_SCALE: FINAL_SCALE}
        names |= {f"{GRADIENT}{name}": name for name in module.trainable}
        names |= {f"{UPDATED}{name}": name for name in module.trainable}
    return names
