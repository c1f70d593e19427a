"""Compiled functions and programs under `copy`, `deepcopy` and `pickle`."""

from __future__ import annotations

import copy
import dataclasses as dc
import pickle
from typing import Any

import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError
from tests.numbers import use_ipus

X = np.float32(3)


@ipu.compile
def decorated(x: Any) -> Any:
    return x + 1


def plain(x: Any) -> Any:
    return x + 2


class Holder:
    @ipu.compile
    def method(self, x: Any) -> Any:
        return x + 4


@pytest.mark.parametrize("ipus", [1, 2])
@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_copies_of_a_function_that_has_run_compute_the_same(ipus: int, engine: str) -> None:
    use_ipus(ipus)
    run = ipu.compile(lambda x: x * 2, engine=engine)
    assert run(X) == 6
    for other in (copy.copy(run), copy.deepcopy(run)):
        assert other is not run
        assert other(X) == 6
        assert other.lower(X).as_text() == run.lower(X).as_text()


def test_what_holds_a_compiled_function_is_copied_with_it() -> None:
    @dc.dataclass
    class Trainer:
        step: Any
        state: list[float]

    use_ipus(2)
    trainer = Trainer(ipu.compile(lambda x: x + 1, engine="replay"), [1.0])
    trainer.step(X)
    other = copy.deepcopy(trainer)
    other.state.append(2.0)
    assert trainer.state == [1.0]
    assert other.step(X) == 4


def test_functions_are_pickled_by_their_names() -> None:
    use_ipus(1)
    decorated(X)
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert pickle.loads(pickle.dumps(Holder.method)) is Holder.method
    again = pickle.loads(pickle.dumps(ipu.compile(plain, engine="replay", static_argnums=())))
    assert again(X) == 5
    assert repr(again) == repr(ipu.compile(plain))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(ipu.compile(lambda x: x))


def test_programs_are_their_own_copies_and_are_not_pickled() -> None:
    use_ipus(2)
    run = ipu.compile(lambda x: x + 1)
    lowered = run.lower(X)
    for each in (run.trace(X), lowered, lowered.compile()):
        assert copy.copy(each) is each
        assert copy.deepcopy([each])[0] is each
        with pytest.raises(ConfigTypeError, match=r"cannot be pickled.*\n.*save\(path\)"):
            pickle.dumps(each)
