"""Pipelines: models split into stages that work on several micro-batches at once.

Each stage is a function on an IPU. Its forward pass hands values to the next stage; in training,
gradients flow back, are accumulated over `gradient_accumulation_count` micro-batches, and update
the variables once. Whatever the schedule, the numbers are those of the unpipelined step.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
