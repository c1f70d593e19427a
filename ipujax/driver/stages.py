"""A function on its way to the device: `Lowered` and `Executable`, in the style of `jax.stages`."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ipujax import events
from ipujax.driver import executable_cache
from ipujax.driver.arguments import Refs, Static, struct
from ipujax.driver.device_mesh import refuse_mesh
from ipujax.engine.callbacks import Watch
from ipujax.engine.choose import choose_engine
from ipujax.engine.host_code import HostCode
from ipujax.engine.loops import slow_inside_loops
from ipujax.engine.one_kernel import run_kernel
from ipujax.engine.placement import Placement, make_placement
from ipujax.engine.replay import Machine
from ipujax.errors import FloatingPointError, OutOfMemoryError
from ipujax.events import IpuTraceEventType
from ipujax.host.synthetic import synthetic_array
from ipujax.host_trace import HostTrace, checked
from ipujax.report import auto_report
from ipujax.system.config_enums import DeviceConnectionType
from ipujax.system.devices import SYSTEM, LogicalDevice
from ipujax.system.poplar_options import engine_options, may_run_out_of_memory
from ipujax.utils import SyntheticDataCategory, use_synthetic_data_for
from lowering import avals, collectives, fuse, ir, is_one_kernel, refs, structure

if TYPE_CHECKING:
    from ipujax.report.report import Report
    from ipujax.targets import Target

_ATTACHING = (DeviceConnectionType.ALWAYS, DeviceConnectionType.ON_DEMAND)


@dc.dataclass(frozen=True)
class Lowered:
    """A function lowered for one signature: the Program, ready to be read or compiled.

    Attributes:
      program: the Program for all IPUs of the device.
      as_on_machine: gives it without number formats and faults, which the machine has by itself.
      watch: on the callbacks of the program.
      device: the logical device.
      engine: as it was asked for.
      static: which arguments are compile-time constants.
      in_tree: structure of the arguments, `(args, kwargs)` without the static ones.
      out_tree: structure of the result.
      donated: which flat arguments are donated.
      refs: which values are those of Refs.
    """

    program: ir.Program
    as_on_machine: Callable[[], ir.Program]
    watch: Watch
    device: LogicalDevice
    engine: str
    static: Static
    in_tree: Any
    out_tree: Any
    donated: tuple[int, ...]
    refs: Refs

    def __repr__(self) -> str:
        return f"<Lowered {self.program!r} for {self.device.name}>"

    def as_text(self, *, origins: bool = False) -> str:
        """The Program, one step per line; stable for equal programs.

        Args:
          origins: end each step with the user's `file:line`.
        """
        return ir.to_text(self.program, origins=origins)

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
        self.obey_engine_options()
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
        report = self._report_on(target)
        if host is None:
            return report
        return dc.replace(report, host=checked(host))

    @functools.cached_property
    def modelled(self) -> ir.Program:
        """The Program that reports are about."""
        return self.as_on_machine()

    def _report_on(self, target: str | Target | None) -> Report:
        from ipujax.report import paths  # most runs need no model
        from ipujax.report.chip import chip_of
        from ipujax.report.make import make_report

        chip = chip_of(self.device.config, target)
        if chip not in self._reports:
            named = {value: path for path, value in paths.arguments(self)}
            self._reports[chip] = make_report(self.modelled, self.device.config, chip, named)
        return self._reports[chip]

    @functools.cached_property
    def _reports(self) -> dict[Target, Report]:
        return {}

    def obey_engine_options(self) -> None:
        """Before the program is compiled: writes the report that they ask for, and checks memory.

        Raises:
          OutOfMemoryError: (a `MemoryError`) a program that must fit and does not.
          ConfigError: (a `ValueError`) wrong options.
        """
        options = engine_options(self.device.config.compilation_poplar_options)
        auto_report.write(self, options)
        if may_run_out_of_memory(options):
            return
        report = self.report()
        if not report.memory.fits:
            from ipujax.report.presentation.text import out_of_memory

            text = f"{out_of_memory(report)}\n  in:    `{report.name}`"
            raise OutOfMemoryError(text, report=report)

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The flat dynamic arguments; for a program that draws, and the seed of the next run.

        Refs that the function closes over are among them.

        Raises:
          TypeError: if their structure is another one than was lowered for.
        """
        leaves, structure = jax.tree.flatten(self.static.split(args, kwargs)[1])
        if structure != self.in_tree:
            raise TypeError(
                f"`{self.program.name}` was lowered for arguments of structure {self.in_tree}, "
                f"and called with {structure}"
            )
        leaves.extend(self.refs.closed_over)
        if self.program.draws:
            leaves.append(SYSTEM.next_seed(self.device.name))
        return leaves

    def unflatten(self, flat: Sequence[Any], touched: Sequence[Any] = ()) -> Any:
        """The function's result; raises the fault that the program caught, if it did.

        If it did not, the Refs that it touched get their last values.
        """
        if self.program.faults:
            *flat, code = flat
            _raise_fault(self.program, int(code))
        count = self.out_tree.num_leaves
        for ref, value in zip(touched, flat[count:], strict=True):
            ref[...] = jax.device_put(value, ref.sharding)
        return jax.tree.unflatten(self.out_tree, flat[:count])

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
        # Replicas that share a table of the host meet at it, in order, if they share a device.
        may_spread = not self.host_code.tables and not any(
            structure.may_part_ways(k, collectives.REPLICAS) for k in kernels
        )
        return make_placement(self.device.first, p.ipus, p.replicas, may_spread)

    @functools.cached_property
    def host_code(self) -> HostCode:
        """What the program runs on the host."""
        return HostCode.of(self.program, self.watch)

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
            and not self.host_code  # each run is looked after
            and self.chosen_engine == "fused"
            and self.placement.uses_one_device
            and self.placement.devices[0] == jax.devices()[0]
            and self.device.connection in _ATTACHING
            and not use_synthetic_data_for(SyntheticDataCategory.Parameters)
        )
        if not plain or not is_one_kernel(self.fused):
            return None
        return functools.partial(run_kernel, self.fused, self.placement)


def _needs_host(node: ir.Node) -> bool:
    """Whether a fused program leaves a node to the host: queues, host calls, slow loops."""
    if ir.streams(node):
        return True
    kernels = (
        step.kernel for step in ir.walk(ir.Sequence((node,))) if isinstance(step, ir.Execute)
    )
    return isinstance(node, ir.Repeat) and any(slow_inside_loops(k.jaxpr) for k in kernels)


class Executable:
    """A compiled program: call it with arguments of the signature that it was lowered for."""

    def __init__(self, lowered: Lowered):
        self._lowered = lowered
        self._loaded = False
        program = lowered.program
        executable_cache.activate()
        cached = executable_cache.look_up(lowered)
        if not cached:
            events.emit(IpuTraceEventType.COMPILE_BEGIN, program.name)
        with events.span("load" if cached else "compile", program.name):
            self.engine = lowered.chosen_engine
            chosen = lowered.fused if self.engine == "fused" else program
            placement = lowered.placement
            if self.engine == "fused" and placement.ipus > 1:
                placement = placement.of_first_ipu()
            self._avals = [program.avals[value] for value in program.inputs]
            self._kernel = lowered.as_one_kernel()
            self._machine = Machine(chosen, placement, lowered.donated)
            self._jitted = self._compiled_kernel()
            if self._jitted is None:
                self._machine.compilation.finish()
        if not cached:
            executable_cache.store(lowered)
            text = self.as_text() if events.recording() else ""
            events.emit(IpuTraceEventType.COMPILE_END, program.name, text)

    def __repr__(self) -> str:
        name = self._lowered.device.name
        return f"<Executable {self._lowered.program!r} for {name}, engine {self.engine!r}>"

    def _compiled_kernel(self) -> Any:
        if self._kernel is None:
            return None
        kernel = self._kernel
        jitted = jax.jit(lambda *flat: kernel(flat), donate_argnums=self._lowered.donated)
        return jitted.lower(*map(struct, self._avals)).compile()

    @property
    def program(self) -> ir.Program:
        """The Program that runs: fused, if the engine is."""
        return self._machine.program

    def as_text(self) -> str:
        """The text of the Program that runs."""
        return ir.to_text(self.program)

    @property
    def lowered(self) -> Lowered:
        """What was compiled."""
        return self._lowered

    def report(self, target: str | Target | None = None, host: HostTrace | None = None) -> Report:
        """As `Lowered.report`; needs no run."""
        return self._lowered.report(target, host)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
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
        lowered = self._lowered
        refuse_mesh(lowered.program.name)
        given = lowered.flatten(args, kwargs)
        touched = lowered.refs.among(given)
        flat = self._checked([leaf[...] if refs.is_ref(leaf) else leaf for leaf in given])
        if lowered.device.results_are_zeros:
            return lowered.unflatten([np.zeros(a.shape, a.dtype) for a in lowered.out_avals])
        with events.span("load", lowered.program.name) as span:
            span.told = not self._loaded  # later ones find everything in its place
            SYSTEM.attach(lowered.device)
        if use_synthetic_data_for(SyntheticDataCategory.Parameters):
            flat = [synthetic_array(aval) for aval in self._avals]
        if not self._loaded:
            events.emit(IpuTraceEventType.LOAD_ENGINE, lowered.program.name)
            self._loaded = True
        events.emit(IpuTraceEventType.EXECUTE, lowered.program.name)
        with events.span("execute", lowered.program.name):
            if self._jitted is None:
                results = lowered.host_code.run(self._machine, flat)
            elif all(self._is_near(x) for x in flat):
                results = self._jitted(*flat)
            else:
                results = self._jitted(*jax.device_put(flat, jax.devices()[0]))
            return settled(lowered.unflatten(results, touched))

    def _is_near(self, array: Any) -> bool:
        """Whether an argument is where JAX's own compiled functions insist on having it."""
        return not getattr(array, "committed", False) or array.devices() == {jax.devices()[0]}

    def _are_as_lowered(self, flat: list[Any]) -> bool:
        """Whether the arguments are arrays of the right shapes and dtypes, found out fast."""
        return all(
            isinstance(leaf, (jax.Array, np.ndarray))
            and leaf.shape == aval.shape
            and leaf.dtype == aval.dtype
            for leaf, aval in zip(flat, self._avals, strict=True)
        )

    def _checked(self, flat: list[Any]) -> list[Any]:
        if self._are_as_lowered(flat):
            return flat
        given, wanted = [jax.typeof(leaf) for leaf in flat], self._avals
        if avals.signature(given) != avals.signature(wanted):
            pairs = zip(given, wanted, strict=True)
            wrong = next(
                i for i, (g, w) in enumerate(pairs) if avals.signature([g]) != avals.signature([w])
            )
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
        return [kernel.compile() for kernel in self._machine.compiled_kernels()]


def settled(results: Any) -> Any:
    """The results; if somebody records how long things take, once they are there."""
    return jax.block_until_ready(results) if events.timing() else results


def _raise_fault(program: ir.Program, code: int) -> None:
    if code:
        fault = program.faults[code - 1]
        raise FloatingPointError(
            f"{fault.kind} in `{fault.primitive}`\n  where: {fault.origin or 'unknown'}\n"
            "  fix:   mend the operands, or switch the check off in "
            "IPUConfig.floating_point_behaviour"
        )
