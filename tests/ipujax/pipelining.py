"""What tests of pipelines share: runs in an engine, and the models of the conformance facts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from tests.ipujax.feeding import outfeed

ENGINES = ("fused", "replay")
SCHEDULES = tuple(PipelineSchedule)
f32 = np.float32


def batched(
    element: Callable[[int], Any], size: int, *, finite: int | None = None
) -> Callable[[], Iterator[Any]]:
    """A data set of stacked elements: `size` consecutive ones each, endless unless `finite`."""

    def elements() -> Iterator[Any]:
        for number in itertools.count() if finite is None else range(finite):
            group = [element(number * size + i) for i in range(size)]
            yield jax.tree.map(lambda *leaves: np.stack(leaves), *group)

    return elements


def run_pipeline(
    stages: Sequence[Any],
    count: int,
    *,
    engine: str = "auto",
    variables: Any = None,
    inputs: Sequence[Any] = (),
    state: Any = None,
    untrained: Any = None,
    **arguments: Any,
) -> tuple[Any, Any]:
    """Runs a pipeline once, with an outfeed of its own: what it returned, what it sent."""
    sink = arguments.pop("outfeed_queue", None) or outfeed()
    source = arguments.pop("data", None)
    if source is not None:
        arguments["infeed_queue"] = IPUInfeedQueue(source)

    def model(variables: Any, state: Any, untrained: Any, inputs: Any) -> Any:
        return pipeline(
            stages,
            count,
            inputs=inputs,
            outfeed_queue=sink,
            variables=variables,
            optimizer_state=state,
            state=untrained,
            **arguments,
        )

    result = ipu.compile(model, engine=engine)(variables, state, untrained, list(inputs))
    return result, sink.dequeue()


def sgd(rate: float, momentum: float | None = None) -> Callable[..., OptimizerFunctionOutput]:
    """An optimizer function for pipelines whose last stage returns the loss alone."""
    return lambda loss: OptimizerFunctionOutput(optax.sgd(rate, momentum), loss)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean loss of a batch."""
    likelihoods = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(likelihoods, labels[:, None], 1).mean()


def close(mine: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Fails unless two arrays are equal up to the rounding of sums in another order."""
    assert np.shape(mine) == np.shape(theirs)
    np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def ones(*shape: int) -> jax.Array:
    """A variable of a fact that starts at one."""
    return jnp.ones(shape, jnp.float32)
