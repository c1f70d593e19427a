"""`ipu.compile`: traces, lowers and compiles a function in the style of `jax.stages`."""

from __future__ import annotations

import dataclasses as dc
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)

from jax.sharding import Mesh

from ipujax.driver.call_arguments import Settings, Static
from ipujax.driver.chosen_arguments import (
    complete_argument_selection,
    parse_argument_selection,
    refuse_static_donated_arguments,
)
from ipujax.driver.compile_stages import Lowered, Traced
from ipujax.driver.device_options import DEFAULT_DEVICE
from ipujax.driver.dispatch import Calls
from ipujax.driver.refused_arguments import (
    refuse_arguments_that_are_no_arrays,
    refuse_deleted_arrays,
    refuse_wrong_call,
)
from ipujax.driver.trace_function import trace_function
from ipujax.engine import check_engine
from ipujax.ground import (
    ConfigError,
    IPUError,
    MissingAttributeError,
    check,
    suggest_closest_name,
)
from ipujax.operators import current_device
from ipujax.optimizers import Summation
from ipujax.optimizers import get_current_summation as current_summation
from ipujax.system import SYSTEM, check_meshes
from lowering import jaxpr, limit_dir_to

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@overload
def compile(
    fn: Callable[Parameters, Result],
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
    gather: bool | None = None,
    meshes: Sequence[Mesh] | None = None,
) -> CompiledFunction[Parameters, Result]: ...


@overload
def compile(
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
    gather: bool | None = None,
    meshes: Sequence[Mesh] | None = None,
) -> Callable[[Callable[Parameters, Result]], CompiledFunction[Parameters, Result]]: ...


@check.guard
def compile(
    fn: Callable[..., Any] | None = None,
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
    gather: bool | None = None,
    meshes: Sequence[Mesh] | None = None,
) -> CompiledFunction[..., Any] | Callable[[Callable[..., Any]], CompiledFunction[..., Any]]:
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
      gather: whether a call brings its results together: to JAX's first device, or with `meshes`,
        replicated, to the first mesh; and with `ipurun --spread ipus` to every process. Otherwise
        each stays on the devices (and in the process) of the IPU that computed it, where the next
        call takes it without a copy; `popdist.gather` gives it to all processes. By default true
        without `meshes`, false with them. A program that does not gather is replayed if its IPUs
        are on several JAX devices.
      meshes: one mesh of JAX devices for each IPU of the device, replica after replica, all with
        the same axes (see `ipu.meshes`): IPU i runs on `meshes[i]`. Inside fn,
        `with_sharding_constraint`, `shard_map` and collectives over the axes act within the IPU
        that runs them. An argument that is sharded over the mesh of the IPU that reads it stays
        as it is, any other is copied to each device of that mesh, which is logged once; a result
        of the same path, shape and dtype as an argument that was given sharded is sharded
        likewise. Where nothing is configured, the device has as many IPUs as there are meshes.
        Kernels are compiled at the first call, for the shardings that their operands then have.

    Returns:
      A function of the same arguments and results, with `lower` for ahead-of-time use. Called with
      tracers it is `fn` itself, so `grad`, `vmap` and `jit` of it work. `TF_POPLAR_FLAGS` is read
      at its first call under a configuration. Arguments may be spread over JAX devices; without
      `meshes`, what fn says of their places (`with_sharding_constraint`, `device_put`, the
      shardings of `jit`) is left out, since virtual IPUs decide that.

    Raises:
      ConfigTypeError: (a `TypeError`) an argument of another type, or what is no function.
      ConfigError: (a `ValueError`) an unknown engine, static or donated arguments that fn does not
        have; (raised when called) wrong options of Poplar's engine, a static argument without hash.
      DeviceError: a device that is not an IPU (raised when called).
      DeviceMeshError: meshes that differ in their axes, or have a device twice; (raised when
        called) meshes that are not as many as IPUs; `shard_map` or `pmap` over other JAX devices
        inside fn, meshes with axes of type Explicit there, or a call under `jax.set_mesh`.
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
    if gather is not None:
        check.require_flag(gather, "gather of ipu.compile")
    checked_meshes = check_meshes(meshes)
    if checked_meshes and engine == "fused":
        raise ConfigError(
            "engine='fused' makes one computation for one JAX device, and meshes= gives each IPU "
            "devices of its own",
            fix="choose engine='replay', or 'auto'; or leave the meshes out",
        )
    static = parse_argument_selection(static_argnums, static_argnames, "static")
    donated = parse_argument_selection(donate_argnums, donate_argnames, "donate")

    def wrap_function(fn: Callable[..., Any]) -> CompiledFunction[..., Any]:
        check.require_function(fn, "fn of ipu.compile")
        device_name = (current_device() or DEFAULT_DEVICE) if device is None else device
        static_arguments = complete_argument_selection(fn, static, "static")
        donated_arguments = complete_argument_selection(fn, donated, "donate")
        refuse_static_donated_arguments(static_arguments, donated_arguments)
        settings = Settings(
            device=device_name,
            engine=engine,
            static=Static(static_arguments.numbers, static_arguments.names),
            donated=donated_arguments,
            name=name or _function_name(fn),
            replicas=replicas,
            alone=alone,
            gather=not checked_meshes if gather is None else gather,
            meshes=checked_meshes,
        )
        return CompiledFunction(fn, settings)

    return wrap_function if fn is None else wrap_function(fn)


# Attributes that programs have and functions do not, and how to get a program.
_PROGRAM_ATTRIBUTE_FIXES = {
    "report": "lower it for arguments first: .lower(*args).report()",
    "as_text": "lower it for arguments first: .lower(*args).as_text()",
    "save": "compile it for arguments first: .lower(*args).compile().save(path)",
}


class _BoundFunction(Generic[Result]):
    """A compiled function as a method of an instance, which is its first argument."""

    def __init__(self, function: CompiledFunction[..., Result], instance: object):
        self._function, self._instance = function, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Result:
        return self._function(self._instance, *args, **kwargs)

    def trace(self, *args: object, **kwargs: object) -> Traced:
        """Traces the method for these arguments, as `CompiledFunction.trace` does."""
        return self._function.trace(self._instance, *args, **kwargs)

    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Lowers the method for these arguments, as `CompiledFunction.lower` does."""
        return self._function.lower(self._instance, *args, **kwargs)


@check.guard
@limit_dir_to("lower", "trace")
class CompiledFunction(Generic[Parameters, Result]):
    """A function that is compiled for virtual IPUs at its first call for each signature."""

    def __init__(self, fn: Callable[Parameters, Result], settings: Settings):
        functools.update_wrapper(self, fn, updated=())
        self._fn, self._settings = fn, settings
        self._calls: dict[Summation | None, Calls] = {}

    @jaxpr.api_boundary
    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Runs the function; compiles it first for new shapes, dtypes or configurations."""
        if not jaxpr.trace_state_clean():
            return self._fn(*args, **kwargs)
        scope = current_summation()  # pipelines in the function read it
        calls = self._calls.get(scope)
        if calls is None or calls.generation != SYSTEM.generation:
            calls = self._calls[scope] = Calls(self._fn, self.lower, self._settings)
        try:
            return cast(Result, calls.dispatch_call(args, kwargs))
        except (TypeError, ValueError, RuntimeError, DeprecationWarning) as error:
            self._explain_arguments(error, args, kwargs)
            raise

    def __repr__(self) -> str:
        return f"<ipu.compile of {self._settings.name} for {self._settings.device}>"

    def __copy__(self) -> CompiledFunction[Parameters, Result]:
        return CompiledFunction(self._fn, self._settings)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledFunction[Parameters, Result]:
        return self.__copy__()  # functions are not copied either

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        target: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            target = getattr(target, part, None)
        # What decorates a function is found under its name, as the function would be.
        return name if target is self else (CompiledFunction, (self._fn, self._settings))

    @overload
    def __get__(
        self, instance: None, owner: type | None = None
    ) -> CompiledFunction[Parameters, Result]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _BoundFunction[Result]: ...

    def __get__(
        self, instance: object, owner: type | None = None
    ) -> CompiledFunction[Parameters, Result] | _BoundFunction[Result]:
        """Binds a compiled method to its instance."""
        return self if instance is None else _BoundFunction(self, instance)

    if not TYPE_CHECKING:  # type checkers then report attributes that do not exist

        def __getattr__(self, name: str) -> NoReturn:
            """Raises an error that says how to get an attribute from a lowered program."""
            raise MissingAttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
                f"{suggest_closest_name(name, dir(self))}",
                fix=_PROGRAM_ATTRIBUTE_FIXES.get(name),
            )

    def name_arguments_in_reports(
        self, names: Sequence[str]
    ) -> CompiledFunction[Parameters, Result]:
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
            self._explain_arguments(error, args, kwargs)
            raise

    def _explain_arguments(
        self, error: Exception, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """Raises an error with advice if an argument is why Python or JAX raised one.

        While `jax.jit` traces, the user's line is not known: `__call__` explains the error then.
        """
        if isinstance(error, IPUError) or not jaxpr.trace_state_clean():
            return
        settings = self._settings
        if isinstance(error, (ValueError, RuntimeError)):
            if "has been deleted" in str(error):
                refuse_deleted_arrays(self._fn, args, kwargs, settings.name)
            return
        refuse_wrong_call(self._fn, args, kwargs, settings.name)
        refuse_arguments_that_are_no_arrays(args, kwargs, settings.static, settings.name)

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
