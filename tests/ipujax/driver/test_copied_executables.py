"""Equal kernels of IPUs on different JAX devices: compiled for one, loaded for the others."""

from __future__ import annotations

import pytest

from tests.conftest import RunWithDevices

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
import ipujax as ipu

jax.config.update("jax_compilation_cache_dir", None)  # what comes from there is not copied
STAGES, WIDTH = 6, 16
compiled = []
original = jax.stages.Lowered.compile

def count(lowered, *args, **kwargs):
    compiled.append(lowered)
    return original(lowered, *args, **kwargs)

jax.stages.Lowered.compile = count

def loss_fn(weights, x):
    for number, weight in enumerate(weights):
        with ipu.scopes.pipeline_stage(number):
            x = jnp.tanh(x @ weight)
    with ipu.scopes.pipeline_stage(STAGES - 1):
        return jnp.mean(x**2)

weights = list(jax.random.normal(jax.random.key(0), (STAGES, WIDTH, WIDTH)) / 4)
x = jax.random.normal(jax.random.key(1), (12, WIDTH))
grad_fn = ipu.pipelining_ops.value_and_grad(loss_fn, micro_batches=6)
executable = ipu.compile(grad_fn, gather=False).lower(weights, x).compile()
kernels = executable.memory_analysis()
del compiled[:]
executable = ipu.compile(grad_fn, gather=False).lower(weights, x).compile()
assert len(compiled) < len(kernels) / 2, (len(compiled), len(kernels))
assert executable.cost_analysis()["flops"] > 0
loss, gradients = executable(weights, x)
expected, plain = jax.value_and_grad(loss_fn)(weights, x)
np.testing.assert_allclose(loss, expected, rtol=1e-6)
for number, (mine, theirs) in enumerate(zip(gradients, plain)):
    assert mine.devices() == {jax.devices()[number]}
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
"""


def test_the_middle_stages_are_loaded(run_with_devices: RunWithDevices) -> None:
    run_with_devices(8, PROGRAM)


@pytest.mark.exhaustive
def test_what_jax_does_not_copy_is_compiled(run_with_devices: RunWithDevices) -> None:
    refuse = """
from jax.experimental import serialize_executable

def serialize(compiled):
    raise NotImplementedError

serialize_executable.serialize = serialize
"""
    program = PROGRAM.replace("len(compiled) < len(kernels) / 2", "len(compiled) >= len(kernels)")
    run_with_devices(8, refuse + program)
