"""A function on its way to the device: `Traced`, `Lowered`, `Executable`, as in `jax.stages`."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax

from ipujax import events
from ipujax.driver import engine_options, executable_cache
from ipujax.driver.arguments import Settings, Signature
from ipujax.driver.checks import check
from ipujax.driver.executable import Executable as Executable
from ipujax.driver.options import (
    check_queues,
    check_storage,
    device_of,
    options_for,
    tell_replicas,
)
from ipujax.driver.picture import picture
from ipujax.driver.process_bound import BoundToProcess
from ipujax.engine.callbacks import Watch
from ipujax.engine.execution import Execution
from ipujax.engine.placement import Placement
from ipujax.engine.transfers import Apart
from ipujax.host.queues import Queue
from ipujax.host_trace import HostTrace, checked
from ipujax.system.devices import SYSTEM, LogicalDevice
from lowering import (
    Options,
    has_wide_values,
    ir,
    jaxpr,
    lists,
    lower,
    ops,
    replicas_may_differ,
)

if TYPE_CHECKING:
    from ipujax.report.report import Report
    from ipujax.targets import Target


def _named_float0(
    avals: Sequence[jaxpr.Aval], tangents: Sequence[tuple[int, tuple[int, ...]]]
) -> list[jaxpr.Aval]:
    """Avals of flat arrays, with float0 where a program has booleans for it."""
    shapes = dict(tangents)
    float0 = jax.dtypes.float0
    return [
        jax.ShapeDtypeStruct(shapes[number], float0) if number in shapes else aval
        for number, aval in enumerate(avals)
    ]


@check.guard
@lists("in_avals", "jaxpr", "line", "lower", "name", "out_avals", "queues")
@dc.dataclass(frozen=True, eq=False)
class Traced(BoundToProcess):
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

    @functools.cached_property
    def is_wide(self) -> bool:
        """Whether it has values of 64 bits that JAX would make of 32 now."""
        return has_wide_values(self.jaxpr)

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
        avals = _named_float0(self.jaxpr.in_avals, self.signature.tangents.arguments)
        return jax.tree.unflatten(tree, avals[: tree.num_leaves])

    @property
    def out_avals(self) -> object:
        """Shapes and dtypes of the result."""
        tree = self.signature.out_tree
        avals = _named_float0(self.jaxpr.out_avals, self.signature.tangents.results)
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
        with events.span("lower", self.name):
            device = device_of(self.settings.device, self.jaxpr)
            options = options_for(self.settings, device)
            watch = Watch()
            program = lower(watch.over(self.jaxpr), options)
            replicas = program.replicas // options.instances
            check_queues(program, device, replicas)
            check_storage(program, device)
        if replicas > 1 and self.settings.replicas is None:
            tell_replicas(self.settings, SYSTEM.generation, device, program.ipus, replicas)
        return Lowered(self, device, options, program, watch)


@check.guard
@lists("as_text", "compile", "device", "program", "replicas", "report", "traced")
@dc.dataclass(frozen=True, eq=False)
class Lowered(BoundToProcess):
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

    def _repr_html_(self) -> str:
        """A drawing, for notebooks."""
        return picture(self.program)

    def __str__(self) -> str:
        return self.as_text().rstrip("\n")

    def as_text(self, *, origins: bool = False) -> str:
        """The Program, one step per line; stable for equal programs.

        Args:
          origins: end each step with the user's `file:line`.
        """
        return ir.to_text(self.program, origins=origins)

    @property
    def replicas(self) -> int:
        """Those that run in this process."""
        return self.program.replicas // self.options.instances

    @property
    def signature(self) -> Signature:
        """How arguments and results become flat."""
        return self.traced.signature

    @functools.cached_property
    def has_equal_replicas(self) -> bool:
        """Whether all replicas do the same: how many there are changes no number."""
        if self.program.draws or self.options.instances > 1:
            return False
        return not replicas_may_differ(self.traced.jaxpr, self.options.batch_norm_group)

    @property
    def is_plain(self) -> bool:
        """Whether the user's function, called as it is, does the same."""
        return self.has_equal_replicas and not self.program.faults

    @functools.cached_property
    def executed_program(self) -> ir.Program:
        """The Program that runs: of one replica, where all would do the same."""
        if self.program.replicas == 1 or not self.has_equal_replicas:
            return self.program
        options = dc.replace(self.options, replicas=1, on_pass=None)
        return lower(self.watch.over(self.traced.jaxpr), options)

    @functools.cached_property
    def execution(self) -> Execution:
        """How the program runs."""
        settings, first = self.traced.settings, self.device.first
        return Execution(self.executed_program, settings.engine, first, self.watch, settings.among)

    @property
    def placement(self) -> Placement:
        """The JAX devices of the program's IPUs."""
        return self.execution.placement

    @property
    def apart(self) -> Apart:
        """What of the arguments and results one process alone has."""
        settings, signature = self.traced.settings, self.signature
        held = {n: holder for n, holder in enumerate(signature.holders) if holder is not None}
        stay = settings.has_parts and not settings.gather
        return Apart(held, signature.out_tree.num_leaves if stay else 0)

    def fingerprint(self) -> str:
        """A text that tells what is compiled from everything else that could be."""
        engine, config = self.execution.engine, self.device.config
        return executable_cache.fingerprint(self.executed_program, engine, config)

    @jaxpr.api_boundary
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

    @jaxpr.api_boundary
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
        return lower(self.traced.jaxpr, self._modelled_options)

    @property
    def _modelled_options(self) -> Options:
        names = "number_formats catch_invalid catch_division catch_overflow".split()
        return dc.replace(self.options, **dict.fromkeys(names, False))

    @functools.cached_property
    def _report_on(self) -> Callable[[Target], Report]:
        from ipujax.report.advice.change import Source  # most runs need no model
        from ipujax.report.make import make_report

        inputs, signature = [*map(int, self.modelled.inputs)], self.signature
        places = dict(zip(inputs, signature.argument_names(), strict=False))
        names = dict(zip(inputs, signature.user_names(), strict=False))
        results, device = tuple(signature.result_names()), self.device
        source = Source(self.traced.jaxpr, self._modelled_options)
        return functools.cache(
            lambda chip: make_report(
                self.modelled,
                device.config,
                chip,
                places,
                device.ladder,
                names,
                results,
                source,
                signature.donated,
            )
        )
