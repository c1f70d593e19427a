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
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ipujax.checks import annotations
from ipujax.errors import (
    ConfigNotImplementedError,
    FailedPreconditionError,
    IPUError,
    MissingPathError,
    OutOfBoundsError,
    PathError,
    UnknownKeyError,
)

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
_KEEPING: dict[type[Exception], type[IPUError]] = {
    IndexError: OutOfBoundsError,
    KeyError: UnknownKeyError,
    NotImplementedError: ConfigNotImplementedError,
    RuntimeError: FailedPreconditionError,
}
"""Errors of ours that are errors of these kinds, too, as handlers expect."""
_SPECIAL = ("__init__", "__call__", "__getitem__")
_PACKAGES = ("ipujax", "lowering")
_CALLED = (*_PACKAGES, "jax", "jaxlib", "ml_dtypes", "numpy", "onnx", "opt_einsum", "scipy")
"""Packages whose errors say what was wrong with what ours gave them."""
_OURS = (*_CALLED, "keras", "optax", "optree", "torch")
"""These, and those whose errors may be of a model, an optimizer or data that the user made."""
_BOUNDARY = "reraise_with_filtered_traceback"
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
    if getattr(function, _IS_GUARDED, None) is function:
        return function
    if function.__code__.co_name == _BOUNDARY:  # JAX's stays the outermost: it hides our frames
        from ipujax.checks import lines  # late: it needs JAX

        inside = cast(Any, function).__wrapped__
        bounded = lines.api_boundary(_guarded(inside, name, check))
        setattr(bounded, _IS_GUARDED, bounded)
        return bounded

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except IPUError:
            raise
        except _PYTHONS_OWN as error:
            if _is_of_others(error, _OURS) or _is_called_by_us():
                raise
            if (refusal := _wrong_argument(function, name, args, kwargs, check)) is not None:
                raise refusal from None
            listed = annotations.listed(inspect.signature(function).bind(*args, **kwargs).arguments)
            if not listed or _is_of_others(error, _CALLED):
                raise
            raise _broken(function, f"{name} cannot take {listed}", error, check) from error
        except OSError as error:
            if error.filename is None or _is_of_others(error, _CALLED) or _is_called_by_us():
                raise
            raise _refused_path(name, error, check) from error

    setattr(guarded, _IS_GUARDED, guarded)  # what copies its attributes is not guarded
    if function.__name__ == "__init__":  # Keras reads constructors' parameters past `__wrapped__`
        guarded.__signature__ = inspect.signature(function)  # pyright: ignore[reportAttributeAccessIssue]
    return guarded


def calling_frame(above: int) -> types.FrameType | None:
    """The frame so many calls above the function that asks, those of guards not counted."""
    frame = inspect.currentframe()
    for _ in range(above + 1):
        frame = frame and frame.f_back
        while frame is not None and _is_of_guards(frame.f_code):
            frame = frame.f_back
    return frame


def _is_of_guards(code: types.CodeType) -> bool:
    return code.co_name == _BOUNDARY or (code.co_name == "guarded" and code.co_filename == __file__)


def _is_called_by_us() -> bool:
    """Whether code of ours called what is guarded, and may have something of its own to say."""
    frame = calling_frame(1)
    return frame is not None and _is_in(frame.f_code.co_filename, _PACKAGES)


def _is_of_others(error: Exception, packages: tuple[str, ...]) -> bool:
    """Whether other code than Python's and that of packages ran when this was raised."""
    if type(error).__module__.partition(".")[0] not in (*_PACKAGES, *sys.stdlib_module_names):
        return True
    trace = error.__traceback__
    while trace is not None:
        if not _is_in(trace.tb_frame.f_code.co_filename, (*packages, "")):
            return True
        trace = trace.tb_next
    return False


@functools.cache
def _is_in(file: str, packages: tuple[str, ...]) -> bool:
    """Whether a file is of one of the packages; `""` is Python itself."""
    if file.startswith("<"):  # what Python and dataclasses make themselves
        return "" in packages
    parents = Path(file).parents
    return any(folder in parents for name in packages for folder in _folders_of(name)) and (
        "site-packages" not in file or any(name and name in Path(file).parts for name in packages)
    )


@functools.cache
def _folders_of(package: str) -> tuple[Path, ...]:
    if not package:
        return tuple(Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib"))
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        return ()
    return () if found is None or found.origin is None else (Path(found.origin).parent,)


def _wrong_argument(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    check: Checks,
) -> IPUError | None:
    """The error for the first argument that signature and annotations say is wrong."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as mismatch:
        return check.refuse_type(f"{name}: {mismatch}", f"call it as {name}{_shown(signature)}")
    for parameter, value in annotations.spread(signature, given):
        what = f"{parameter.name} of {name}"
        if annotations.is_deleted(value):
            return check.refuse(
                f"{what} is an array that has been deleted",
                "give an array that is still there: donated arguments are deleted by the call",
            )
        wanted = annotations.misfit(value, parameter.annotation, function)
        if wanted is not None:
            return check.other_than(wanted, value, what)
    return None


def _broken(function: Callable[..., Any], what: str, error: Exception, check: Checks) -> IPUError:
    """The error for arguments that annotations allow, and that broke something all the same."""
    refuse = check.refuse if isinstance(error, (ValueError, ArithmeticError)) else check.refuse_type
    refusal = refuse(
        f"{what}: {error}",
        f"call it as {function.__name__}{_shown(inspect.signature(function))}; the error above "
        "says what they broke",
    )
    for builtin, kind in _KEEPING.items():
        if isinstance(error, builtin) and not isinstance(refusal, builtin):
            return kind(refusal.what, where=refusal.where, fix=refusal.fix)
    return refusal


def _refused_path(name: str, error: OSError, check: Checks) -> IPUError:
    """An error of a file or folder as one of ours, which is the same kind of error of Python's."""
    kind = MissingPathError if isinstance(error, FileNotFoundError) else PathError
    said = check.refuse(
        f"{name}: {error.filename!r}: {error.strerror}",
        "name a file that is there, or can be written, on a disk that is not full",
    )
    refusal = kind(said.what, where=said.where, fix=said.fix)
    refusal.errno, refusal.strerror, refusal.filename = error.errno, said.what, error.filename
    return refusal


def _shown(signature: inspect.Signature) -> str:
    """The parameters, as a call writes them."""
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return f"({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"
