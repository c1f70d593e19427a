"""Dispatches calls of compiled functions: through `jax.jit` or to an `Executable`."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import jax

from ipujax.driver import engine_options, executable_cache
from ipujax.driver.call_arguments import Settings
from ipujax.driver.compile_stages import Executable, Lowered
from ipujax.driver.contexts import read_compile_context
from ipujax.driver.device_options import is_logging_cycles
from ipujax.driver.ready_program import wait_if_timed
from ipujax.engine import run_kernel
from ipujax.ground import events
from ipujax.host import use_synthetic_data_for
from ipujax.system import SYSTEM, SyntheticDataCategory
from lowering import is_ref, jaxpr, keep_wide_values

_NO_JIT = "jax_disable_jit"


class _HostDrivenProgram(Exception):
    """The program being traced is not a single kernel; there is no other way out of a trace.

    Attributes:
      lowered: the program; None if it takes Refs, which `jax.jit` shows as its own only.
    """

    def __init__(self, lowered: Lowered | None):
        super().__init__()
        self.lowered = lowered


class Calls:
    """The calls of one compiled function under one configuration.

    While its programs are single kernels on one device, calls go straight to a function of
    `jax.jit`'s, whose tracing does all the lowering: they cost some checks more than a plain one.
    With the first program that the host must drive (queues, outside compilation, several devices)
    this ends: each signature gets its `Executable`.

    Args:
      fn: the function.
      lower: lowers it for arguments.
      settings: the arguments of `ipu.compile`.
    """

    def __init__(
        self, fn: Callable[..., object], lower: Callable[..., Lowered], settings: Settings
    ):
        self.generation = SYSTEM.generation
        self._fn, self._lower, self._settings = fn, lower, settings
        self._executables: dict[Hashable, Executable] = {}
        self._last: tuple[object, Executable] | None = None
        self._is_plain: dict[Hashable, bool] = {}
        self._jitted: Callable[..., object] | None = None
        # With an executable cache, what is compiled must be known program by program; what one
        # process alone has, argument by argument.
        is_whole = settings.engine != "replay" and not settings.spreads_ipus_over_processes
        if is_whole and not executable_cache.activate_cache():
            self._jitted = jax.jit(
                self._lower_and_fuse,
                static_argnums=settings.static.numbers,
                static_argnames=settings.static.names,
                donate_argnums=settings.donated.numbers,
                donate_argnames=settings.donated.names or None,
            )

    def dispatch_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Runs the function for some arguments; compiles it first for a new signature."""
        lowered, jitted = None, self._jitted
        if jaxpr.is_debugging():
            if getattr(jax.config, _NO_JIT):
                return self._run_unjitted(args, kwargs)
            jitted = None  # JAX's error would not name a line
        try:
            if jitted is not None:
                if not events.ACTIVE:
                    return jitted(*args, **kwargs)
                if not events.is_anyone_recording_events():
                    return self._run_timed(jitted, args, kwargs)
        except _HostDrivenProgram as signal:
            self._jitted, lowered = None, signal.lowered
        except ValueError:
            self._settings.static.hash_key(args, kwargs)  # raises a clearer error
            raise
        # After the `except`: no context for errors. What is equal holds mostly the same objects as
        # at the last call, and is compared in less time than a key takes.
        call_type, last = self._type_of_call(args, kwargs), self._last
        if call_type is not None and last is not None and last[0] == call_type:
            return last[1](*args, **kwargs)
        key = self._signature_key(args, kwargs)
        executable = self._executables.get(key)
        if executable is None:
            executable = (lowered or self._lower(*args, **kwargs)).compile()
            self._executables[key] = executable
        self._last = call_type, executable
        return executable(*args, **kwargs)

    def _run_unjitted(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Runs the plain function under `jax.disable_jit`, if that computes the same.

        Programs with replicas that differ, queues and the like run compiled as usual.
        """
        key = self._signature_key(args, kwargs)
        with jax.disable_jit(False):
            if key not in self._is_plain:
                try:
                    self._is_plain[key] = self._lower(*args, **kwargs).computes_like_plain_call
                except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
                    self._is_plain[key] = True  # looks at values, which only the plain one can
            if not self._is_plain[key]:
                return self.dispatch_call(args, kwargs)
        return self._fn(*args, **kwargs)

    def _run_timed(
        self, jitted: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        with events.span("execute", self._settings.name) as span:
            try:
                return wait_if_timed(jitted(*args, **kwargs))
            except _HostDrivenProgram:
                span.told = False  # nothing has been executed
                raise

    def _lower_and_fuse(self, *args: object, **kwargs: object) -> object:
        """Lowers and fuses the function for a signature, while `jax.jit` traces it."""
        if any(map(is_ref, jax.tree.leaves((args, kwargs)))):
            raise _HostDrivenProgram(None)
        lowered = self._lower(*args, **kwargs)
        if not _computes_like_plain_call(lowered):
            raise _HostDrivenProgram(lowered)
        engine_options.apply_engine_options(lowered)
        with events.span("load", self._settings.name):
            SYSTEM.attach(lowered.device)
        flat = lowered.signature.flatten_arguments(args, kwargs)
        execution = lowered.execution
        with keep_wide_values(wide=lowered.traced.needs_64_bit_mode):
            results = run_kernel(execution.engine_program, execution.placement, flat)
        return lowered.signature.unflatten_results(results)

    def _type_of_call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Returns something that is equal only for calls of one signature, or None."""
        leaves, structure = jax.tree.flatten(self._settings.static.split_arguments(args, kwargs)[1])
        avals = [getattr(leaf, "aval", None) for leaf in leaves]
        if None in avals or self._settings.spreads_ipus_over_processes:
            return None
        static = self._settings.static.hash_key(args, kwargs)
        return avals, structure, static, read_compile_context()

    def _signature_key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Hashable:
        static = self._settings.static
        leaves, structure = jax.tree.flatten(static.split_arguments(args, kwargs)[1])
        return (
            static.hash_key(args, kwargs),
            structure,
            tuple(map(_type_of_argument, leaves)),
            self._settings.find_holding_processes(leaves),
            read_compile_context(),
        )


def _type_of_argument(leaf: object) -> Hashable:
    """Returns the type of an argument, which is the same on whatever devices it is."""
    aval = jax.typeof(leaf)
    if not isinstance(aval, jaxpr.ShapedArray):
        return aval
    return aval.shape, aval.dtype, aval.weak_type


def _computes_like_plain_call(lowered: Lowered) -> bool:
    """Returns whether the user's function computes the same as a run of its program."""
    return (
        not lowered.program.draws  # from a seed, another one in each run
        and not lowered.signature.refs.closed_over
        and not lowered.device.only_compiles_programs
        and not lowered.device.config.serialization_output_folder
        and not is_logging_cycles(lowered.device)
        and not use_synthetic_data_for(SyntheticDataCategory.Parameters)
        and lowered.execution.is_one_kernel
    )
