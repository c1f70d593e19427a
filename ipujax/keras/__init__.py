"""Keras in the scope of an `IPUStrategy`; needs the extra `keras`."""

from ipujax.keras.pipeline_stage import PipelineStage as PipelineStage
