"""The context that sets the schedule of pipelines, and JAX's caches."""

from __future__ import annotations

from tests.conftest import RunWithDevices

TRACE_TWICE = """
import jax
import jax.numpy as jnp
import ipujax as ipu

traces = []

@jax.jit
def users_own(x):
    traces.append(x)
    return x + 1

def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w[0]) @ w[1])

w, x = [jnp.ones((4, 4))] * 2, jnp.ones((8, 4))
users_own(x)
grad_fn = ipu.pipelining_ops.value_and_grad(loss, micro_batches=4, stages=2)
ipu.compile(grad_fn)(w, x)
ipu.compile(grad_fn).lower(w, x).report()
users_own(x)
print(len(traces))
"""


def test_what_was_jitted_before_a_pipeline_stays_compiled(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(1, TRACE_TWICE) == "1\n"
