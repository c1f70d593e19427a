"""The demo's table fits the terminal, whole words on each line."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ipujax as ipu
from ipujax.demo.who_runs_what import who_runs_what
from tests.numbers import use_ipus


@pytest.mark.parametrize("columns", [40, 80])
def test_lines_are_no_wider_than_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    use_ipus(2)

    @ipu.compile
    def step(w, x):
        with ipu.scopes.ipu_shard(1):
            return jax.grad(lambda w: (jax.nn.softmax(x @ w) ** 2).sum())(w)

    table = who_runs_what(step.lower(np.ones((4, 4)), np.ones((4, 4))).program)
    assert max(map(len, table.splitlines())) <= columns
    assert "matmul" in table.split()[table.split().index("forward") + 1]
    assert "~" not in table
