"""Complex values between stages, and complex variables: their gradients are those of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import schedules
from ipujax.errors import PipelineError, PipelineTypeError
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, check_pipeline
from ipujax.training import Training
from tests.ipujax.feeding import configure, infeed
from tests.ipujax.pipelining import ENGINES, SCHEDULES, run_pipeline, sgd

WIDTH, COUNT = 8, 4
ALL = [*SCHEDULES, schedules.gpipe, schedules.one_f_one_b, schedules.zero_bubble]
RANDOM = np.random.default_rng(7)


def real(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape, scale=0.5).astype(np.float32)


def complex_numbers(*shape: int) -> np.ndarray:
    return (real(*shape) + 1j * real(*shape)).astype(np.complex64)


VARIABLES = {
    "before": real(WIDTH, WIDTH),
    "spectrum": complex_numbers(WIDTH // 2 + 1),
    "filter": complex_numbers(WIDTH // 2 + 1),
    "after": real(WIDTH, 1),
}
ELEMENTS = [(real(3, WIDTH), real(3, 1)) for _ in range(2 * COUNT)]


def to_spectrum(v: Any, x: Any, y: Any) -> Any:
    return jnp.fft.rfft(x @ v["before"]) * v["spectrum"], y


def from_spectrum(v: Any, z: Any, y: Any) -> Any:
    signal = jnp.fft.irfft(z * v["filter"], WIDTH)
    return jnp.mean((jnp.tanh(signal) @ v["after"] - y) ** 2)


def loss_of(v: Any, x: Any, y: Any) -> Any:
    return from_spectrum(v, *to_spectrum(v, x, y))


def by_jax(optimizer: Any, micro_batches: int = COUNT) -> Any:
    """The variables after all elements, by plain JAX."""
    variables = jax.tree.map(jnp.asarray, VARIABLES)
    state = optimizer.init(variables)
    gradient = jax.jit(jax.grad(loss_of))
    for first in range(0, len(ELEMENTS), micro_batches):
        each = [gradient(variables, *e) for e in ELEMENTS[first : first + micro_batches]]
        total = jax.tree.map(lambda *leaves: sum(leaves), *each)
        updates, state = optimizer.update(total, state, variables)
        variables = optax.apply_updates(variables, updates)
    return variables


def close(mine: Any, theirs: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-5, 2e-6), mine, theirs)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schedule", ALL)
def test_all_schedules_differentiate_them(schedule: Any, engine: str) -> None:
    configure(2)
    (variables, _), _ = run_pipeline(
        [to_spectrum, from_spectrum],
        COUNT,
        data=ELEMENTS,
        variables=VARIABLES,
        repeat_count=2,
        pipeline_schedule=schedule,
        optimizer_function=sgd(0.1, 0.9),
        engine=engine,
    )
    close(variables, by_jax(optax.sgd(0.1, 0.9)))


def test_real_variables_behind_complex_values() -> None:
    configure(2)
    variables = {**VARIABLES, "spectrum": real(WIDTH // 2 + 1), "filter": real(WIDTH // 2 + 1)}
    check_pipeline(
        [to_spectrum, from_spectrum],
        COUNT,
        infeed_queue=infeed(ELEMENTS),
        variables=variables,
        optimizer_function=sgd(0.1),
    ).raise_if_different()


def test_everything_offloaded_and_recomputed() -> None:
    """Also: a real dtype of accumulators says how precise the parts of complex ones are."""
    configure(2)
    (variables, _), _ = run_pipeline(
        [to_spectrum, from_spectrum],
        COUNT,
        data=ELEMENTS,
        variables=VARIABLES,
        repeat_count=2,
        pipeline_schedule=PipelineSchedule.Grouped,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optax.adam(0.01), loss),
        recomputation_mode=ipu.pipelining_ops.RecomputationMode.RecomputeThenBackpropagate,
        offload_weights=True,
        offload_activations=True,
        offload_gradient_accumulation_buffers=True,
        offload_weight_update_variables=True,
        gradient_accumulation_dtype=jnp.float32,
    )
    close(variables, by_jax(optax.adam(0.01)))


def test_a_complex_accumulator_of_a_real_variable_is_refused() -> None:
    configure(2)
    with pytest.raises(PipelineTypeError, match="complex64, for a variable of float32"):
        run_pipeline(
            [to_spectrum, from_spectrum],
            COUNT,
            data=ELEMENTS,
            variables=VARIABLES,
            optimizer_function=sgd(0.1),
            gradient_accumulation_dtype=jnp.complex64,
        )


def test_a_complex_loss_is_refused() -> None:
    configure(2)
    with pytest.raises(PipelineError, match="and real"):
        run_pipeline(
            [to_spectrum, lambda v, z, y: jnp.sum(z * v["filter"])],
            COUNT,
            data=ELEMENTS,
            variables=VARIABLES,
            optimizer_function=sgd(0.1),
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ipus", [2, 4])
@pytest.mark.parametrize("engine", ENGINES)
def test_check_pipeline_compares_both_parts(engine: str, ipus: int) -> None:
    """With four IPUs, there are two replicas, whose gradients are averaged."""
    configure(ipus)
    optimizer = ipu.optimizers.CrossReplicaOptimizer(optax.sgd(0.1))
    checked = check_pipeline(
        [to_spectrum, from_spectrum],
        COUNT,
        infeed_queue=infeed(lambda: iter(ELEMENTS * 2)),
        variables=VARIABLES,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        engine=engine,
    )
    checked.raise_if_different()
    assert any("filter" in row.name for row in checked.rows)


@pytest.mark.parametrize("accumulation", [1, COUNT])
def test_a_training_without_stages(accumulation: int) -> None:
    configure(1)
    training = Training(loss_of, optax.sgd(0.1), accumulation=accumulation)
    state = training.fit(training.init(VARIABLES), ELEMENTS, len(ELEMENTS) // accumulation)
    close(state.variables, by_jax(optax.sgd(0.1), accumulation))


def test_complex_state_is_averaged_over_replicas() -> None:
    configure(2)

    def normalised(x: Any) -> Any:
        own = x * (1 + ipu.replication_ops.replication_index().astype(jnp.complex64))
        return ipu.cross_replica_ops.cross_replica_mean(
            own
        ), ipu.replication_ops.replication_normalise(x)

    mean, part = ipu.compile(normalised)(np.complex64(2 + 4j))
    assert mean == 3 + 6j
    assert part == 1 + 2j
