"""Models with stages, as people write them, against `jax.value_and_grad` over the micro-batches."""

from __future__ import annotations

import jax
import pytest

import ipujax as ipu
from ipujax.pipelining_ops import value_and_grad
from tests.ipujax.feeding import configure
from tests.ipujax.pipelining import ENGINES
from tests.ipujax.staged_models import MODELS
from tests.ipujax.staging import relative_distance, value_and_grad_of_mean

NOT_OF_JAX = ("recompute", "stages")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_numbers_of_plain_jax(name: str, engine: str) -> None:
    configure(4)
    model = MODELS[name]
    of_jax = {name: value for name, value in model.options.items() if name not in NOT_OF_JAX}
    expected = jax.jit(value_and_grad_of_mean(model.loss, 2, **of_jax))(*model.args)
    step = value_and_grad(model.loss, micro_batches=2, **model.options)
    result = ipu.compile(lambda *args: step(*args), engine=engine, replicas=1)(*model.args)
    assert relative_distance(result, expected) < model.tolerance
