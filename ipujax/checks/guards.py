"""Has what users call answer wrong arguments with errors of ours, whatever they break first.

A guarded function, or public method of a guarded class, runs as it is written. Where it fails with
one of Python's own errors, below which no code of the user's runs, its arguments are held against
its signature and annotations, and the error says which of them is wrong, and what it must be.
"""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ipujax.checks import annotations
from ipujax.errors import IPUError

if TYPE_CHECKING:
    from ipujax.checks.arguments import Checks

Guarded = TypeVar("Guarded")

_PYTHONS_OWN = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    NameError,
    RuntimeError,
)
_SPECIAL = ("__init__", "__call__")
_PACKAGES = ("ipujax", "lowering")
_LIBRARIES = (
    *("jax", "jaxlib", "keras", "ml_dtypes", "numpy", "onnx", "opt_einsum", "optax"),
    *("optree", "scipy", "torch"),
)
"""Packages that ours call; what others raise may be a callback of the user's."""
_IS_GUARDED = "_ipujax_is_guarded"


def guard(thing: Guarded, check: Checks) -> Guarded:
    """A function that answers as this module says, or a class whose public methods do.

    A class stays the same object: its methods are replaced, and those of its bases that are ours.
    """
    if isinstance(thing, type):
        for base in thing.__mro__:
            if base.__module__.partition(".")[0] in _PACKAGES:
                _guard_methods(base, check)
        return cast(Guarded, thing)
    function = cast(Callable[..., Any], thing)
    return cast(Guarded, _guarded(function, function.__name__, check))


def _guard_methods(owner: type, check: Checks) -> None:
    if _IS_GUARDED in vars(owner) or issubclass(owner, BaseException):
        return
    for name, member in [*vars(owner).items()]:
        if name.startswith("_") and name not in _SPECIAL:
            continue
        called = owner.__name__ if name == "__init__" else f"{owner.__name__}.{name}"
        if (answering := _guarded_member(member, called, check)) is not member:
            setattr(owner, name, answering)
    setattr(owner, _IS_GUARDED, True)


def _guarded_member(member: Any, name: str, check: Checks) -> Any:
    if isinstance(member, types.FunctionType):
        return _guarded(member, name, check)
    if isinstance(member, (staticmethod, classmethod)):
        inner = cast(Any, member).__func__
        if isinstance(inner, types.FunctionType):
            return cast(Any, type(member))(_guarded(inner, name, check))
    if isinstance(member, property) and member.fset is not None:
        return member.setter(_guarded(member.fset, name, check))
    return member


def _guarded(function: Callable[..., Any], name: str, check: Checks) -> Callable[..., Any]:
    if hasattr(function, _IS_GUARDED):
        return function

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except IPUError:
            raise
        except _PYTHONS_OWN as error:
            if _is_of_others(error):
                raise
            refusal, is_clear = _refusal(function, name, args, kwargs, error, check)
            raise refusal from (None if is_clear else error)

    setattr(guarded, _IS_GUARDED, True)
    return guarded


def _is_of_others(error: Exception) -> bool:
    """Whether code of the user's, or of a package that he chose, ran when this was raised."""
    if type(error).__module__.partition(".")[0] not in (*_PACKAGES, *sys.stdlib_module_names):
        return True
    trace = error.__traceback__
    while trace is not None:
        if not _is_known(trace.tb_frame.f_code.co_filename):
            return True
        trace = trace.tb_next
    return False


@functools.cache
def _is_known(file: str) -> bool:
    """Whether a file is ours, Python's own, or of a library that ours call."""
    if file.startswith("<"):  # what Python and dataclasses make themselves
        return True
    path = Path(file)
    return any(folder in path.parents for folder in _known_folders()) and not (
        "site-packages" in path.parts and not any(name in path.parts for name in _LIBRARIES)
    )


@functools.cache
def _known_folders() -> tuple[Path, ...]:
    places = (place for name in (*_PACKAGES, *_LIBRARIES) for place in _folders_of(name))
    return (*places, *(Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib")))


def _folders_of(package: str) -> Iterator[Path]:
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        return
    if found is not None and found.origin is not None:
        yield Path(found.origin).parent


def _refusal(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    error: Exception,
    check: Checks,
) -> tuple[IPUError, bool]:
    """What is wrong with the arguments, as an error of ours, and whether that says all."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as mismatch:
        said = str(mismatch).replace("'self'", "the object itself")
        return check.refuse_type(f"{name}: {said}", f"call it as {name}{_shown(signature)}"), True
    for parameter, value in annotations.spread(signature, given):
        what = f"{parameter.name} of {name}"
        if annotations.is_deleted(value):
            return check.refuse(
                f"{what} is an array that has been deleted",
                "give an array that is still there: donated arguments are deleted by the call",
            ), True
        wanted = annotations.misfit(value, parameter.annotation, function)
        if wanted is not None:
            return check.other_than(wanted, value, what), True
    refuse = check.refuse if isinstance(error, (ValueError, ArithmeticError)) else check.refuse_type
    return refuse(
        f"{name} cannot take these arguments ({annotations.listed(given)}): {error}",
        f"call it as {name}{_shown(signature)}; the error above says what they broke",
    ), False


def _shown(signature: inspect.Signature) -> str:
    """The parameters, as a call writes them."""
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return f"({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"
