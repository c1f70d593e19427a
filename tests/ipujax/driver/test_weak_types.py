"""Results are weakly typed where those of `jax.jit` are: they promote as Python's numbers do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from tests.ipujax.pipelining import ENGINES
from tests.numbers import same, use_ipus

GIVEN = [2.5, 3, True, np.float32(2), np.arange(3.0), "weak"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("donated", [(), (0,)], ids=["kept", "donated"])
@pytest.mark.parametrize("given", GIVEN, ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("engine", ENGINES)
def test_arguments_that_are_results(engine: str, given: Any, donated: tuple[int, ...]) -> None:
    use_ipus(2)

    def fn(x: Any) -> Any:
        with ipu.scopes.ipu_shard(1):
            return x, x * 2, jnp.asarray(1.5)

    def argument() -> Any:
        return jnp.asarray(2.5) if isinstance(given, str) else given

    run = ipu.compile(fn, engine=engine, donate_argnums=donated)
    wanted = jax.jit(fn)(argument())
    same(run(argument()), wanted)
    same(run.lower(argument()).compile()(argument()), wanted)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_host_computes(engine: str) -> None:
    def fn(x: Any) -> Any:
        with ipu.scopes.outside_compilation_scope():
            return x * 2

    same(ipu.compile(fn, engine=engine)(2.5), jax.jit(fn)(2.5))
