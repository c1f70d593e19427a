"""Guards public functions: Python errors from bad arguments become errors that name the argument.

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

from ipujax.ground import annotations
from ipujax.ground.errors import (
    ConfigNotImplementedError,
    FailedPreconditionError,
    IPUError,
    MissingPathError,
    OutOfBoundsError,
    PathError,
    UnknownKeyError,
)
from ipujax.ground.suggestions import suggest_closest_name

if TYPE_CHECKING:
    from ipujax.ground.argument_checks import Checks

Guarded = TypeVar("Guarded")

_BUILTIN_ERRORS = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    NameError,
    RuntimeError,
)
_ERROR_FOR_BUILTIN: dict[type[Exception], type[IPUError]] = {
    IndexError: OutOfBoundsError,
    KeyError: UnknownKeyError,
    NotImplementedError: ConfigNotImplementedError,
    RuntimeError: FailedPreconditionError,
}
"""Errors of ipujax that are also errors of these kinds, as handlers expect."""
_SPECIAL = ("__init__", "__call__", "__getitem__")
_PACKAGES = ("ipujax", "lowering")
_CALLED = (*_PACKAGES, "jax", "jaxlib", "ml_dtypes", "numpy", "onnx", "opt_einsum", "scipy")
"""Packages whose errors explain what was wrong with the arguments that ipujax passed to them."""
_OURS = (*_CALLED, "keras", "optax", "optree", "torch")
"""These, and those whose errors may be of a model, an optimizer or data that the user made."""
_BOUNDARY = "reraise_with_filtered_traceback"
_IS_GUARDED = "_ipujax_is_guarded"


def guard(thing: Guarded, check: Checks) -> Guarded:
    """Returns a function, or a class with public methods, whose bad arguments raise clear errors.

    A class stays the same object: its methods are replaced, and those of its bases that are ours.
    """
    if isinstance(thing, type):
        for base in thing.__mro__:
            if base.__module__.partition(".")[0] in _PACKAGES:
                _guard_methods(base, check)
        return cast(Guarded, thing)
    function = cast(Callable[..., object], thing)
    return cast(Guarded, _guard_function(function, function.__name__, check))


def _guard_methods(owner: type, check: Checks) -> None:
    if _IS_GUARDED in vars(owner) or issubclass(owner, BaseException):
        return
    for name, member in [*vars(owner).items()]:
        if name.startswith("_") and name not in _SPECIAL:
            continue
        called = owner.__name__ if name == "__init__" else f"{owner.__name__}.{name}"
        if (answering := _guard_member(member, called, check)) is not member:
            setattr(owner, name, answering)
    setattr(owner, _IS_GUARDED, True)


def _guard_member(member: object, name: str, check: Checks) -> object:
    if isinstance(member, types.FunctionType):
        return _guard_function(member, name, check)
    if isinstance(member, (staticmethod, classmethod)):
        wrapped_function = cast(Any, member).__func__
        if isinstance(wrapped_function, types.FunctionType):
            return cast(Any, type(member))(_guard_function(wrapped_function, name, check))
    if isinstance(member, property) and member.fset is not None:
        return member.setter(_guard_function(member.fset, name, check))
    return member


def _guard_function(function: Callable[..., Any], name: str, check: Checks) -> Callable[..., Any]:
    if getattr(function, _IS_GUARDED, None) is function:
        return function
    if function.__code__.co_name == _BOUNDARY:  # JAX's stays the outermost: it hides our frames
        from ipujax.ground import user_lines as lines  # late: it needs JAX

        inside = cast(Any, function).__wrapped__
        bounded = lines.api_boundary(_guard_function(inside, name, check))
        setattr(bounded, _IS_GUARDED, bounded)
        return bounded

    @functools.wraps(function)
    def call_with_checks(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except IPUError:
            raise
        except _BUILTIN_ERRORS as error:
            if _is_raised_in_other_packages(error, _OURS) or _is_called_by_us():
                raise
            if (refusal := _wrong_argument_error(function, name, args, kwargs, check)) is not None:
                raise refusal from None
            listed = annotations.describe_arguments(
                inspect.signature(function).bind(*args, **kwargs).arguments
            )
            if not listed or _is_raised_in_other_packages(error, _CALLED):
                raise
            raise _call_failure_error(
                function, f"{name} cannot take {listed}", error, check
            ) from error
        except OSError as error:
            if (
                error.filename is None
                or _is_raised_in_other_packages(error, _CALLED)
                or _is_called_by_us()
            ):
                raise
            raise _path_error(name, error, check) from error

    # Itself, and not True: a function that copies its attributes is not guarded.
    setattr(call_with_checks, _IS_GUARDED, call_with_checks)
    if function.__name__ == "__init__":  # Keras reads constructors' parameters past `__wrapped__`
        call_with_checks.__signature__ = inspect.signature(function)  # pyright: ignore[reportAttributeAccessIssue]
    return call_with_checks


def calling_frame(above: int) -> types.FrameType | None:
    """Returns the frame `above` calls above the caller, not counting frames of guards."""
    frame = inspect.currentframe()
    for _ in range(above + 1):
        frame = frame and frame.f_back
        while frame is not None and _is_code_of_guards(frame.f_code):
            frame = frame.f_back
    return frame


def _is_code_of_guards(code: types.CodeType) -> bool:
    return code.co_name == _BOUNDARY or (
        code.co_name == "call_with_checks" and code.co_filename == __file__
    )


def _is_called_by_us() -> bool:
    """Returns whether code of ipujax called the guarded function."""
    frame = calling_frame(1)
    return frame is not None and _is_file_of(frame.f_code.co_filename, _PACKAGES)


def _is_raised_in_other_packages(error: Exception, packages: tuple[str, ...]) -> bool:
    """Returns whether code of other packages ran when an error was raised."""
    if type(error).__module__.partition(".")[0] not in (*_PACKAGES, *sys.stdlib_module_names):
        return True
    trace = error.__traceback__
    while trace is not None:
        if not _is_file_of(trace.tb_frame.f_code.co_filename, (*packages, "")):
            return True
        trace = trace.tb_next
    return False


@functools.cache
def _is_file_of(file: str, packages: tuple[str, ...]) -> bool:
    """Returns whether a file belongs to one of the packages; `""` is Python itself."""
    if file.startswith("<"):  # what Python and dataclasses make themselves
        return "" in packages
    parents = Path(file).parents
    return any(folder in parents for name in packages for folder in _package_folders(name)) and (
        "site-packages" not in file or any(name and name in Path(file).parts for name in packages)
    )


@functools.cache
def _package_folders(package: str) -> tuple[Path, ...]:
    if not package:
        return tuple(Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib"))
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return ()
    return () if spec is None or spec.origin is None else (Path(spec.origin).parent,)


def _wrong_argument_error(
    function: Callable[..., object],
    name: str,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    check: Checks,
) -> IPUError | None:
    """Builds the error for the first argument that contradicts the signature or annotations."""
    signature = inspect.signature(function)
    try:
        bound_arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as mismatch:
        return check.type_error(
            f"{name}: {describe_mismatch(signature, kwargs, mismatch)}",
            f"call it as {name}{signature_text(signature)}",
        )
    for parameter, value in annotations.iterate_arguments(signature, bound_arguments):
        argument = f"{parameter.name} of {name}"
        if annotations.is_deleted(value):
            return check.value_error(
                f"{argument} is an array that has been deleted",
                "give an array that is still there: donated arguments are deleted by the call",
            )
        expected = annotations.describe_annotation_mismatch(value, parameter.annotation, function)
        if expected is not None:
            return check.wrong_type_error(expected, value, argument)
    return None


def _call_failure_error(
    function: Callable[..., object], description: str, error: Exception, check: Checks
) -> IPUError:
    """Builds the error for arguments that match the annotations but made the function fail."""
    refuse = (
        check.value_error if isinstance(error, (ValueError, ArithmeticError)) else check.type_error
    )
    refusal = refuse(
        f"{description}: {error}",
        f"call it as {function.__name__}{signature_text(inspect.signature(function))}; the error "
        "above says what they broke",
    )
    for builtin, kind in _ERROR_FOR_BUILTIN.items():
        if isinstance(error, builtin) and not isinstance(refusal, builtin):
            return kind(refusal.what, where=refusal.where, fix=refusal.fix)
    return refusal


def _path_error(name: str, error: OSError, check: Checks) -> IPUError:
    """Builds an error for a file or folder that is also the same kind of Python error."""
    kind = MissingPathError if isinstance(error, FileNotFoundError) else PathError
    base_error = check.value_error(
        f"{name}: {error.filename!r}: {error.strerror}",
        "name a file that is there, or can be written, on a disk that is not full",
    )
    refusal = kind(base_error.what, where=base_error.where, fix=base_error.fix)
    refusal.errno, refusal.strerror, refusal.filename = error.errno, base_error.what, error.filename
    return refusal


def describe_mismatch(
    signature: inspect.Signature, kwargs: Mapping[str, object], mismatch: TypeError
) -> str:
    """Returns why a call does not fit: an unknown keyword first, since it may be misspelt."""
    parameters = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return str(mismatch)
    unknown = next((name for name in kwargs if name not in parameters), None)
    if unknown is None:
        return str(mismatch)
    hint = suggest_closest_name(unknown, parameters)
    return f"got an unexpected keyword argument {unknown!r}{hint}"


def signature_text(signature: inspect.Signature) -> str:
    """Returns the parameters of a function as its definition has them, without annotations."""
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    return str(inspect.Signature(parameters))
