"""The spec that the `model_fn` of a pipeline estimator returns."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipujax.doors.estimators.estimator_checks import check
from ipujax.doors.estimators.estimator_spec import MODES, ModeKeys
from ipujax.ground import Keywords, PyTree
from ipujax.pipelines import (
    OptimizerFunctionOutput,
    OptimizerOrFunction,
    check_optimizer_function,
)

_RESERVED_ARGUMENTS = frozenset({
    "infeed_queue", "outfeed_queue", "repeat_count", "outfeed_loss", "accumulate_outfeed",
    "accumulate_outfeed_dtype", "variables", "optimizer_state", "outfeed_mask",
})  # fmt: skip


@check.guard
@dc.dataclass(frozen=True, init=False)
class IPUPipelineEstimatorSpec:
    """The spec that the `model_fn` of a pipeline estimator returns.

    Attributes:
      mode: a `ModeKeys`.
      computational_stages: functions that take the variables, then what the one before returned;
        the first one takes `inputs`, then features and, but to predict, labels.
      gradient_accumulation_count: micro-batches of an execution.
      eval_metrics_fn: called on the host with the last stage's outputs (a dict by keyword) for
        each micro-batch and replica; gives a dict of `ipujax.metrics` that has the loss, an
        array or a metric, as "loss". Needed to evaluate.
      optimizer_function: takes the last stage's outputs, gives an `OptimizerFunctionOutput`; or
        the optimizer itself, where these are the loss alone. Needed to train.
      device_mapping: the IPU of each stage.
      loss_accumulator_dtype: the dtype of the summed losses of an execution; None for the loss's.
      pipeline_op_kwargs: further arguments of `pipelining_ops.pipeline`, among them `inputs`.

    Raises:
      EstimatorError: (a `ValueError`) a part that the mode needs is missing, or an argument of the
        pipeline that the estimator sets itself.
      EstimatorTypeError: (a `TypeError`) an argument of a wrong type.
    """

    mode: str
    computational_stages: Sequence[Callable[..., Any]]
    gradient_accumulation_count: int
    eval_metrics_fn: Callable[..., object] | None
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None
    device_mapping: Sequence[int | Sequence[int]] | None
    loss_accumulator_dtype: object
    pipeline_op_kwargs: Mapping[str, Any]

    def __init__(
        self,
        mode: str,
        computational_stages: Sequence[Callable[..., Any]],
        gradient_accumulation_count: int | None = None,
        eval_metrics_fn: Callable[..., object] | None = None,
        optimizer_function: OptimizerOrFunction = None,
        device_mapping: Sequence[int | Sequence[int]] | None = None,
        loss_accumulator_dtype: object = None,
        **pipeline_op_kwargs: object,
    ):
        check.require_one_of(mode, MODES, "the mode of an IPUPipelineEstimatorSpec")
        check.require_sequence(computational_stages, "computational_stages", "functions")
        if gradient_accumulation_count is None:
            raise check.value_error(
                "the IPUPipelineEstimatorSpec has no gradient_accumulation_count",
                "say how many micro-batches an execution of the pipeline has",
            )
        check.require_integer(
            gradient_accumulation_count, "gradient_accumulation_count", at_least=1
        )
        check.require_function(eval_metrics_fn, "eval_metrics_fn", optional=True)
        optimizer_function = check_optimizer_function(optimizer_function, check)
        needed = {
            ModeKeys.TRAIN: ("optimizer_function", optimizer_function),
            ModeKeys.EVAL: ("eval_metrics_fn", eval_metrics_fn),
        }
        name, value = needed.get(mode, ("", mode))
        if value is None:
            raise check.value_error(
                f"the IPUPipelineEstimatorSpec of mode {mode!r} has no {name}", f"give {name}"
            )
        if reserved := sorted(_RESERVED_ARGUMENTS.intersection(pipeline_op_kwargs)):
            raise check.value_error(
                f"the IPUPipelineEstimatorSpec has {', '.join(reserved)}, which the estimator "
                "gives to the pipeline itself",
                "leave it out",
            )
        object.__setattr__(self, "mode", mode)
        object.__setattr__(self, "computational_stages", computational_stages)
        object.__setattr__(self, "gradient_accumulation_count", gradient_accumulation_count)
        object.__setattr__(self, "eval_metrics_fn", eval_metrics_fn)
        object.__setattr__(self, "optimizer_function", optimizer_function)
        object.__setattr__(self, "device_mapping", device_mapping)
        object.__setattr__(self, "loss_accumulator_dtype", loss_accumulator_dtype)
        object.__setattr__(self, "pipeline_op_kwargs", pipeline_op_kwargs)

    @property
    def inputs(self) -> Sequence[PyTree]:
        """The first arguments of the first stage."""
        return self.pipeline_op_kwargs.get("inputs") or ()

    @property
    def options(self) -> Keywords:
        """The further arguments of the pipeline."""
        options = {name: v for name, v in self.pipeline_op_kwargs.items() if name != "inputs"}
        return options | {"device_mapping": self.device_mapping}

    @property
    def devices(self) -> int:
        """The number of IPUs that the stages are on."""
        mapping = self.device_mapping
        if mapping is None:
            return len(self.computational_stages)
        ipu_lists = (entry if isinstance(entry, (list, tuple)) else [entry] for entry in mapping)
        return len({ipu for entry in ipu_lists for ipu in entry})
