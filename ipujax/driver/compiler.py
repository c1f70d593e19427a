"""`ipu.compile`: traces, lowers and compiles a function in the style of `jax.stages`."""

from __future__ import annotations

import dataclasses as dc
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypedDict, Unpack, overload

from ipujax.driver.call_arguments import Settings, Static
from ipujax.driver.chosen_arguments import check_apart, complete_choice, read_choice
from ipujax.driver.compile_stages import Lowered, Traced
from ipujax.driver.device_options import DEFAULT_DEVICE
from ipujax.driver.dispatch import Calls
from ipujax.driver.trace_function import trace_function
from ipujax.engine import check_engine
from ipujax.ground import IPUError, MissingAttributeError, PyTree, check, refuse_iterators
from ipujax.operators import current_device
from ipujax.optimizers import Summation
from ipujax.optimizers import get_current_summation as current_summation
from ipujax.system import SYSTEM
from lowering import jaxpr, list_in_dir


class _Options(TypedDict, total=False):
    device: str | None
    engine: str
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    name: str | None
    replicas: int | None
    alone: bool
    gather: bool


@overload
def compile(fn: Callable[..., object], **options: Unpack[_Options]) -> CompiledFunction: ...


@overload
def compile(
    fn: None = None, **options: Unpack[_Options]
) -> Callable[[Callable[..., object]], CompiledFunction]: ...


@check.guard
def compile(
    fn: Callable[..., object] | None = None,
    *,
    device: str | None = None,
    engine: str = "auto",
    static_argnums: int | Sequence[int] | None = (),
    static_argnames: str | Iterable[str] | None = (),
    donate_argnums: int | Sequence[int] | None = (),
    donate_argnames: str | Iterable[str] | None = (),
    name: str | None = None,
    replicas: int | None = None,
    alone: bool = False,
    gather: bool = True,
) -> CompiledFunction | Callable[[Callable[..., object]], CompiledFunction]:
    """Compiles a JAX function for virtual IPUs; also a decorator, with or without arguments.

    Args:
      fn: any function that `jax.jit` takes.
      device: the logical device; by default that of the `scopes.ipu_scope` around this call, or
        `/device:IPU:0`.
      engine: `fused` makes one XLA computation where that is possible, `replay` dispatches every
        kernel on its own, `auto` picks the faster one.
      static_argnums: positions of arguments that are compile-time constants, as in `jax.jit`: where
        only positions or only names are given, the others follow from them.
      static_argnames: names of such arguments.
      donate_argnums: positions of arguments whose buffers may be reused, as in `jax.jit`.
      donate_argnames: names of such arguments.
      name: the program's name; the function's own by default.
      replicas: how many copies of the program run; by default as many as the device has room for.
      alone: run the program in this process only, even if `ipurun` started several; by
        default all run it together, each with so many replicas.
      gather: whether, where each process runs some IPUs (`ipurun --spread ipus`), all are given
        what a call returns; otherwise a result stays in the process that has it, for later calls
        to use there, until `popdist.gather`. It changes nothing elsewhere.

    Returns:
      A function of the same arguments and results, with `lower` for ahead-of-time use. Called with
      tracers it is `fn` itself, so `grad`, `vmap` and `jit` of it work. `TF_POPLAR_FLAGS` is read
      at its first call under a configuration. Arguments may be spread over JAX devices; what fn
      says of their places (`with_sharding_constraint`, `device_put`, the shardings of `jit`) is
      left out, since virtual IPUs decide that.

    Raises:
      ConfigTypeError: (a `TypeError`) an argument of another type, or what is no function.
      ConfigError: (a `ValueError`) an unknown engine, static or donated arguments that fn does not
        have; (raised when called) wrong options of Poplar's engine, a static argument without hash.
      DeviceError: a device that is not an IPU (raised when called).
      DeviceMeshError: (raised when called) `shard_map` or `pmap` over several JAX devices inside
        fn, meshes with axes of type Explicit there, or a call under `jax.set_mesh`.
      OutOfMemoryError: (raised when called) a program that does not fit, if
        `POPLAR_ENGINE_OPTIONS` or the configuration's `compilation_poplar_options` say that this
        is an error.
    """
    check.require_text(device, "the device of ipu.compile", optional=True)
    check.require_text(name, "the name of ipu.compile", optional=True)
    check_engine(engine)
    if replicas is not None:
        check.require_integer(replicas, "the replicas of ipu.compile", at_least=1)
    check.require_flag(alone, "alone of ipu.compile")
    check.require_flag(gather, "gather of ipu.compile")
    static = read_choice(static_argnums, static_argnames, "static")
    donated = read_choice(donate_argnums, donate_argnames, "donate")

    def wrap_function(fn: Callable[..., object]) -> CompiledFunction:
        check.require_function(fn, "fn of ipu.compile")
        device_name = (current_device() or DEFAULT_DEVICE) if device is None else device
        static_arguments = complete_choice(fn, static, "static")
        donated_arguments = complete_choice(fn, donated, "donate")
        check_apart(static_arguments, donated_arguments)
        settings = Settings(
            device=device_name,
            engine=engine,
            static=Static(static_arguments.numbers, static_arguments.names),
            donated=donated_arguments,
            name=name or _function_name(fn),
            replicas=replicas,
            alone=alone,
            gather=gather,
        )
        return CompiledFunction(fn, settings)

    return wrap_function if fn is None else wrap_function(fn)


# Attributes that programs have and functions do not, and how to get a program.
_PROGRAM_ATTRIBUTE_FIXES = {
    "report": "lower it for arguments first: .lower(*args).report()",
    "as_text": "lower it for arguments first: .lower(*args).as_text()",
    "save": "compile it for arguments first: .lower(*args).compile().save(path)",
}


class _BoundFunction:
    """A compiled function as a method of an instance, which is its first argument."""

    def __init__(self, function: CompiledFunction, instance: object):
        self._function, self._instance = function, instance

    def __call__(self, *args: object, **kwargs: object) -> PyTree:
        return self._function(self._instance, *args, **kwargs)

    def trace(self, *args: object, **kwargs: object) -> Traced:
        """Traces the method for these arguments, as `CompiledFunction.trace` does."""
        return self._function.trace(self._instance, *args, **kwargs)

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Lowers the method for these arguments, as `CompiledFunction.lower` does."""
        return self._function.lower(self._instance, *args, **kwargs)


@check.guard
@list_in_dir("lower", "trace")
class CompiledFunction:
    """A function that is compiled for virtual IPUs at its first call for each signature."""

    def __init__(self, fn: Callable[..., object], settings: Settings):
        functools.update_wrapper(self, fn, updated=())
        self._fn, self._settings = fn, settings
        self._calls: dict[Summation | None, Calls] = {}

    @jaxpr.api_boundary
    def __call__(self, *args: object, **kwargs: object) -> PyTree:
        """Runs the function; compiles it first for new shapes, dtypes or configurations."""
        if not jaxpr.trace_state_clean():
            return self._fn(*args, **kwargs)
        scope = current_summation()  # pipelines in the function read it
        calls = self._calls.get(scope)
        if calls is None or calls.generation != SYSTEM.generation:
            calls = self._calls[scope] = Calls(self._fn, self.lower, self._settings)
        try:
            return calls.dispatch_call(args, kwargs)
        except (TypeError, DeprecationWarning) as error:
            self._refuse_iterators(error, args, kwargs)
            raise

    def __repr__(self) -> str:
        return f"<ipu.compile of {self._settings.name} for {self._settings.device}>"

    def __copy__(self) -> CompiledFunction:
        return CompiledFunction(self._fn, self._settings)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledFunction:
        return self.__copy__()  # functions are not copied either

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        target: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            target = getattr(target, part, None)
        # What decorates a function is found under its name, as the function would be.
        return name if target is self else (CompiledFunction, (self._fn, self._settings))

    def __get__(
        self, instance: object, owner: type | None = None
    ) -> CompiledFunction | _BoundFunction:
        """Binds a compiled method to its instance."""
        return self if instance is None else _BoundFunction(self, instance)

    def __getattr__(self, name: str) -> NoReturn:
        """Raises an `AttributeError` that says how to get this attribute from a lowered program."""
        missing = MissingAttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}",
            fix=_PROGRAM_ATTRIBUTE_FIXES.get(name),
        )
        missing.name, missing.obj = name, self  # for Python, which suggests a name that is like it
        raise missing

    def with_argument_names(self, names: Sequence[str]) -> CompiledFunction:
        """Returns the same function with report names for its first flat arguments."""
        return CompiledFunction(self._fn, dc.replace(self._settings, names=tuple(names)))

    @property
    def program_name(self) -> str:
        """The name of the programs of this function."""
        return self._settings.name

    @jaxpr.api_boundary
    def trace(self, *args: object, **kwargs: object) -> Traced:
        """Traces for these arguments (arrays or `jax.ShapeDtypeStruct`s), as `jax.jit`'s `trace`.

        Raises:
          LeakedValueError: (a `ValueError`) the function uses a value of a trace that has ended.
          EnqueueError: (a `ValueError`) a transformation has dropped an enqueue.
        """
        try:
            return trace_function(self._fn, self._settings, args, kwargs)
        except (TypeError, DeprecationWarning) as error:
            self._refuse_iterators(error, args, kwargs)
            raise

    def _refuse_iterators(self, error: Exception, args: object, kwargs: object) -> None:
        """Raises an error with advice if an argument is an iterator, which JAX does not accept."""
        if not isinstance(error, IPUError):
            refuse_iterators(args, kwargs, self._settings.name)

    @jaxpr.api_boundary
    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Traces and lowers for these arguments.

        Raises:
          LoweringError: and its kinds, for programs that do not fit the device.
        """
        return self.trace(*args, **kwargs).lower()


def _function_name(fn: Callable[..., object]) -> str:
    """Returns the name of a function, or of the function inside a `functools.partial`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)
