"""A compiled program: the last form of a function on its way to the device."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ipujax.distribution import check_same_in_all_processes, connect_meshes
from ipujax.driver import executable_cache
from ipujax.driver.compile_checks import check
from ipujax.driver.device_options import is_logging_cycles
from ipujax.driver.process_bound import BoundToProcess
from ipujax.driver.ready_program import ReadyProgram
from ipujax.engine import list_memory_analyses, sum_cost_analyses
from ipujax.ground import HostTrace, IpuTraceEventType, PyTree, events
from ipujax.system import get_logger, resolve_floating_point_behaviour
from lowering import ir, jaxpr, keep_wide_values, limit_dir_to

if TYPE_CHECKING:
    from ipujax.driver.compile_stages import Lowered
    from ipujax.report import Report
    from ipujax.system import Target


@check.guard
@limit_dir_to(
    "as_text", "cost_analysis", "engine", "lowered", "memory_analysis", "program", "report", "save"
)
class Executable(BoundToProcess):
    """A compiled program: call it with arguments of the signature that it was lowered for.

    Attributes:
      lowered: the lowered program that was compiled.
      engine: the name of the engine that runs it.
    """

    def __init__(self, lowered: Lowered):
        self.lowered = lowered
        program, execution = lowered.executed_program, lowered.execution
        if lowered.traced.settings.instance.count > 1:
            check_same_in_all_processes(
                program.name, executable_cache.program_text_with_constants(program)
            )
        executable_cache.activate_cache()
        entry = executable_cache.cache_entry_path(lowered.compute_program_hash)
        cached = executable_cache.is_compiled_already(entry)
        if not cached:
            events.emit(IpuTraceEventType.COMPILE_BEGIN, program.name)
        kind = "load" if cached else "compile"
        with events.span(kind, program.name), executable_cache.watch_cache_misses() as has_missed:
            self.engine = execution.engine
            with keep_wide_values(wide=lowered.traced.needs_64_bit_mode):
                self._machine = execution.compile_machine(
                    lowered.signature.donated, lowered.values_of_one_process
                )
            if cached and has_missed():
                events.emit(IpuTraceEventType.COMPILE_BEGIN, program.name)
                cached = False
        if lowered.options.instances > 1:
            connect_meshes(execution.placement.replica_meshes())
        signature, host_code = lowered.signature, execution.host_code
        traps = any(resolve_floating_point_behaviour(lowered.device.config)[:3])
        self._ready = ReadyProgram(
            program, signature, lowered.device, self._machine, host_code, raises_faults=traps
        )
        if not cached:
            executable_cache.mark_as_compiled(entry, program.name)
            text = self.as_text() if events.is_anyone_recording_events() else ""
            events.emit(IpuTraceEventType.COMPILE_END, program.name, text)
        logs_cycles = is_logging_cycles(lowered.device)
        self._cycles = lowered.report().cycles if logs_cycles else None
        folder = lowered.device.config.serialization_output_folder
        if folder:
            from ipujax.driver.saved.write import save_into_folder

            save_into_folder(self, folder)

    def __repr__(self) -> str:
        name = self.lowered.device.name
        return f"<Executable {self.lowered.program!r} for {name}, engine {self.engine!r}>"

    @property
    def program(self) -> ir.Program:
        """The Program that runs: fused, if the engine is."""
        return self._machine.program

    def as_text(self) -> str:
        """Returns the text of the Program that runs."""
        return ir.to_text(self.program)

    @jaxpr.api_boundary
    def report(self, target: str | Target | None = None, host: HostTrace | None = None) -> Report:
        """Returns the report of `Lowered.report`; needs no run."""
        return self.lowered.report(target, host)

    @jaxpr.api_boundary
    def __call__(self, *args: object, **kwargs: object) -> PyTree:
        """Runs the program.

        Raises:
          ExecutableArgumentError: (a `TypeError` and `ValueError`) arguments of another structure,
            shape or dtype than it was lowered for.
          OutOfRangeError: a data set that ended before its loop.
          FloatingPointError: what `floating_point_behaviour` was asked to catch.
          FailedPreconditionError: a host embedding that is not registered.
          OperatorError: an index outside of a host embedding, if its lookup does not clip.
          CustomOpError: the program failed, and has custom operations.
          CallbackError: a callback of the program raised.
        """
        results = self._ready(args, kwargs)
        if self._cycles is not None:
            get_logger().info("`%s`: %s cycles (modelled)", self.program.name, f"{self._cycles:,}")
        return results

    @jaxpr.api_boundary
    def place_arguments(self, *args: object) -> tuple[PyTree, ...]:
        """Returns arguments with each JAX array on the device of the first IPU that reads it.

        A call then moves it no more. Arrays that are there, that no IPU reads, or that belong to a
        program whose results are gathered or that runs on JAX's first device alone, are returned
        as they are, and so is all that is no JAX array.

        Raises:
          ExecutableArgumentError: (a `TypeError` and `ValueError`) arguments of another structure
            than it was lowered for.
        """
        return self._ready.place_arguments(args)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program to a file, whole or not at all: see `ipu.load_executable`.

        Its kernels are kept as StableHLO, for the kind of JAX device that this process computes
        on. What only this process has, such as Python functions that the program calls, cannot be
        saved.

        Raises:
          ExecutableError: (a `ValueError`) a program that cannot be saved; it says why and where.
          MissingExtraError: (an `ImportError`) the package of the extra `export` is missing.
          OSError: a file that cannot be written.
        """
        from ipujax.driver.saved.write import save_executable  # most runs write nothing

        with keep_wide_values(wide=self.lowered.traced.needs_64_bit_mode):
            save_executable(self, path)

    def cost_analysis(self) -> dict[str, float]:
        """Returns XLA's cost estimates (`flops`, `bytes accessed`), summed over the kernels."""
        return sum_cost_analyses(self._machine.list_compiled_kernels())

    def memory_analysis(self) -> list[object]:
        """Returns XLA's memory statistics, one entry per kernel."""
        return list_memory_analyses(self._machine.list_compiled_kernels())
