"""`compute_gradients` in pipelines: the structure of the variables, once per micro-batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import PipelineError
from ipujax.optimizers import CrossReplicaOptimizer, IpuOptimizer
from ipujax.optimizers.trained_leaves import mask_untrained_leaves
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, check_pipeline
from tests.ipujax.feeding import infeed, outfeed
from tests.ipujax.pipelining import close, run_pipeline
from tests.ipujax.reporting import configured

COUNT, WIDTH = 6, 4
RANDOM = np.random.default_rng(7)
BATCHES = RANDOM.normal(size=(COUNT, 2, WIDTH)).astype(np.float32)
WEIGHTS = {
    "first": RANDOM.normal(size=(WIDTH, WIDTH)).astype(np.float32),
    "rest": [RANDOM.normal(size=WIDTH).astype(np.float32), {"scale": np.float32(2)}],
    "steps": np.int32(3),
}


def first(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w["first"])


def second(w: Any, x: Any) -> Any:
    return x * w["rest"][0]


def third(w: Any, x: Any) -> Any:
    return jnp.sum((x * w["rest"][1]["scale"]) ** 2)


class Mapping(IpuOptimizer):
    """Gradients mapped by a function of both trees; notes what it is called with."""

    def __init__(self, function: Callable[[Any, Any], Any]):
        super().__init__(optax.sgd(0.01))
        self.function = function
        self.seen: list[tuple[Any, Any]] = []

    def compute_gradients(self, gradients: Any, variables: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append((gradients, variables))
        return self.function(gradients, variables)


def each(gradients: Any, variables: Any) -> Any:
    return jax.tree.map(lambda g, v: 2 * g + 0.1 * v, gradients, variables)


def by_norm(gradients: Any, variables: Any) -> Any:
    """As clipping by the norm over all of them, of each micro-batch."""
    del variables
    scale = 1 / jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda g: g * scale, gradients)


def neighbours(gradients: Any, variables: Any) -> Any:
    """The first stage's needs the second's, and the third's nobody's but its own."""
    rest = [gradients["rest"][0] + variables["rest"][1]["scale"], gradients["rest"][1]]
    return {**gradients, "first": gradients["first"] + jnp.sum(gradients["rest"][0]), "rest": rest}


def backwards(gradients: Any, variables: Any) -> Any:
    """The last stage's needs the first's."""
    del variables
    end = {"scale": gradients["rest"][1]["scale"] + jnp.sum(gradients["first"])}
    return {**gradients, "rest": [gradients["rest"][0], end]}


def expected(function: Callable[[Any, Any], Any]) -> Any:
    """One update after all micro-batches, in plain JAX."""
    floats = {key: WEIGHTS[key] for key in ("first", "rest")}

    def loss(w: Any, x: Any) -> Any:
        return third(w, second(w, first(w, x)))

    sums = jax.tree.map(np.zeros_like, floats)
    for batch in BATCHES:
        mapped = function({**jax.grad(loss)(floats, batch), "steps": np.int32(0)}, WEIGHTS)
        sums = jax.tree.map(jnp.add, sums, {key: mapped[key] for key in floats})
    return jax.tree.map(lambda v, g: v - 0.01 * g, floats, sums)


def pipelined(optimizer: IpuOptimizer, **arguments: Any) -> Any:
    (weights, _), _ = run_pipeline(
        [first, second, third],
        COUNT,
        variables=WEIGHTS,
        data=lambda: iter(BATCHES),
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        **arguments,
    )
    return weights


@pytest.mark.parametrize("function", [each, by_norm, neighbours, backwards])
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
@pytest.mark.sampled(1)
def test_numbers_are_those_of_a_loop(
    function: Callable[[Any, Any], Any], engine: str, schedule: PipelineSchedule
) -> None:
    configured(4)
    weights = pipelined(Mapping(function), engine=engine, pipeline_schedule=schedule)
    jax.tree.map(close, {key: weights[key] for key in ("first", "rest")}, expected(function))
    assert weights["steps"] == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", ["MEAN", "RUNNING_MEAN"])
def test_with_means(method: str) -> None:
    """The mean of what micro-batches' gradients are mapped to."""
    configured(4)
    weights = pipelined(Mapping(by_norm), reduction_method=method)
    wanted, start = expected(by_norm), {key: WEIGHTS[key] for key in ("first", "rest")}
    mean = jax.tree.map(lambda new, old: old + (new - old) / COUNT, wanted, start)
    jax.tree.map(close, {key: weights[key] for key in ("first", "rest")}, mean)


def test_it_is_called_once_with_the_structure_of_the_variables() -> None:
    configured(4)
    optimizer = Mapping(each)
    pipelined(optimizer)
    assert len(optimizer.seen) == 1
    ((gradients, variables),) = optimizer.seen
    trained = mask_untrained_leaves(
        WEIGHTS, WEIGHTS
    )  # what has no gradient is masked, as optax does it
    assert jax.tree.structure(variables) == jax.tree.structure(trained)
    assert jax.tree.map(jnp.shape, gradients) == jax.tree.map(np.shape, trained)
    assert jax.tree.map(jnp.result_type, gradients) == jax.tree.map(jnp.result_type, trained)


def test_a_wrapper_around_it_keeps_it() -> None:
    configured(4)
    optimizer = Mapping(by_norm)
    weights = pipelined(CrossReplicaOptimizer(optimizer))
    assert len(optimizer.seen) == 1
    jax.tree.map(close, {key: weights[key] for key in ("first", "rest")}, expected(by_norm))


def test_what_is_mapped_by_itself_stays_on_its_ipu() -> None:
    """No gradient crosses to another IPU but the cotangents of the stages' inputs."""

    def text(function: Callable[[Any, Any], Any]) -> str:
        optimizer, elements, results = Mapping(function), infeed(lambda: iter(BATCHES)), outfeed()

        def train(weights: Any) -> Any:
            return ipu.pipelining_ops.pipeline(
                [first, second, third],
                COUNT,
                variables=weights,
                infeed_queue=elements,
                outfeed_queue=results,
                optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
            )

        return ipu.compile(train).lower(WEIGHTS).as_text()

    configured(4)
    between = re.compile(r"copy ipu \d+ -> ipu \d+: (.*)")
    plain, alone, together = (
        sum(len(values.split(",")) for values in between.findall(text(function)))
        for function in (lambda g, _: g, each, by_norm)
    )
    assert plain == alone < together


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda g, _: {**g, "first": None}, "gives None as the gradient of variable"),
        (lambda g, _: {**g, "first": g["first"][0]}, r"whose shape is \[4, 4\]"),
        (lambda g, _: g["rest"], "another structure"),
    ],
)
def test_what_it_may_not_return(function: Any, words: str) -> None:
    configured(4)
    with pytest.raises(PipelineError, match=words):
        pipelined(Mapping(function))


def test_check_pipeline_maps_alike() -> None:
    configured(4)
    found = check_pipeline(
        [first, second, third],
        COUNT,
        variables=WEIGHTS,
        infeed_queue=infeed(lambda: iter(BATCHES)),
        outfeed_queue=outfeed(),
        optimizer_function=lambda loss: OptimizerFunctionOutput(Mapping(by_norm), loss),
    )
    assert found.ok
