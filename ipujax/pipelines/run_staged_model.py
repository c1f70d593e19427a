"""Runs the stages of a function over all micro-batches, and combines what they computed."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.host import trace_frames
from ipujax.pipelines.micro_batch import MicroBatch
from ipujax.pipelines.micro_batch_arguments import ArgumentLeaf
from ipujax.pipelines.pipeline_stages import Value
from ipujax.pipelines.staged_model import StagedModel
from ipujax.pipelines.trace_pipeline import trace_micro_batch_loop
from ipujax.pipelines.traced_stages import Arrays
from lowering import shape_of


@dc.dataclass(frozen=True, eq=False)
class StagedResults:
    """The sums and stacks that a pipeline over all micro-batches leaves.

    Attributes:
      losses: the sum of the losses, in the dtype of sums; none without a loss.
      gradients: the sum of the gradients of each differentiated leaf that a stage reads.
      outputs: the other outputs, stacked along a new axis 0.
    """

    losses: Sequence[jax.Array]
    gradients: dict[ArgumentLeaf, jax.Array]
    outputs: Sequence[jax.Array]


def run_staged_model(model: StagedModel) -> StagedResults:
    """Traces the loop over micro-batches into the program that is being traced around it."""
    body = MicroBatch(model, [])
    arrays = _arrays_of_model(model)
    with trace_frames.trace_loop_body(model.request.micro_batches):
        final = trace_micro_batch_loop(body, arrays)
    state = {v: final[buffer] for v, buffer in body.state.items()}
    sums = {v: final[accumulator] for v, accumulator in body.accumulators.items()}
    gradients: dict[ArgumentLeaf, jax.Array] = {}
    for leaf, copies in model.copies.items():
        terms = [sums[v] for v in copies if v in sums]
        if terms:
            with model.scope_of_stage(min(copies.values())):
                gradients[leaf] = sum(terms[1:], start=terms[0])
    return StagedResults(
        losses=[state[v] for v in model.loss_sums],
        gradients=gradients,
        outputs=[state[v] for v in model.stacks],
    )


def _arrays_of_model(model: StagedModel) -> Arrays:
    """Returns the array of each value that the model is given."""
    count = model.request.micro_batches
    arrays: dict[Value, Any] = {}
    first_readers: dict[ArgumentLeaf, int] = {}
    for leaf, copies in model.copies.items():
        first = min(copies.values())
        first_readers[leaf.source] = min(first, first_readers.get(leaf.source, first))
    for leaf, copies in model.copies.items():
        for value, stage in copies.items():
            # A slice is cut out where the whole leaf is, and not brought there whole.
            place = stage if leaf.source is leaf else first_readers[leaf.source]
            with model.scope_of_stage(place), model.mark_rows_of_stage(leaf, stage):
                arrays[value] = leaf.stack_micro_batches(count)
    for v in model.untrained_state:
        arrays[v] = jnp.zeros(shape_of(v.aval), v.aval.dtype)
    return arrays
