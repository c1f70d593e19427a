"""Pipelines: models split into stages that work on several micro-batches at once.

Each stage is a function on an IPU. Its forward pass hands values to the next stage; in training,
gradients flow back, are accumulated over `gradient_accumulation_count` micro-batches, and update
the variables once. Whatever the schedule, the numbers are those of the unpipelined step.
"""

from __future__ import annotations

from ipujax.pipelines import pipelining as _pipelining
from ipujax.training import PipelineCheck as PipelineCheck
from ipujax.training import check_pipeline as check_pipeline

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineCheck",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "StageOutput",
    "check_pipeline",
    "pipeline",
    "recomputation_checkpoint",
]


def __dir__() -> list[str]:
    return __all__


OptimizerFunctionOutput = _pipelining.OptimizerFunctionOutput
PipelineSchedule = _pipelining.PipelineSchedule
PipelineStageOptions = _pipelining.PipelineStageOptions
RecomputationMode = _pipelining.RecomputationMode
StageOutput = _pipelining.StageOutput
pipeline = _pipelining.pipeline
recomputation_checkpoint = _pipelining.recomputation_checkpoint
