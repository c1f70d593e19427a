"""`ipu.compile`: traced, lowered and compiled in the style of `jax.stages`.

A call of a compiled function costs one check more than a call of `jax.jit`'s: while the program
is a single kernel on one device, calls go straight to a jitted function whose tracing does all the
lowering. Programs that the host must drive (queues, outside compilation, several devices) raise
`_HostDriven` while being traced and run as an `Executable` from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import jax

from ipujax import events
from ipujax.checks.arrays import check
from ipujax.driver import executable_cache
from ipujax.driver.arguments import Settings, Static
from ipujax.driver.lower_function import DEFAULT_DEVICE, lower_function
from ipujax.driver.stages import Executable, Lowered, settled
from ipujax.engine.choose import check_engine
from ipujax.scopes import current_device
from ipujax.system.devices import SYSTEM
from ipujax.system.log import get_logger
from lowering import jaxpr, refs


@overload
def compile(
    fn: Callable[..., Any],
    *,
    device: str = ...,
    engine: str = ...,
    static_argnums: int | Sequence[int] = ...,
    donate_argnums: int | Sequence[int] = ...,
    name: str | None = ...,
) -> CompiledFunction: ...


@overload
def compile(
    fn: None = None,
    *,
    device: str = ...,
    engine: str = ...,
    static_argnums: int | Sequence[int] = ...,
    donate_argnums: int | Sequence[int] = ...,
    name: str | None = ...,
) -> Callable[[Callable[..., Any]], CompiledFunction]: ...


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    device: str = DEFAULT_DEVICE,
    engine: str = "auto",
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
    name: str | None = None,
) -> Any:
    """Compiles a JAX function for virtual IPUs; also a decorator, with or without arguments.

    Args:
      fn: any function that `jax.jit` takes.
      device: the logical device; inside `scopes.ipu_scope` its device is the default.
      engine: `fused` makes one XLA computation where that is possible, `replay` dispatches every
        kernel on its own, `auto` picks the faster one.
      static_argnums: positions of arguments that are compile-time constants, as in `jax.jit`.
      donate_argnums: positions of arguments whose buffers may be reused, as in `jax.jit`.
      name: the program's name; the function's own by default.

    Returns:
      A function of the same arguments and results, with `lower` for ahead-of-time use. Called with
      tracers it is `fn` itself, so `grad`, `vmap` and `jit` of it work. `TF_POPLAR_FLAGS` is read
      at its first call under a configuration. Arguments may be spread over JAX devices; what fn
      says of their places (`with_sharding_constraint`, `device_put`, the shardings of `jit`) is
      left out, since virtual IPUs decide that.

    Raises:
      ConfigTypeError: (a `TypeError`) an argument of another type, or what is no function.
      ConfigError: an unknown engine; (raised when called) wrong options of Poplar's engine.
      DeviceError: a device that is not an IPU (raised when called).
      DeviceMeshError: (raised when called) `shard_map` or `pmap` over several JAX devices inside
        fn, meshes with axes of type Explicit there, or a call under `jax.set_mesh`.
      OutOfMemoryError: (raised when called) a program that does not fit, if
        `POPLAR_ENGINE_OPTIONS` or the configuration's `compilation_poplar_options` say that this
        is an error.
    """
    if fn is None:
        return functools.partial(
            compile,
            device=device,
            engine=engine,
            static_argnums=static_argnums,
            donate_argnums=donate_argnums,
            name=name,
        )
    check.function(fn, "fn of ipu.compile")
    check.text(device, "the device of ipu.compile")
    check.text(name, "the name of ipu.compile", optional=True)
    if device is DEFAULT_DEVICE:  # the very object: nobody passed a device
        device = current_device() or device
    settings = Settings(
        device=device,
        engine=check_engine(engine),
        static=Static.of(fn, _positions(static_argnums, "static_argnums")),
        donate_argnums=_positions(donate_argnums, "donate_argnums"),
        name=name or _name_of(fn),
    )
    return CompiledFunction(fn, settings)


class _HostDriven(Exception):
    """The program being traced is not a single kernel.

    Attributes:
      lowered: the program; None if it takes Refs, which `jax.jit` shows as its own only.
    """

    def __init__(self, lowered: Lowered | None):
        super().__init__()
        self.lowered = lowered


class _BoundFunction:
    """A compiled function as a method of an instance, which is its first argument."""

    def __init__(self, function: CompiledFunction, instance: Any):
        self._function, self._instance = function, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """As `CompiledFunction.lower`, without the instance."""
        return self._function.lower(self._instance, *args, **kwargs)


class CompiledFunction:
    """What `ipu.compile` returns."""

    def __init__(self, fn: Callable[..., Any], settings: Settings):
        functools.update_wrapper(self, fn, updated=())
        self._fn, self._settings = fn, settings
        self._generation = -1  # of the configuration that `_jitted` was traced for
        self._jitted: Callable[..., Any] = fn
        self._executables: dict[Any, Executable] = {}
        self._executables_generation = -1
        self._host_driven = False
        self._told: tuple[int, int] | None = None  # a configuration, and its number of replicas

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function; compiles it first for new shapes, dtypes or configurations."""
        if (
            self._generation == SYSTEM.generation
            and not events.ACTIVE
            and jaxpr.trace_state_clean()
        ):
            try:
                return self._jitted(*args, **kwargs)
            except _HostDriven as signal:
                lowered = signal.lowered
            return self._run_lowered(lowered, args, kwargs)  # its errors have no cause in here
        return self._call(args, kwargs)

    def __repr__(self) -> str:
        return f"<ipu.compile of {self._settings.name} for {self._settings.device}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A compiled method is bound like any other."""
        return self if instance is None else _BoundFunction(self, instance)

    def __getattr__(self, name: str) -> Any:
        """Says where that is which programs have and functions have not."""
        kind = type(self).__name__
        fix = ""
        if name in ("report", "as_text"):
            fix = f"\n  fix:   lower it for arguments first: .lower(*args).{name}()"
        raise AttributeError(f"{kind!r} object has no attribute {name!r}{fix}", name=name, obj=self)

    @property
    def program_name(self) -> str:
        """What programs of this function are called."""
        return self._settings.name

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces and lowers for these arguments (arrays or `jax.ShapeDtypeStruct`s).

        Raises:
          LoweringError: and its kinds, for programs that do not fit the device.
        """
        lowered = lower_function(self._fn, self._settings, args, kwargs)
        self._tell_replicas(lowered)
        return lowered

    def _tell_replicas(self, lowered: Lowered) -> None:
        """Logs, once for each configuration, how many replicas nobody has asked for."""
        program, device = lowered.program, lowered.device
        told = SYSTEM.generation, program.replicas
        if program.replicas == 1 or self._told == told:
            return
        self._told = told
        get_logger().info(
            "Program `%s` runs as %d replicas, each with elements of its own from infeeds, "
            "since it uses %d IPU%s and %s has %d",
            program.name,
            program.replicas,
            program.ipus,
            "s" * (program.ipus > 1),
            device.name,
            device.num_ipus,
        )

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not jaxpr.trace_state_clean():
            return self._fn(*args, **kwargs)
        if self._executables_generation != SYSTEM.generation:
            self._executables.clear()
            self._executables_generation = SYSTEM.generation
            # With an executable cache, what is compiled must be known program by program.
            self._host_driven = self._settings.engine == "replay" or executable_cache.activate()
        if not self._host_driven and not events.recording():
            return self._call_jitted(args, kwargs)
        executable = self._executables.get(self._signature(args, kwargs))
        if executable is None:
            return self._run_lowered(self.lower(*args, **kwargs), args, kwargs)
        return executable(*args, **kwargs)

    def _call_jitted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first call under a configuration: tries the program as a single jitted kernel.

        So are all calls while somebody records how long they take.
        """
        generation = SYSTEM.generation
        if self._generation != generation:
            self._jitted = jax.jit(
                self._inline,
                static_argnums=self._settings.static.numbers,
                static_argnames=self._settings.static.names,
                donate_argnums=self._settings.donate_argnums,
            )
        with events.span("execute", self.program_name) as span:
            try:
                result = settled(self._jitted(*args, **kwargs))
                self._generation = generation
                return result
            except _HostDriven as signal:
                lowered = signal.lowered
                span.told = False  # nothing has been executed
        return self._run_lowered(lowered, args, kwargs)

    def _inline(self, *args: Any, **kwargs: Any) -> Any:
        """The function that `jax.jit` traces for each signature: lowered and fused on the way."""
        if any(map(refs.is_ref, jax.tree.leaves((args, kwargs)))):
            raise self._driven_by_host(None)
        lowered = self.lower(*args, **kwargs)
        # What draws has an argument that nobody passes: the seed, another one in each run.
        has_more = lowered.program.draws or lowered.refs.closed_over
        kernel = None if has_more else lowered.as_one_kernel()
        if kernel is None:
            raise self._driven_by_host(lowered)
        lowered.obey_engine_options()
        with events.span("load", self.program_name):
            SYSTEM.attach(lowered.device)
        return lowered.unflatten(kernel(lowered.flatten(args, kwargs)))

    def _driven_by_host(self, lowered: Lowered | None) -> _HostDriven:
        self._generation, self._host_driven = -1, True
        return _HostDriven(lowered)

    def _run_lowered(
        self, lowered: Lowered | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        executable = (lowered or self.lower(*args, **kwargs)).compile()
        self._executables[self._signature(args, kwargs)] = executable
        return executable(*args, **kwargs)

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        static, dynamic = self._settings.static.split(args, kwargs)
        leaves, structure = jax.tree.flatten(dynamic)
        return static, structure, tuple(map(jax.typeof, leaves))


def _name_of(fn: Callable[..., Any]) -> str:
    """The name of what is called in the end; `functools.partial` has none of its own."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__)


def _positions(argnums: Any, name: str) -> tuple[int, ...]:
    what = f"an entry of {name}"
    several = isinstance(argnums, Iterable) and not isinstance(argnums, str)
    return tuple(check.integer(each, what) for each in (argnums if several else (argnums,)))
