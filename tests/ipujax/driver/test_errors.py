"""Errors go from process to process as they are, whatever they hold."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import errors
from ipujax.errors import IPUError, OutOfRangeError
from tests.conftest import RunWithDevices
from tests.ipujax.feeding import infeed

KINDS = [
    kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, IPUError)
]
COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *(lambda e, p=p: pickle.loads(pickle.dumps(e, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
]
f32 = np.float32


def made(kind: type[IPUError]) -> IPUError:
    """An error with something for every argument that its constructor needs."""
    needed = [
        p.name
        for p in inspect.signature(kind.__init__).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    return kind("what is wrong", **{name: f"its {name}" for name in needed})


@pytest.mark.parametrize("duplicate", COPIES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_survives(kind: type[IPUError], duplicate: Callable[[Any], Any]) -> None:
    error = made(kind)
    error.add_note("seen at noon")
    again = duplicate(error)
    assert type(again) is kind
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert again.__notes__ == ["seen at noon"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_formats_where_and_fix_alike(kind: type[IPUError]) -> None:
    extra = {
        name: None
        for name, p in inspect.signature(kind).parameters.items()
        if p.default is p.empty and name not in ("what", "fix")
    }
    error = kind("it is wrong", fix="mend it", **extra)
    assert str(error) == "it is wrong\n  fix:   mend it"
    assert (error.what, error.where, error.fix) == ("it is wrong", "", "mend it")
    assert error.args == ("it is wrong",)
    if "where" in inspect.signature(kind).parameters:
        error = kind("it is wrong", where="a.py:3", fix="mend it", **extra)
        assert str(error) == "it is wrong\n  where: a.py:3\n  fix:   mend it"


def exhausted() -> OutOfRangeError:
    source = infeed([f32(1)] * 3)
    run = ipu.compile(lambda v: ipu.loops.repeat(5, lambda v, x: v + x, [v], source))
    with pytest.raises(OutOfRangeError) as caught:
        run(jnp.zeros(2))
    assert caught.value.infeed is source
    return caught.value


@pytest.mark.parametrize("duplicate", COPIES)
def test_the_end_of_a_data_set_survives(duplicate: Callable[[Any], Any]) -> None:
    error = exhausted()
    again = duplicate(duplicate(error))
    assert str(again) == str(error)
    assert (again.requested, again.available) == (5, 3)
    np.testing.assert_array_equal(again.carried[0], [3, 3])
    assert again.infeed == error.infeed.name


def test_an_error_without_a_queue_has_none_afterwards() -> None:
    error = OutOfRangeError("over", requested=2, available=1)
    assert pickle.loads(pickle.dumps(error)).infeed is None


def reading_too_far(_: int) -> None:
    raise exhausted()


def test_a_pool_of_processes_hands_it_on() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(OutOfRangeError, match="ended after 3") as caught:
            pool.map(reading_too_far, [0])
    assert isinstance(caught.value.infeed, str)


@pytest.mark.parametrize(("name", "fix"), [("report", "lower(*args).report()"), ("repot", "")])
def test_what_functions_do_not_have_is_an_error_of_ours(name: str, fix: str) -> None:
    with pytest.raises(errors.MissingAttributeError, match=f"no attribute '{name}'") as caught:
        getattr(ipu.compile(jnp.sin), name)
    assert fix in caught.value.fix
    assert bool(fix) == bool(caught.value.fix)
    assert caught.value.name == name
    assert not hasattr(ipu.compile(jnp.sin), name)


WRONG_BODY = """
import traceback
import jax.numpy as jnp
import ipujax as ipu


def body(x):
    raise KeyError("of the user")


@ipu.compile
def run(x):
    return ipu.loops.repeat(10, body, [x])


for call in (run, run.lower, run.trace):
    try:
        call(jnp.ones(2))
    except KeyError as error:
        print(*(frame.name for frame in traceback.extract_tb(error.__traceback__)))
"""


def test_tracebacks_have_the_users_frames_alone(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(1, WRONG_BODY) == "<module> run body\n" * 3


OUTSIDE_OF_COMPILE = """
import traceback
import jax.numpy as jnp
import numpy as np
import optax
import ipujax as ipu

DATA = [np.ones((2, 3), np.float32)] * 8


def loss(variables, x):
    raise KeyError("of the user")


def fit():
    training = ipu.training.Training(loss, optax.sgd(0.1))
    training.fit(training.init({"w": jnp.ones(3)}), DATA, steps=2)


def estimate():
    config = ipu.ipu_run_config.RunConfig(ipu_run_config=ipu.ipu_run_config.IPURunConfig(2))
    ipu.ipu_estimator.IPUEstimator(loss_of_mode, config=config).train(lambda: DATA, steps=2)


def loss_of_mode(variables, mode):
    return loss(variables, mode)


def compare():
    ipu.compare(lambda x: loss(x, x), DATA[:1])


for call in (fit, estimate, compare):
    try:
        call()
    except KeyError as error:
        print(*(frame.name for frame in traceback.extract_tb(error.__traceback__)))
"""


def test_tracebacks_of_what_compiles_by_itself_have_the_users_frames_alone(
    run_with_devices: RunWithDevices,
) -> None:
    assert run_with_devices(1, OUTSIDE_OF_COMPILE) == (
        "<module> fit loss\n<module> estimate loss_of_mode loss\n<module> compare <lambda> loss\n"
    )


class Silent:
    """Has no text of its own."""

    def method(self) -> None:
        """Does nothing."""


def local() -> Any:
    class Own:
        def method(self) -> None:
            """Does nothing."""

    return Own()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (lambda: 0, "`<lambda>`"),
        (made, "`made`"),
        (COPIES.append, "`append`"),
        (len, "`len`"),
        (object(), "<object object>"),
        (Silent(), "<Silent object>"),
        (Silent().method, "`Silent.method`"),
        (local().method, "`local.<locals>.Own.method`"),
        (inspect.Signature().bind, "`Signature.bind`"),
    ],
)
def test_messages_call_functions_and_objects_by_their_names(value: Any, shown: str) -> None:
    assert str(IPUError(f"it is {value!r}, of type x")) == f"it is {shown}, of type x"
