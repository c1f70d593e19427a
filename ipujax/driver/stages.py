"""A function on its way to the device: `Traced`, `Lowered`, `Executable`, as in `jax.stages`."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ipujax import events
from ipujax.driver import engine_options, executable_cache
from ipujax.driver.arguments import Settings, Signature
from ipujax.driver.device_mesh import refuse_mesh
from ipujax.driver.options import check_queues, device_of, options_for, tell_replicas
from ipujax.engine.callbacks import Watch
from ipujax.engine.execution import Execution
from ipujax.engine.placement import Placement
from ipujax.errors import FloatingPointError
from ipujax.events import IpuTraceEventType
from ipujax.host.queues import Queue
from ipujax.host.synthetic import synthetic_array
from ipujax.host_trace import HostTrace, checked
from ipujax.system.devices import SYSTEM, LogicalDevice
from ipujax.utils import SyntheticDataCategory, use_synthetic_data_for
from lowering import Options, ir, is_ref, jaxpr, lower, ops, signature_of

if TYPE_CHECKING:
    from ipujax.report.report import Report
    from ipujax.targets import Target


@dc.dataclass(frozen=True, eq=False)
class Traced:
    """A function traced for one signature; its device has no part in it yet.

    Attributes:
      settings: what `ipu.compile` was told about the function.
      jaxpr: the function of flat arguments; the Refs that it closes over are its last ones.
      signature: how arguments and results become flat.
    """

    settings: Settings
    jaxpr: jaxpr.ClosedJaxpr
    signature: Signature

    def __repr__(self) -> str:
        return f"<Traced {self.name}{self.in_avals} -> {self.out_avals}>"

    @property
    def name(self) -> str:
        """What the program will be called."""
        return self.settings.name

    @property
    def line(self) -> str:
        """`file:line (function)` where the user's function begins, or ''."""
        name, _, place = self.jaxpr.jaxpr.debug_info.func_src_info.partition(" at ")
        return f"{place} ({name})" if place else ""

    @property
    def in_avals(self) -> object:
        """Shapes and dtypes of the arguments, `(args, kwargs)` without the static ones."""
        tree = self.signature.in_tree
        return jax.tree.unflatten(tree, self.jaxpr.in_avals[: tree.num_leaves])

    @property
    def out_avals(self) -> object:
        """Shapes and dtypes of the result."""
        return self.signature.unflatten(self.jaxpr.out_avals)

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The infeeds and outfeeds that the function uses."""
        primitives = ops.dequeue_p, ops.enqueue_p
        return tuple(ops.queues_of(self.jaxpr.jaxpr, *primitives))

    def lower(self) -> Lowered:
        """Lowers for the device as it is configured now.

        Raises:
          LoweringError: and its kinds, for programs that do not fit their device.
          DeviceError: a device that is no IPU, or not there.
        """
        with events.span("lower", self.name):
            device = device_of(self.settings.device, self.jaxpr)
            options = options_for(self.name, device)
            watch = Watch()
            program = lower(watch.over(self.jaxpr), options)
            check_queues(program, device)
        if program.replicas > 1:
            now = SYSTEM.generation
            tell_replicas(self.settings, now, device, program.ipus, program.replicas)
        return Lowered(self, device, options, program, watch)


@dc.dataclass(frozen=True, eq=False)
class Lowered:
    """A function lowered for one signature: the Program, ready to be read or compiled.

    Attributes:
      traced: what was lowered.
      device: the logical device.
      options: what the compiler was told.
      program: the Program for all IPUs of the device.
      watch: on the callbacks of the program.
    """

    traced: Traced
    device: LogicalDevice
    options: Options
    program: ir.Program
    watch: Watch

    def __repr__(self) -> str:
        return f"<Lowered {self.program!r} for {self.device.name}>"

    def as_text(self, *, origins: bool = False) -> str:
        """The Program, one step per line; stable for equal programs.

        Args:
          origins: end each step with the user's `file:line`.
        """
        return ir.to_text(self.program, origins=origins)

    @property
    def signature(self) -> Signature:
        """How arguments and results become flat."""
        return self.traced.signature

    @functools.cached_property
    def execution(self) -> Execution:
        """How the program runs."""
        return Execution(self.program, self.traced.settings.engine, self.device.first, self.watch)

    @property
    def placement(self) -> Placement:
        """The JAX devices of the program's IPUs."""
        return self.execution.placement

    def fingerprint(self) -> str:
        """A text that tells what is compiled from everything else that could be."""
        engine, config = self.execution.engine, self.device.config
        return executable_cache.fingerprint(self.program, engine, config)

    def compile(self) -> Executable:
        """Chooses the engine and compiles everything, so that no call of the program does.

        Calls may give NumPy's arrays or JAX's, also results of earlier calls and arrays that are
        committed to a device. Only a donated array on another device than JAX's first, and queues
        under another configuration of JAX (`jax.default_device`), have JAX compile once more.

        Raises:
          OutOfMemoryError: (a `MemoryError`) a program that does not fit, if the engine's options
            say that this is an error.
          ConfigError: (a `ValueError`) engine options that ipujax knows, with wrong values.
        """
        engine_options.obey(self, self.device.config.compilation_poplar_options)
        return Executable(self)

    def report(self, target: str | Target | None = None, host: HostTrace | None = None) -> Report:
        """What the program would cost on a chip; modelled when first asked for.

        Args:
          target: a chip or its name; that of `IPUConfig.ipu_model` by default.
          host: what `ipu.host_trace` recorded of a run, to be shown beside it.

        Raises:
          TargetError: (a `ValueError`) a target that does not exist.
          ConfigTypeError: (a `TypeError`) a host trace that is none.
        """
        from ipujax.report.make import chip_of

        report = self._report_on(chip_of(self.device.config, target))
        return report if host is None else dc.replace(report, host=checked(host))

    @functools.cached_property
    def modelled(self) -> ir.Program:
        """The Program that reports are about, without what the machine does by itself.

        Only CPUs and GPUs need number formats and faults to compute as it does.
        """
        if not self.program.emulates:
            return self.program
        off = dict.fromkeys(
            ("number_formats", "catch_invalid", "catch_division", "catch_overflow"), False
        )
        return lower(self.traced.jaxpr, dc.replace(self.options, **off))

    @functools.cached_property
    def _report_on(self) -> Callable[[Target], Report]:
        from ipujax.report.make import make_report  # most runs need no model

        inputs = map(int, self.modelled.inputs)
        names = dict(zip(inputs, self.signature.argument_names(), strict=False))
        config = self.device.config
        return functools.cache(lambda chip: make_report(self.modelled, config, chip, names))


class Executable:
    """A compiled program: call it with arguments of the signature that it was lowered for.

    Attributes:
      lowered: what was compiled.
      engine: that runs it.
    """

    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        self._loaded = False
        program, execution = lowered.program, lowered.execution
        executable_cache.activate()
        entry = executable_cache.entry(lowered.fingerprint)
        cached = entry is not None and entry.exists()
        if not cached:
            events.emit(IpuTraceEventType.COMPILE_BEGIN, program.name)
        with events.span("load" if cached else "compile", program.name):
            self.engine = execution.engine
            self._avals = [program.avals[value] for value in program.inputs]
            self._machine = execution.compiled(lowered.signature.donated)
        if not cached:
            executable_cache.store(entry, program.name)
            text = self.as_text() if events.recording() else ""
            events.emit(IpuTraceEventType.COMPILE_END, program.name, text)

    def __repr__(self) -> str:
        name = self.lowered.device.name
        return f"<Executable {self.lowered.program!r} for {name}, engine {self.engine!r}>"

    @property
    def program(self) -> ir.Program:
        """The Program that runs: fused, if the engine is."""
        return self._machine.program

    def as_text(self) -> str:
        """The text of the Program that runs."""
        return ir.to_text(self.program)

    def report(self, target: str | Target | None = None, host: HostTrace | None = None) -> Report:
        """As `Lowered.report`; needs no run."""
        return self.lowered.report(target, host)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Runs the program.

        Raises:
          TypeError: arguments of another structure, shape or dtype than it was lowered for.
          OutOfRangeError: a data set that ended before its loop.
          FloatingPointError: what `floating_point_behaviour` was asked to catch.
          FailedPreconditionError: a host embedding that is not registered.
          OperatorError: an index outside of a host embedding, if its lookup does not clip.
          CustomOpError: the program failed, and has custom operations.
          CallbackError: a callback of the program raised.
        """
        lowered, signature = self.lowered, self.lowered.signature
        device, program = lowered.device, lowered.program
        refuse_mesh(program.name)
        given = signature.flatten(args, kwargs)
        touched = signature.refs.among(given)
        flat = [leaf[...] if is_ref(leaf) else leaf for leaf in given]
        if program.draws:
            flat.append(SYSTEM.next_seed(device.name))
        self._check(flat)
        if device.results_are_zeros:
            results = [program.avals[value] for value in program.outputs]
            return signature.unflatten([np.zeros(aval.shape, aval.dtype) for aval in results])
        with events.span("load", program.name) as span:
            span.told = not self._loaded  # later ones find everything in its place
            SYSTEM.attach(device)
        if use_synthetic_data_for(SyntheticDataCategory.Parameters):
            flat = [synthetic_array(aval) for aval in self._avals]
        if not self._loaded:
            events.emit(IpuTraceEventType.LOAD_ENGINE, program.name)
            self._loaded = True
        events.emit(IpuTraceEventType.EXECUTE, program.name)
        with events.span("execute", program.name):
            results = lowered.execution.host_code.run(self._machine, flat)
            if program.faults:
                _raise_fault(program, int(results.pop()))
            first = signature.out_tree.num_leaves
            for ref, value in zip(touched, results[first:], strict=True):
                ref[...] = jax.device_put(value, ref.sharding)
            return settled(signature.unflatten(results))

    def _check(self, flat: Sequence[object]) -> None:
        for number, (leaf, wanted) in enumerate(zip(flat, self._avals, strict=True)):
            if (
                isinstance(leaf, (jax.Array, np.ndarray))
                and leaf.shape == wanted.shape
                and leaf.dtype == wanted.dtype
            ):
                continue  # found out fast
            given = jax.typeof(leaf)
            if signature_of([given]) != signature_of([wanted]):
                raise TypeError(
                    f"`{self.program.name}`: flat argument {number} is {given.str_short()}, the "
                    f"program was lowered for {wanted.str_short()}; call the function that "
                    "ipu.compile returned, which compiles for each signature, or lower again"
                )

    def cost_analysis(self) -> dict[str, float]:
        """XLA's cost estimates (`flops`, `bytes accessed`, ...), summed over the kernels."""
        total: dict[str, float] = {}
        for compiled in self._compiled():
            for key, value in (compiled.cost_analysis() or {}).items():
                total[key] = total.get(key, 0.0) + float(value)
        return total

    def memory_analysis(self) -> list[object]:
        """XLA's memory statistics, one entry per kernel."""
        return [compiled.memory_analysis() for compiled in self._compiled()]

    def _compiled(self) -> list[jax.stages.Compiled]:
        return [kernel.compile() for kernel in self._machine.compiled_kernels()]


def settled(results: object) -> object:
    """The results; if somebody records how long things take, once they are there."""
    return jax.block_until_ready(results) if events.timing() else results


def _raise_fault(program: ir.Program, code: int) -> None:
    if code:
        fault = program.faults[code - 1]
        raise FloatingPointError(
            f"{fault.kind} in `{fault.primitive}`",
            where=fault.origin or "unknown",
            fix="mend the operands, or switch the check off in IPUConfig.floating_point_behaviour",
        )
