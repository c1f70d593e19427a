"""The reductions of gradients of micro-batches and replicas, by options and optimizer."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ipujax.ground import PopTorchError
from ipujax.optimizers import GradientAccumulationReductionMethod as Method
from ipujax.poptorch.enums import MeanReductionStrategy, ReductionType
from ipujax.poptorch.optim.rules import get_accumulator_dtypes
from ipujax.poptorch.options import Options
from ipujax.training import ReplicaReduction


class Reductions(NamedTuple):
    """The reductions of gradients over micro-batches and over replicas.

    Attributes:
      micro_batches: the reduction over the micro-batches of one replica.
      replicas: the reduction over replicas.
    """

    micro_batches: Method
    replicas: ReplicaReduction


def choose_reductions(options: Options) -> Reductions:
    """Chooses the reductions that the options ask for: by default the mean."""
    if options.Training.accumulation_and_replication_reduction_type is ReductionType.Sum:
        return Reductions(Method.SUM, ReplicaReduction.SUM)
    runs = _choose_mean_strategy(options) is MeanReductionStrategy.Running
    return Reductions(Method.RUNNING_MEAN if runs else Method.MEAN, ReplicaReduction.MEAN)


def adapt_options_to_optimizer(
    optimizer: torch.optim.Optimizer, options: Options, is_compiled: bool = False
) -> Options:
    """Returns the options, with a running mean if gradients are accumulated in float16.

    Gradients that are added up in float16 could overflow before they are divided.

    Raises:
      PopTorchError: (a `ValueError`) a program with another mean is compiled already.
    """
    is_half = get_accumulator_dtypes(optimizer).accumulated == "float16"
    combined = getattr(optimizer, "use_combined_accum", False)
    if not is_half or combined or _choose_mean_strategy(options) is MeanReductionStrategy.Running:
        return options
    if is_compiled:
        raise PopTorchError(
            "Invalid optimizer: accum_type=torch.float16 needs MeanReductionStrategy.Running, but "
            "the executable is already compiled",
            fix="begin with this optimizer; or set options.Training."
            "setMeanAccumulationAndReplicationReductionStrategy("
            "poptorch.MeanReductionStrategy.Running) before",
        )
    adapted_options = options.clone()
    strategy = MeanReductionStrategy.Running
    adapted_options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    adapted_options._freeze()  # pyright: ignore[reportPrivateUsage]
    return adapted_options


def _choose_mean_strategy(options: Options) -> MeanReductionStrategy:
    return options.Training.meanAccumulationAndReplicationReductionStrategy
