"""Anchors: values of a model's graph that are kept for the user after a call."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ipujax.doors.graphs import FINAL_SCALE, GRADIENT, UPDATED
from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.arrays import to_torch
from ipujax.frontends.pytorch.capture import Captured
from ipujax.poptorch.enums import OutputMode
from ipujax.poptorch.log import logger
from ipujax.poptorch.options import Options
from ipujax.poptorch.shares import Shares


@dc.dataclass(frozen=True)
class Anchors:
    """What is kept of a program.

    Attributes:
      names: the user's names of the values that it sends: those of the graph, then gradients.
      values: the graph's names of the first ones.
      gradients: the variables whose gradients are the others.
      updated: variables, by the user's names of their values after a call.
      modes: of `names`, the mode and period of each one; no mode for that of the outputs.
    """

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    updated: Mapping[str, str] = dc.field(default_factory=dict[str, str])
    modes: tuple[tuple[OutputMode | None, int], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def read(
        self, results: Sequence[np.ndarray], shares: Shares, mode: OutputMode
    ) -> dict[str, torch.Tensor]:
        """The values by the user's names.

        Args:
          results: what each micro-batch sent of them.
          shares: of a call.
          mode: that of the outputs.
        """
        chosen = zip(self.names, self.modes, results, strict=True)
        return {
            name: to_torch(shares.combined(leaf, own or mode, period))
            for name, (own, period), leaf in chosen
        }


def anchors_of(module: Captured, loss: str | None, options: Options) -> Anchors:
    """What the options want to be kept of a module.

    Args:
      module: traced.
      loss: the name of its loss; None in inference.
      options: with their `anchorTensor`.

    Raises:
      PopTorchError: (a `ValueError`) there is no value of a name.
    """
    if not options.anchored_tensors:
        return Anchors()
    known = tensor_names(module, loss)
    chosen: dict[str, tuple[str, OutputMode | None, int]] = {}
    for short, (long, is_default, mode, period) in options.anchored_tensors.items():
        found = next((n for n in (long, long.replace("___model.", "___")) if n in known), None)
        if found is None:
            raise PopTorchError(
                f"anchorTensor({short!r}, {long!r}): the model has no value of this name",
                fix="choose one of getTensorNames(), of the model without this anchor",
            )
        chosen[short] = found, None if is_default else mode, period
        if not is_default:
            logger.debug("Anchor %s %s/%d", long, _LOGGED[mode], period)
    updated = {short: one[0] for short, one in chosen.items() if one[0].startswith(UPDATED)}
    sent = {short: one for short, one in chosen.items() if short not in updated}
    order = sorted(sent, key=lambda short: sent[short][0].startswith(GRADIENT))
    gradients = [n for n in order if sent[n][0].startswith(GRADIENT)]
    return Anchors(
        tuple(order),
        tuple(known[sent[short][0]] for short in order if short not in gradients),
        tuple(known[sent[short][0]] for short in gradients),
        {short: known[name] for short, name in updated.items()},
        tuple(sent[short][1:] for short in order),
    )


_LOGGED: dict[Any, str] = {
    OutputMode.All: "ALL", OutputMode.EveryN: "EVERYN", OutputMode.Final: "FINAL",
    OutputMode.Sum: "Sum",
}  # fmt: skip


def tensor_names(module: Captured, loss: str | None) -> dict[str, str]:
    """The values of a module that can be kept, by the names that the user gives them.

    Inputs are `input`, `input.1`, ..., the parameters and buffers have their own names, the results
    of operators are `path.of.the.module/name`. In training there are `loss`, and for each parameter
    `Gradient___path`, as a micro-batch gives it, and `UpdatedVar___path`, after a call; and
    `finalLossScale`, by which the loss is multiplied before it is differentiated.

    Args:
      module: traced.
      loss: the name of its loss; None in inference.
    """
    names = {f"input.{i}" if i else "input": n for i, n in enumerate(module.inputs) if n}
    names |= {name: own[0] for name, own in module.names.items()}
    for node in module.graph.nodes:
        if isinstance(node.avals[0], (list, tuple)) or node.avals[0] is None:
            continue
        names[f"{node.scope}/{node.results[0]}".lstrip("/")] = node.results[0]
    if loss is not None:
        names |= {"loss": loss, FINAL_SCALE: FINAL_SCALE}
        names |= {f"{GRADIENT}{name}": name for name in module.trainable}
        names |= {f"{UPDATED}{name}": name for name in module.trainable}
    return names
