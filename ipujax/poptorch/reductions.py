"""How the gradients of micro-batches and replicas become one: what options and optimizer say."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ipujax.errors import PopTorchError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Method
from ipujax.poptorch.enums import MeanReductionStrategy, ReductionType
from ipujax.poptorch.optim.rules import dtypes_of
from ipujax.poptorch.options import Options
from ipujax.training import ReplicaReduction


class Reductions(NamedTuple):
    """Of gradients.

    Attributes:
      micro_batches: of one replica.
      replicas: of all replicas.
    """

    micro_batches: Method
    replicas: ReplicaReduction


def reductions_of(options: Options) -> Reductions:
    """The reductions that options say, whatever the loss's own is: by default the mean."""
    if options.Training.accumulation_and_replication_reduction_type is ReductionType.Sum:
        return Reductions(Method.SUM, ReplicaReduction.SUM)
    runs = _strategy(options) is MeanReductionStrategy.Running
    return Reductions(Method.RUNNING_MEAN if runs else Method.MEAN, ReplicaReduction.MEAN)


def options_for(
    optimizer: torch.optim.Optimizer, options: Options, is_compiled: bool = False
) -> Options:
    """The options with which an optimizer is used.

    Gradients that are added up in float16 could overflow before they are divided, so that their
    mean is a running one.

    Raises:
      PopTorchError: (a `ValueError`) there is a program already that has another mean.
    """
    is_half = dtypes_of(optimizer).accumulated == "float16"
    combined = getattr(optimizer, "use_combined_accum", False)
    if not is_half or combined or _strategy(options) is MeanReductionStrategy.Running:
        return options
    if is_compiled:
        raise PopTorchError(
            "Invalid optimizer: accum_type=torch.float16 needs MeanReductionStrategy.Running, but "
            "the executable is already compiled",
            fix="begin with this optimizer; or set options.Training."
            "setMeanAccumulationAndReplicationReductionStrategy("
            "poptorch.MeanReductionStrategy.Running) before",
        )
    own = options.clone()
    strategy = MeanReductionStrategy.Running
    own.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    own._freeze()  # pyright: ignore[reportPrivateUsage]
    return own


def _strategy(options: Options) -> MeanReductionStrategy:
    return options.Training.meanAccumulationAndReplicationReductionStrategy
