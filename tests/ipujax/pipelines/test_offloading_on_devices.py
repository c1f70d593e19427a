"""What becomes of offloading on JAX's own devices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.engine import remote_storage
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.numbers import use_ipus


@pytest.mark.parametrize(("offload", "asks"), [(None, False), (True, True)])
def test_only_what_was_asked_for_leaves_jax_s_own_device(
    monkeypatch: pytest.MonkeyPatch, offload: bool | None, asks: bool
) -> None:
    """The Program offloads by default; JAX's device is asked for other memory if the user was."""
    asked: list[int] = []

    def has_none(placement: Any, ipu: int) -> bool:
        asked.append(ipu)
        return False

    monkeypatch.setattr(remote_storage, "_has_remote_memory", has_none)
    use_ipus(2)

    @ipu.compile(engine="replay")
    def train(variables: Any) -> Any:
        return pipeline(
            [lambda v: jnp.tanh(v[0]), lambda v, y: jnp.sum((y * v[1]) ** 2)],
            4,
            variables=variables,
            outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.adam(0.1), loss),
            offload_weight_update_variables=offload,
        )

    weights = np.ones((2, 64), np.float32)
    executable = train.lower((weights[0], weights[1])).compile()
    assert "streaming memory" in executable.as_text()
    executable((weights[0], weights[1]))
    assert bool(asked) == asks
