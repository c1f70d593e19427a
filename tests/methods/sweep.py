"""Calls methods, and sets attributes, with values that they cannot take, and says what came of it.

What is right is an error of ours, or an answer. Anything else is bare: an error of Python's or of a
library's below which no code of the user's ran, and what does not come back in time.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses as dc
import inspect
import io
import signal
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ipujax.errors import IPUError
from tests.methods.instances import GOOD, INSTANCES

SECONDS = 20
_OURS = ("ipujax", "lowering")


class _Hangs(BaseException):
    """A call took longer than `SECONDS`."""


class Opaque:
    """An object that nothing can be done with."""

    def __repr__(self) -> str:
        return "Opaque()"


def _deleted() -> jax.Array:
    array = jax.numpy.zeros(3)
    array.delete()
    return array


HOSTILE: dict[str, Any] = {
    "None": None,
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "text": "a",
    "no text": "",
    "list": [],
    "dict": {},
    "object": Opaque(),
    "deleted": _deleted(),
    "array": np.ones(2),
    "function": lambda *args: args[7],
}


@dc.dataclass(frozen=True)
class Case:
    """One member of an object, and which of its parameters gets the hostile value.

    Attributes:
      owner: a key of `INSTANCES`.
      member: the method's or attribute's name.
      parameter: the parameter's name; `=` for an attribute that is set.
    """

    owner: str
    member: str
    parameter: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.member}({self.parameter})"


@dc.dataclass(frozen=True)
class Outcome:
    """What came of a call: `own`, `accepted` or `bare`, and the error in words."""

    kind: str
    said: str = ""


def cases(owner: str) -> Iterator[Case]:
    """Every parameter of every public method, and every attribute that can be set."""
    holder = INSTANCES[owner]()
    for name in dir(holder):
        if name.startswith("_") and name != "__call__":
            continue
        if name in _attributes(holder):
            yield Case(owner, name, "=")
        elif (method := _method(holder, name)) is not None:
            yield from (Case(owner, name, each.name) for each in _parameters(method))


def run(case: Case, value: Any) -> Outcome:
    """Makes an object, calls its member with one hostile value, and says what came of it."""
    holder = INSTANCES[case.owner]()
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), _in_time():
        try:
            if case.parameter == "=":
                setattr(holder, case.member, value)
            else:
                _call(getattr(holder, case.member), case.parameter, value)
        except IPUError as error:
            return Outcome("own", str(error))
        except _Hangs:
            return Outcome("bare", f"no answer in {SECONDS} s")
        except Exception as error:
            if _is_of_the_user(error):
                return Outcome("own", "an error of the user's function")
            return Outcome("bare", f"{type(error).__name__}: {error}")
    return Outcome("accepted")


def counted(owners: list[str], tell: Callable[[Case, str, Outcome], None]) -> dict[str, int]:
    """How many calls there were of each kind; `tell` hears of each."""
    counts: collections.Counter[str] = collections.Counter()
    for owner in owners:
        for case in cases(owner):
            for name, value in HOSTILE.items():
                outcome = run(case, value)
                counts[outcome.kind] += 1
                tell(case, name, outcome)
    return dict(counts)


def _method(holder: Any, name: str) -> Any:
    """A method of ours; None for what is inherited of other libraries, or is no method."""
    for base in type(holder).__mro__:
        if name in vars(base):
            member = vars(base)[name]
            home = getattr(member, "__module__", None) or base.__module__
            is_ours = home.partition(".")[0] in _OURS
            is_method = isinstance(member, (types.FunctionType, staticmethod, classmethod))
            return getattr(holder, name) if is_ours and is_method else None
    if type(holder).__name__ == "Opset":
        return getattr(holder, name)
    return None


def _attributes(holder: Any) -> set[str]:
    """Attributes that can be set: own ones, unless they are frozen, and properties."""
    frozen = dc.is_dataclass(holder) and holder.__dataclass_params__.frozen
    own = getattr(holder, "__dict__", {})
    of_others = type(holder).__mro__[1:]
    is_others = any(b.__module__.partition(".")[0] in ("torch", "keras") for b in of_others)
    names = set() if frozen or is_others else {n for n in own if not n.startswith("_")}
    for base in () if frozen else type(holder).__mro__:
        if base.__module__.partition(".")[0] not in _OURS:
            continue
        for name, member in vars(base).items():
            if isinstance(member, property):
                if member.fset is not None:
                    names.add(name)
            elif hasattr(type(member), "__set__") and not hasattr(base, "_fields"):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def _parameters(method: Any) -> list[inspect.Parameter]:
    """What can be given; a method that takes anything gets one value by position."""
    return [p for p in inspect.signature(method).parameters.values() if p.kind != p.VAR_KEYWORD]


def _call(method: Any, parameter: str, value: Any) -> None:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for each in _parameters(method):
        if each.name == parameter:
            given = value
        elif each.default is not each.empty or each.kind == each.VAR_POSITIONAL:
            continue
        else:
            given = _good(each)
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            args.append(given)
        else:
            kwargs[each.name] = given
    result = method(*args, **kwargs)
    if isinstance(result, contextlib.AbstractContextManager):
        with result:
            pass


def _good(parameter: inspect.Parameter) -> Any:
    if parameter.name in GOOD:
        return GOOD[parameter.name]
    said = str(parameter.annotation)
    for start, value in (("str", "a"), ("int", 1), ("float", 0.5), ("bool", True)):
        if said.startswith((start, f"<class '{start}'")):
            return value
    if said.startswith(("Sequence[str]", "list[str]", "Iterable[str]")):
        return ["x"]
    return np.ones(2, np.float32)


def _is_of_the_user(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<lambda>" and code.co_filename.startswith(_here()):
            return True
        trace = trace.tb_next
    return False


def _here() -> str:
    return __file__.rpartition("methods")[0]


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
