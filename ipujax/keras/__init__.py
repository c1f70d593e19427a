"""Keras in the scope of an `IPUStrategy`, and layers for it; needs the extra `keras`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ipujax.doors.keras import add_trace_context
from ipujax.keras.layer_stages import (
    FunctionalLayerPipelineStageAssignment as FunctionalLayerPipelineStageAssignment,
)
from ipujax.keras.layer_stages import (
    ModelLayerPipelineStageAssignment as ModelLayerPipelineStageAssignment,
)
from ipujax.keras.layer_stages import (
    get_pipeline_stage_assignment as get_pipeline_stage_assignment,
)
from ipujax.keras.layer_stages import (
    reset_pipeline_stage_assignment as reset_pipeline_stage_assignment,
)
from ipujax.keras.layer_stages import (
    set_pipeline_stage_assignment as set_pipeline_stage_assignment,
)
from ipujax.keras.pipeline_stage import PipelineStage as PipelineStage
from ipujax.keras.stage_tracing import has_pipeline_stages as has_pipeline_stages
from ipujax.keras.stage_tracing import trace_in_stages as trace_in_stages

if TYPE_CHECKING:
    from ipujax.keras import extension as extension
    from ipujax.keras import layers as layers
    from ipujax.keras import strategy as strategy

__all__ = ["PipelineStage", "layers"]


def __dir__() -> list[str]:
    return __all__


add_trace_context(trace_in_stages)


def __getattr__(name: str) -> Any:
    # The layers derive from Keras's, which takes seconds to import.
    if name == "layers":
        return importlib.import_module("ipujax.keras.layers")
    raise AttributeError(f"module 'ipujax.keras' has no attribute {name!r}")
