"""The stages of compilation, as in `jax.stages`: `Traced`, `Lowered`, `Executable`."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from ipujax.driver import engine_options, executable_cache
from ipujax.driver.call_arguments import Settings, Signature
from ipujax.driver.compile_checks import check
from ipujax.driver.device_options import (
    build_compiler_options,
    check_recomputation,
    check_remote_memory,
    find_device,
    log_disabled_offloading,
    log_dropped_shardings,
    log_replica_count,
    prepare_queues,
    warn_of_divergent_conditions,
)
from ipujax.driver.executable import Executable as Executable
from ipujax.driver.picture import draw_program
from ipujax.driver.process_bound import BoundToProcess
from ipujax.driver.split_program import split_stacked_arrays
from ipujax.engine import Apart, Execution, Placement, Watch
from ipujax.ground import HostTrace, collect_garbage_seldom, events, require_host_trace
from ipujax.host import Queue
from ipujax.system import SYSTEM, LogicalDevice
from lowering import (
    Options,
    depends_on_replica_count,
    emulate_machine,
    has_wide_values,
    ir,
    jaxpr,
    limit_dir_to,
    lower,
    lower_for_machine,
    ops,
)

if TYPE_CHECKING:
    from ipujax.report import ModelMemory, Report
    from ipujax.system import Target


def _restore_float0_avals(
    avals: Sequence[jaxpr.Aval], tangents: Sequence[tuple[int, tuple[int, ...]]]
) -> list[jaxpr.ShapedValue]:
    """Returns the avals of flat arrays with float0 where the program has booleans."""
    shapes = dict(tangents)
    float0 = jax.dtypes.float0
    return [
        jax.ShapeDtypeStruct(shapes[number], float0) if number in shapes else aval
        for number, aval in enumerate(avals)
    ]


@check.guard
@limit_dir_to("in_avals", "jaxpr", "line", "lower", "name", "out_avals", "queues")
@dc.dataclass(frozen=True, eq=False)
class Traced(BoundToProcess):
    """A function traced for one signature; its device has no part in it yet.

    Attributes:
      settings: the arguments of `ipu.compile`.
      jaxpr: the function of flat arguments; the Refs that it closes over are its last ones.
      signature: how arguments and results become flat.
    """

    settings: Settings
    jaxpr: jaxpr.ClosedJaxpr
    signature: Signature

    def __repr__(self) -> str:
        return f"<Traced {self.name}{self.in_avals} -> {self.out_avals}>"

    @functools.cached_property
    def needs_64_bit_mode(self) -> bool:
        """True if it has 64-bit values that JAX would now turn into 32-bit ones."""
        return has_wide_values(self.jaxpr)

    @property
    def name(self) -> str:
        """The name that the program will have."""
        return self.settings.name

    @property
    def line(self) -> str:
        """`file:line (function)` where the user's function begins, or ''."""
        name, _, source_line = self.jaxpr.jaxpr.debug_info.func_src_info.partition(" at ")
        return f"{source_line} ({name})" if source_line else ""

    @property
    def in_avals(self) -> object:
        """Shapes and dtypes of the arguments, `(args, kwargs)` without the static ones."""
        tree = self.signature.in_tree
        avals = _restore_float0_avals(self.jaxpr.in_avals, self.signature.tangents.arguments)
        return jax.tree.unflatten(tree, avals[: tree.num_leaves])

    @property
    def out_avals(self) -> object:
        """Shapes and dtypes of the result."""
        tree = self.signature.out_tree
        avals = _restore_float0_avals(self.jaxpr.out_avals, self.signature.tangents.results)
        return jax.tree.unflatten(tree, avals[: tree.num_leaves])

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
        with collect_garbage_seldom(), events.span("lower", self.name):
            device = find_device(self.settings, self.jaxpr)
            options = build_compiler_options(self.settings, device)
            if not self.settings.meshes:
                log_dropped_shardings(self.name, self.jaxpr)
            check_recomputation(self.jaxpr, options)
            log_disabled_offloading(self.name, self.jaxpr, options)
            watch = Watch()
            closed, signature = split_stacked_arrays(
                self.jaxpr, self.signature, self.settings, device
            )
            program = lower_for_machine(watch.record_errors_of_callbacks(closed), options)
            replicas = program.replicas // options.instances
            prepare_queues(program, device, replicas)
            warn_of_divergent_conditions(self.name, self.jaxpr, program.replicas)
            check_remote_memory(program, device)
        if replicas > 1 and self.settings.replicas is None:
            log_replica_count(self.settings, SYSTEM.generation, device, program.ipus, replicas)
        return Lowered(self, device, options, program, watch, closed, signature)


@check.guard
@limit_dir_to("as_text", "compile", "device", "program", "replicas", "report", "traced")
@dc.dataclass(frozen=True, eq=False)
class Lowered(BoundToProcess):
    """A function lowered for one signature: the Program, ready to be read or compiled.

    Attributes:
      traced: the traced function that was lowered.
      device: the logical device.
      options: the options of the compiler.
      machine_program: the Program for all IPUs of the device, as these compute it.
      watch: records what the program's callbacks raise.
      closed: the function that was lowered, whose stacked arrays may be split over the IPUs.
      signature: how arguments and results become flat.
    """

    traced: Traced
    device: LogicalDevice
    options: Options
    machine_program: ir.Program
    watch: Watch
    closed: jaxpr.ClosedJaxpr
    signature: Signature

    def __repr__(self) -> str:
        return f"<Lowered {self.program!r} for {self.device.name}>"

    def _repr_html_(self) -> str:
        """Returns a drawing for notebooks."""
        return draw_program(self.program)

    def __str__(self) -> str:
        return self.as_text().rstrip("\n")

    def as_text(self, *, origins: bool = False) -> str:
        """Returns the Program as text, one step per line; equal programs have equal texts.

        Args:
          origins: end each step with the user's `file:line`.
        """
        return ir.to_text(self.program, origins=origins)

    @property
    def program(self) -> ir.Program:
        """The Program for all IPUs of the device, which computes on a host what these do."""
        return self._emulating_program  # protocols take no cached property

    @functools.cached_property
    def _emulating_program(self) -> ir.Program:
        return emulate_machine(self.machine_program, self.options)

    @property
    def replicas(self) -> int:
        """The number of replicas that run in this process."""
        return self.machine_program.replicas // self.options.instances

    @functools.cached_property
    def has_equal_replicas(self) -> bool:
        """True if all replicas compute the same, so that their number changes no result."""
        if self.program.draws or self.options.instances > 1:
            return False
        return not depends_on_replica_count(self.closed, self.options.batch_norm_group)

    @property
    def computes_like_plain_call(self) -> bool:
        """True if calling the user's function directly gives the same results."""
        return self.has_equal_replicas and not self.program.faults

    @functools.cached_property
    def executed_program(self) -> ir.Program:
        """The Program that runs: that of one replica if all replicas compute the same."""
        has_meshes = bool(self.traced.settings.meshes)  # it was traced for their number
        if self.program.replicas == 1 or has_meshes or not self.has_equal_replicas:
            return self.program
        options = dc.replace(self.options, replicas=1, on_pass=None)
        return lower(self.watch.record_errors_of_callbacks(self.closed), options)

    @functools.cached_property
    def execution(self) -> Execution:
        """The engine and the JAX devices that run the program."""
        settings, first = self.traced.settings, self.device.first
        return Execution(
            self.executed_program,
            settings.engine,
            first,
            self.watch,
            settings.instance,
            settings.meshes,
            gather=settings.gather,
        )

    @property
    def placement(self) -> Placement:
        """The JAX devices of the program's IPUs."""
        return self.execution.placement

    @property
    def values_of_one_process(self) -> Apart:
        """The arguments and results that only one process holds."""
        settings, signature = self.traced.settings, self.signature
        holder_of = {n: holder for n, holder in enumerate(signature.holders) if holder is not None}
        stay = settings.spreads_ipus_over_processes and not settings.gather
        return Apart(holder_of, signature.out_tree.num_leaves if stay else 0)

    def compute_program_hash(self) -> str:
        """Returns a hash of everything that compilation depends on."""
        engine, config = self.execution.engine, self.device.config
        return executable_cache.compute_fingerprint(self.executed_program, engine, config)

    @jaxpr.api_boundary
    def compile(self) -> Executable:
        """Chooses the engine and compiles everything, so that no call of the program does.

        Calls may give NumPy's arrays or JAX's, also results of earlier calls and arrays that are
        committed to a device. Only a donated array on another device than JAX's first, and queues
        under another configuration of JAX (`jax.default_device`), have JAX compile once more.

        Raises:
          OutOfMemoryError: (a `MemoryError`) a program that does not fit, if the engine's options
            say that this is an error; what is put on tiles by hand and does not fit there, unless
            they allow it.
          ConfigError: (a `ValueError`) engine options that ipujax knows, with wrong values.
        """
        engine_options.apply_engine_options(self)
        return Executable(self)

    @jaxpr.api_boundary
    def report(self, target: str | Target | None = None, host: HostTrace | None = None) -> Report:
        """Returns the modelled cost of the program on a chip; modelled at the first call.

        Args:
          target: a chip or its name; that of `IPUConfig.ipu_model` by default.
          host: what `ipu.host_trace` recorded of a run, to be shown beside it.

        Raises:
          TargetError: (a `ValueError`) a target that does not exist.
          ConfigTypeError: (a `TypeError`) a host trace that is none.
        """
        from ipujax.report import choose_chip

        chip = choose_chip(self.device.config, target)
        if chip not in self._reports:
            with collect_garbage_seldom():
                self._reports[chip] = self._model_report(chip)
        report = self._reports[chip]
        return report if host is None else dc.replace(report, host=require_host_trace(host))

    @functools.cached_property
    def modelled_program(self) -> ir.Program:
        """The Program that reports describe, without the emulation of the machine's numerics.

        Number formats and faults are emulated on CPUs and GPUs only, to compute as an IPU does.
        """
        if not self.machine_program.emulates:
            return self.machine_program
        return lower(self.closed, self._modelled_options)

    @property
    def _modelled_options(self) -> Options:
        names = "number_formats catch_invalid catch_division catch_overflow".split()
        return dc.replace(self.options, **dict.fromkeys(names, False))

    @functools.cached_property
    def _reports(self) -> dict[Target, Report]:
        """The reports that were modelled, by their chips."""
        return {}

    @functools.cached_property
    def _model_memory(self) -> ModelMemory:
        """The kernels and programs that models for reports share."""
        from ipujax.report import ModelMemory

        return ModelMemory()

    def _model_report(self, chip: Target) -> Report:
        from ipujax.report import Source, make_report  # most runs need no model

        inputs, signature = [*map(int, self.modelled_program.inputs)], self.signature
        return make_report(
            self.modelled_program,
            self.device.config,
            chip,
            dict(zip(inputs, signature.argument_paths(), strict=False)),
            ladder=self.device.ladder,
            names=dict(zip(inputs, signature.argument_names_for_user(), strict=False)),
            result_names=tuple(signature.result_paths()),
            source=Source(self.closed, self._modelled_options),
            donated=signature.donated,
            meshes=self.traced.settings.meshes,
            memory=self._model_memory,
        )
