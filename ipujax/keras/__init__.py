"""Keras in the scope of an `IPUStrategy`; needs the extra `keras`."""

from ipujax.frontends.keras import trace_within
from ipujax.keras.pipeline_stage import PipelineStage as PipelineStage
from ipujax.keras.staged import staged

trace_within(staged)
