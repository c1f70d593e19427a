"""`ipu.compile`: traced, lowered and compiled in the style of `jax.stages`.

A call of a compiled function costs one check more than a call of `jax.jit`'s: while the program
is a single kernel on one device, calls go straight to a jitted function whose tracing does all the
lowering. Programs that the host must drive (queues, outside compilation, several devices) raise
`_HostDriven` while being traced and run as an `Executable` from then on.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

import jax
import numpy as np

from ipujax import _executable_cache, _tracing, events
from ipujax.config import DeviceConnectionType, floating_point_effective
from ipujax.engine.choose import check_engine, choose_engine
from ipujax.engine.placement import Placement, make_placement
from ipujax.engine.replay import Machine
from ipujax.errors import (
    DeviceError,
    EnqueueError,
    FloatingPointError,
    LeakedValueError,
)
from ipujax.events import IpuTraceEventType
from ipujax.scopes import current_device
from ipujax.synthetic import synthetic_array
from ipujax.system import SYSTEM, LogicalDevice, is_ipu_device_name
from ipujax.utils import SyntheticDataCategory, use_synthetic_data_for
from lowering import Options, fuse, ir, is_one_kernel, jaxpr, lower, streams

DEFAULT_DEVICE = "/device:IPU:0"


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
      tracers it is `fn` itself, so `grad`, `vmap` and `jit` of it work.

    Raises:
      ConfigError: an unknown engine.
      DeviceError: a device that is not an IPU (raised when called).
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
    if not callable(fn):
        raise TypeError(f"ipu.compile takes a function, not {type(fn).__name__}")
    if device == DEFAULT_DEVICE:
        device = current_device() or device
    settings = _Settings(
        device=device,
        engine=check_engine(engine),
        static_argnums=_positions(static_argnums),
        donate_argnums=_positions(donate_argnums),
        name=name or getattr(fn, "__name__", type(fn).__name__),
    )
    return CompiledFunction(fn, settings)


@dc.dataclass(frozen=True)
class _Settings:
    device: str
    engine: str
    static_argnums: tuple[int, ...]
    donate_argnums: tuple[int, ...]
    name: str


class _HostDriven(Exception):  # noqa: N818 - a signal, never seen outside
    """The program being traced is not a single kernel."""

    def __init__(self, lowered: Lowered):
        super().__init__()
        self.lowered = lowered


class CompiledFunction:
    """What `ipu.compile` returns."""

    def __init__(self, fn: Callable[..., Any], settings: _Settings):
        functools.update_wrapper(self, fn, updated=())
        self._fn, self._settings = fn, settings
        self._generation = -1  # of the configuration that `_jitted` was traced for
        self._executables: dict[Any, Executable] = {}
        self._executables_generation = -1
        self._jitted: Callable[..., Any] = fn

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
                self._generation = -1
                return self._run_lowered(signal.lowered, args, kwargs)
        return self._call(args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A compiled method is bound like any other."""
        return self if instance is None else functools.partial(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces and lowers for these arguments (arrays or `jax.ShapeDtypeStruct`s).

        Raises:
          LoweringError: and its kinds, for programs that do not fit the device.
        """
        return _lowered(self._fn, self._settings, args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not jaxpr.trace_state_clean():
            return self._fn(*args, **kwargs)
        if self._executables_generation != SYSTEM.generation:
            self._executables.clear()
            self._executables_generation = SYSTEM.generation
            if self._settings.engine != "replay" and not events.ACTIVE:
                return self._first_call(args, kwargs)
        executable = self._executables.get(self._signature(args, kwargs))
        if executable is None:
            return self._run_lowered(self.lower(*args, **kwargs), args, kwargs)
        return executable(*args, **kwargs)

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Tries the program as a single jitted kernel."""
        generation = SYSTEM.generation
        self._jitted = jax.jit(
            self._inline,
            static_argnums=self._settings.static_argnums,
            donate_argnums=self._settings.donate_argnums,
        )
        try:
            result = self._jitted(*args, **kwargs)
        except _HostDriven as signal:
            return self._run_lowered(signal.lowered, args, kwargs)
        self._generation = generation
        return result

    def _inline(self, *args: Any, **kwargs: Any) -> Any:
        """The function that `jax.jit` traces for each signature: lowered and fused on the way."""
        lowered = self.lower(*args, **kwargs)
        kernel = lowered.as_one_kernel()
        if kernel is None:
            raise _HostDriven(lowered)
        SYSTEM.attach(lowered.device)
        return lowered.unflatten(kernel(lowered.flatten(args, kwargs)))

    def _run_lowered(self, lowered: Lowered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        executable = lowered.compile()
        self._executables[self._signature(args, kwargs)] = executable
        return executable(*args, **kwargs)

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        static, dynamic = _split_static(args, self._settings.static_argnums)
        leaves, structure = jax.tree.flatten((dynamic, kwargs))
        return static, structure, tuple(map(jax.typeof, leaves))


def _lowered(
    fn: Callable[..., Any], settings: _Settings, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Lowered:
    frames: list[_tracing.Frame] = []

    def traced(*args: Any, **kwargs: Any) -> Any:
        with _tracing.frame() as frame:
            frames.append(frame)
            return fn(*args, **kwargs)

    functools.update_wrapper(traced, fn, updated=())
    structs = jax.tree.map(_struct, _split_static(args, settings.static_argnums)[1])
    given = _join_static(args, settings.static_argnums, structs)
    jitted = jax.jit(
        traced, static_argnums=settings.static_argnums, donate_argnums=settings.donate_argnums
    )
    try:
        trace = jitted.trace(*given, **jax.tree.map(_struct, kwargs))
    except jax.errors.UnexpectedTracerError as leak:
        raise LeakedValueError(
            f"`{settings.name}` uses a value of another traced function that has ended: a traced "
            "value leaked out of its scope\n"
            "  fix:   return values from the function that computes them instead of storing them "
            f"in a global, a closure or an attribute\n{_first_line(leak)}"
        ) from leak
    _check_enqueues(frames, trace.jaxpr)
    device = _device(settings.device, trace.jaxpr)
    program = lower(trace.jaxpr, _options(settings, device))
    _check_queue_devices(program, device)
    donated = [info.donated for info in jax.tree.leaves(trace.args_info)]
    return Lowered(
        program=program,
        device=device,
        engine=settings.engine,
        static_argnums=settings.static_argnums,
        in_tree=jax.tree.structure(trace.args_info),
        out_tree=jax.tree.structure(trace.out_info),
        donated=tuple(i for i, is_donated in enumerate(donated) if is_donated),
    )


def _options(settings: _Settings, device: LogicalDevice) -> Options:
    inv, div0, oflo, _, _ = floating_point_effective(device.config)
    return Options(
        num_ipus=device.num_ipus,
        name=settings.name,
        catch_invalid=inv,
        catch_division=div0,
        catch_overflow=oflo,
        step_slow_loops=jax.default_backend() == "cpu",
    )


def _device(name: str, closed: Any) -> LogicalDevice:
    if is_ipu_device_name(name):
        return SYSTEM.device(name)
    if not closed.jaxpr.eqns and not closed.jaxpr.outvars:
        return SYSTEM.device(DEFAULT_DEVICE)  # nothing to run: nothing runs in the wrong place
    raise DeviceError(
        f"the program is placed on {name!r}, which is not an IPU; compile it inside "
        "ipu_scope('/device:IPU:0'), or pass device='/device:IPU:0'"
    )


def _check_enqueues(frames: Sequence[_tracing.Frame], closed: Any) -> None:
    """Finds enqueues that Python called and that are not in the program."""
    kept = streams.enqueued_queues(closed.jaxpr)
    for queue, line in (entry for frame in frames for entry in frame.enqueues):
        if queue not in kept:
            raise EnqueueError(
                f"outfeed `{queue.name}`: a transformation dropped this enqueue (JAX drops effects "
                "inside a differentiated `lax.scan`)",
                where=line,
                fix="use ipu.loops.repeat for the loop, or return the value and enqueue it outside "
                "the differentiated function",
            )


def _check_queue_devices(program: ir.Program, device: LogicalDevice) -> None:
    for node in ir.walk(program.body):
        if isinstance(node, (ir.StreamIn, ir.StreamOut)):
            queue: Any = node.queue
            queue.check_device(device.ordinal)


@dc.dataclass(frozen=True)
class Lowered:
    """A function lowered for one signature: the Program, ready to be read or compiled.

    Attributes:
      program: the Program for all IPUs of the device.
      device: the logical device.
      engine: as it was asked for.
      in_tree: structure of the arguments, `(args, kwargs)` without the static ones.
      out_tree: structure of the result.
      donated: which flat arguments are donated.
    """

    program: ir.Program
    device: LogicalDevice
    engine: str
    static_argnums: tuple[int, ...]
    in_tree: Any
    out_tree: Any
    donated: tuple[int, ...]

    def as_text(self, *, origins: bool = False) -> str:
        """The Program, one step per line; stable for equal programs.

        Args:
          origins: end each step with the user's `file:line`.
        """
        return ir.to_text(self.program, origins=origins)

    def compile(self) -> Executable:
        """Chooses the engine and prepares the kernels."""
        return Executable(self)

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The flat dynamic arguments.

        Raises:
          TypeError: if their structure is another one than was lowered for.
        """
        _, dynamic = _split_static(args, self.static_argnums)
        leaves, structure = jax.tree.flatten((dynamic, kwargs))
        if structure != self.in_tree:
            raise TypeError(
                f"`{self.program.name}` was lowered for arguments of structure {self.in_tree}, "
                f"and called with {structure}"
            )
        return leaves

    def unflatten(self, flat: Sequence[Any]) -> Any:
        """The function's result; raises the fault that the program caught, if it did."""
        if self.program.faults:
            *flat, code = flat
            _raise_fault(self.program, int(code))
        return jax.tree.unflatten(self.out_tree, flat)

    @property
    def out_avals(self) -> list[Any]:
        """Shape and dtype of each flat result of the user's function."""
        outputs = self.program.outputs[: self.out_tree.num_leaves]
        return [self.program.avals[value] for value in outputs]

    @functools.cached_property
    def placement(self) -> Placement:
        """The JAX devices of the program's IPUs."""
        p = self.program
        kernels = [n.kernel.jaxpr.jaxpr for n in ir.walk(p.body) if isinstance(n, ir.Execute)]
        may_spread = not any(map(jaxpr.may_part_ways, kernels))
        return make_placement(self.device.ipus, p.ipus, p.replicas, may_spread)

    @functools.cached_property
    def chosen_engine(self) -> str:
        """The engine that runs the program."""
        return choose_engine(self.engine, self.program, self.placement)

    @functools.cached_property
    def fused(self) -> ir.Program:
        """The program for one device."""
        program = fuse(self.program, _needs_host)
        ir.verify(program)
        return program

    def as_one_kernel(self) -> Callable[[Sequence[Any]], list[Any]] | None:
        """The program as a plain JAX function of flat arguments, if it is one kernel."""
        plain = (
            not self.program.faults
            and self.chosen_engine == "fused"
            and self.placement.uses_one_device
            and self.placement.devices[0] == jax.devices()[0]
            and self.device.connection in _ATTACHING
            and not use_synthetic_data_for(SyntheticDataCategory.Parameters)
        )
        if not plain or not is_one_kernel(self.fused):
            return None
        return functools.partial(_run_kernel, self.fused, self.placement)


_ATTACHING = (DeviceConnectionType.ALWAYS, DeviceConnectionType.ON_DEMAND)


def _needs_host(node: ir.Node) -> bool:
    """Whether a fused program leaves a node to the host: queues, host calls, slow loops."""
    if ir.streams(node):
        return True
    return isinstance(node, ir.Repeat) and any(
        isinstance(step, ir.Execute) and jaxpr.has_slow_convolution(step.kernel.jaxpr.jaxpr)
        for step in ir.walk(node.body)
    ) and jax.default_backend() == "cpu"


def _run_kernel(program: ir.Program, placement: Placement, flat: Sequence[Any]) -> list[Any]:
    """Evaluates a one-kernel program on arrays or tracers."""
    values: dict[int, Any] = dict(zip(program.inputs, flat, strict=True))
    values.update(program.constants)
    for node in program.body.steps:
        if isinstance(node, ir.Execute):
            closed = node.kernel.jaxpr

            def kernel(*operands: Any, closed: Any = closed) -> list[Any]:
                return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

            shared = [None] * len(node.reads)
            function = placement.replicated(kernel, 0, shared, [0] * len(node.writes))
            results = function(*[values[value] for value in node.reads])
            if placement.replicas > 1:
                results = [result[0] for result in results]
            values.update(zip(node.writes, results, strict=True))
    return [values[value] for value in program.outputs]


class Executable:
    """A compiled program: call it with arguments of the signature that it was lowered for."""

    def __init__(self, lowered: Lowered):
        self._lowered = lowered
        self._loaded = False
        program = lowered.program
        cached = _executable_cache.look_up(lowered)
        if not cached:
            events.emit(IpuTraceEventType.COMPILE_BEGIN, program.name)
        self.engine = lowered.chosen_engine
        chosen = lowered.fused if self.engine == "fused" else program
        placement = lowered.placement
        if self.engine == "fused" and placement.ipus > 1:
            placement = placement.of_first_ipu()
        self._avals = [program.avals[value] for value in program.inputs]
        self._kernel = lowered.as_one_kernel()
        self._machine = Machine(chosen, placement)
        self._jitted = self._compiled_kernel()
        if not cached:
            _executable_cache.store(lowered)
            events.emit(IpuTraceEventType.COMPILE_END, program.name)

    def _compiled_kernel(self) -> Any:
        if self._kernel is None:
            return None
        kernel = self._kernel
        jitted = jax.jit(lambda *flat: kernel(flat), donate_argnums=self._lowered.donated)
        with _executable_cache.enabled():
            return jitted.lower(*map(_struct, self._avals)).compile()

    @property
    def program(self) -> ir.Program:
        """The Program that runs: fused, if the engine is."""
        return self._machine.program

    def as_text(self) -> str:
        """The text of the Program that runs."""
        return ir.to_text(self.program)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program.

        Raises:
          TypeError: arguments of another structure, shape or dtype than it was lowered for.
          OutOfRangeError: a data set that ended before its loop.
          FloatingPointError: what `floating_point_behaviour` was asked to catch.
        """
        lowered = self._lowered
        flat = self._checked(lowered.flatten(args, kwargs))
        if lowered.device.results_are_zeros:
            return lowered.unflatten([np.zeros(a.shape, a.dtype) for a in lowered.out_avals])
        SYSTEM.attach(lowered.device)
        if use_synthetic_data_for(SyntheticDataCategory.Parameters):
            flat = [synthetic_array(aval) for aval in self._avals]
        if not self._loaded:
            events.emit(IpuTraceEventType.LOAD_ENGINE, lowered.program.name)
            self._loaded = True
        events.emit(IpuTraceEventType.EXECUTE, lowered.program.name)
        with _executable_cache.enabled():
            results = self._jitted(*flat) if self._jitted is not None else self._machine(flat)
        return lowered.unflatten(results)

    def _checked(self, flat: list[Any]) -> list[Any]:
        given, wanted = [jax.typeof(leaf) for leaf in flat], self._avals
        if jaxpr.signature(given) != jaxpr.signature(wanted):
            pairs = zip(given, wanted, strict=True)
            wrong = next(i for i, (g, w) in enumerate(pairs) if jaxpr.signature([g]) !=
                         jaxpr.signature([w]))
            raise TypeError(
                f"`{self.program.name}`: flat argument {wrong} is "
                f"{given[wrong].str_short()}, the program was lowered for "
                f"{wanted[wrong].str_short()}; call the function that ipu.compile returned, "
                "which compiles for each signature, or lower again"
            )
        return flat

    def cost_analysis(self) -> dict[str, float]:
        """XLA's cost estimates (`flops`, `bytes accessed`, ...), summed over the kernels."""
        total: dict[str, float] = {}
        for compiled in self._compiled():
            analysis: Any = compiled.cost_analysis() or {}
            for key, value in analysis.items():
                total[key] = total.get(key, 0.0) + float(value)
        return total

    def memory_analysis(self) -> list[Any]:
        """XLA's memory statistics, one entry per kernel."""
        return [compiled.memory_analysis() for compiled in self._compiled()]

    def _compiled(self) -> list[Any]:
        if self._jitted is not None:
            return [self._jitted]
        return [
            function.lower(*avals).compile()
            for function, avals in self._machine.compiled_kernels()
        ]


def _raise_fault(program: ir.Program, code: int) -> None:
    if code:
        fault = program.faults[code - 1]
        raise FloatingPointError(
            f"{fault.kind} in `{fault.primitive}`\n  where: {fault.origin or 'unknown'}\n"
            "  fix:   mend the operands, or switch the check off in "
            "IPUConfig.floating_point_behaviour"
        )


def _positions(argnums: int | Sequence[int]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


def _split_static(
    args: tuple[Any, ...], static_argnums: tuple[int, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    static = {number % len(args) for number in static_argnums if -len(args) <= number < len(args)}
    chosen = tuple(arg for i, arg in enumerate(args) if i in static)
    return chosen, tuple(arg for i, arg in enumerate(args) if i not in static)


def _join_static(
    args: tuple[Any, ...], static_argnums: tuple[int, ...], dynamic: tuple[Any, ...]
) -> list[Any]:
    static = {number % len(args) for number in static_argnums if -len(args) <= number < len(args)}
    rest = iter(dynamic)
    return [arg if i in static else next(rest) for i, arg in enumerate(args)]


def _struct(leaf: Any) -> Any:
    aval = leaf if isinstance(leaf, jaxpr.ShapedArray) else jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

