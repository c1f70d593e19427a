"""Functions that run in the scope of an `IPUStrategy`."""

from __future__ import annotations

import numpy as np
import pytest

import ipujax as ipu
from ipujax.ipu_strategy import IPUStrategy


@pytest.mark.parametrize("method", ["run", "experimental_run_v2"])
def test_a_strategy_runs_functions_by_both_names(method: str) -> None:
    strategy = IPUStrategy()
    with strategy.scope():
        total = getattr(strategy, method)(lambda x, y: x + y, [np.float32(2)], {"y": 3})
    assert total == 5


def test_a_function_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"fn of IPUStrategy\.run") as caught:
        IPUStrategy().experimental_run_v2(3)  # pyright: ignore[reportArgumentType]
    assert isinstance(caught.value, ipu.errors.IPUError)
