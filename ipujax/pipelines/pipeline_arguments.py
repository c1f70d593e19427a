"""The argument types of a pipeline: schedules, recomputation, stage options, and the optimizer."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import optax
from jax.typing import ArrayLike

from ipujax.ground import PipelineTypeError
from ipujax.pipelines.single_argument_checks import check
from ipujax.system import check_planner_options
from lowering import pipelines


class PipelineSchedule(enum.Enum):
    """The way in which the stages of several micro-batches are interleaved on the IPUs.

    Attributes:
      Grouped: all forward passes that can run together do, then the backward passes that can; a
        forward and a backward pass of different micro-batches run in the same step. Fast, and the
        most activations wait.
      Interleaved: forward and backward passes take turns; half as many activations wait.
      Sequential: one stage at a time, as if the model were sharded; for debugging.
    """

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(enum.Enum):
    """The way in which activations are recomputed, if `IPUConfig.allow_recompute` is set.

    * Auto: RecomputeThenBackpropagate for Grouped and Interleaved, otherwise the other.
    * RecomputeThenBackpropagate: a stage's whole forward pass, then its backward pass. Not with
      Sequential.
    * RecomputeAndBackpropagateInterleaved: both as one kernel, in which each operation is computed
      again just before the first that reads it; honours `recomputation_checkpoint`. Not with
      Interleaved.
    """

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


_SCHEDULES_OF_MODE = {
    RecomputationMode.RecomputeThenBackpropagate: (
        PipelineSchedule.Grouped,
        PipelineSchedule.Interleaved,
    ),
    RecomputationMode.RecomputeAndBackpropagateInterleaved: (
        PipelineSchedule.Grouped,
        PipelineSchedule.Sequential,
    ),
}


def find_recomputation_conflict(mode: RecomputationMode | None, schedule: object) -> str:
    """Returns what is wrong with a mode of recomputation under a schedule; "" if nothing is.

    The original's modes go with two of its three schedules each; other schedules with both.
    """
    allowed = _SCHEDULES_OF_MODE.get(mode) if mode is not None else None
    if allowed is None or not isinstance(schedule, PipelineSchedule) or schedule in allowed:
        return ""
    return (
        f"recomputation_mode {mode} is supported with the schedules "
        f"{' and '.join(each.name for each in allowed)}, not with {schedule.name}"
    )


@check.guard
class PipelineStageOptions:
    """Poplar options for the convolutions and matrix products of one stage.

    Args:
      convolution_options: option names to values, such as `availableMemoryProportion`.
      matmul_options: the same for matrix products.

    Raises:
      PipelineTypeError: (a `TypeError`) something that is no dict.
      ConfigError: (a `ValueError`) a value that the planner cannot work with.
    """

    def __init__(
        self,
        convolution_options: dict[str, Any] | None = None,
        matmul_options: dict[str, Any] | None = None,
    ):
        groups = {"convolution_options": convolution_options, "matmul_options": matmul_options}
        for name, options in groups.items():
            if options is not None and not isinstance(options, dict):
                raise PipelineTypeError(f"{name} must be a dict, not {options!r}")
        self._options = {
            name: check_planner_options(options or {}, f"PipelineStageOptions: {name}")
            for name, options in groups.items()
        }

    @property
    def as_task_options(self) -> pipelines.Options:
        """The options as a task carries them."""
        return tuple(
            (group, tuple(sorted(options.items())))
            for group, options in self._options.items()
            if options
        )


def is_optimizer(value: object) -> bool:
    """Returns whether a value is an optax transformation or an optimizer of `ipujax.optimizers`."""
    return all(callable(getattr(value, name, None)) for name in ("init", "update"))


@check.guard
class OptimizerFunctionOutput:
    """The result of an `optimizer_function`: the optimizer, the loss, and extra arguments.

    Args:
      opt: an optax `GradientTransformation`, or one of `ipujax.optimizers`.
      loss: a floating-point scalar, the loss of one micro-batch.
      compute_gradients_args: further positional arguments of the optimizer's `compute_gradients`,
        which maps the gradients of each micro-batch, all stages' at once and in the structure of
        the variables; zeros stand for those of variables that are not trained. A gradient that is
        made of those of earlier stages, as in a norm over all, waits for them and meets them there.
      compute_gradients_kwargs: the same by keyword.
      apply_gradients_args: further positional arguments of the weight update.
      apply_gradients_kwargs: the same by keyword; an optax transformation takes them as extra
        arguments of `update`.
    """

    def __init__(
        self,
        opt: optax.GradientTransformation,
        loss: ArrayLike,
        compute_gradients_args: Sequence[object] | None = None,
        compute_gradients_kwargs: Mapping[str, object] | None = None,
        apply_gradients_args: Sequence[object] | None = None,
        apply_gradients_kwargs: Mapping[str, object] | None = None,
    ):
        if not is_optimizer(opt):
            expected = "an optax gradient transformation, such as optax.sgd(0.1)"
            raise check.wrong_type_error(
                expected, opt, "the optimizer of an OptimizerFunctionOutput"
            )
        if not _is_array(loss):
            argument = "the loss of an OptimizerFunctionOutput"
            raise check.wrong_type_error("a floating-point scalar", loss, argument)
        self.opt, self.loss = opt, loss
        self.compute_gradients_args = _check_positional_args(
            compute_gradients_args, "compute_gradients"
        )
        self.compute_gradients_kwargs = _check_keyword_args(
            compute_gradients_kwargs, "compute_gradients"
        )
        self.apply_gradients_args = _check_positional_args(apply_gradients_args, "apply_gradients")
        self.apply_gradients_kwargs = _check_keyword_args(apply_gradients_kwargs, "apply_gradients")


def _is_array(value: object) -> bool:
    try:
        jax.typeof(value)
    except TypeError:
        return False
    return True


def _check_positional_args(args: Sequence[object] | None, function: str) -> tuple[object, ...]:
    return () if args is None else tuple(check.require_sequence(args, f"{function}_args"))


def _check_keyword_args(kwargs: Mapping[str, object] | None, function: str) -> dict[str, object]:
    return dict(check.require_instance(kwargs, dict, f"{function}_kwargs", optional=True) or {})
