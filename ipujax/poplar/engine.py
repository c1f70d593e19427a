"""Engines: they run a graph's programs, and hold the values of its variables."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import driver
from ipujax.ground import CallbackError
from ipujax.poplar import program as programs
from ipujax.poplar.cpp_codelets import explain_failure
from ipujax.poplar.devices import Device
from ipujax.poplar.element_access import State, variables_of
from ipujax.poplar.engine_checks import check_programs
from ipujax.poplar.engine_options import read_engine_settings
from ipujax.poplar.exceptions import (
    check,
    control_program_error,
    index_error,
    poplar_error,
    profiling_disabled,
    stream_connection_error,
)
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import DataStream, RemoteBuffer
from ipujax.poplar.host_values import initial_state, read_values, write_values
from ipujax.poplar.lower_program import ProgramLowering
from ipujax.poplar.lower_steps import is_planned, key_of_buffer
from ipujax.poplar.program import require_program
from ipujax.poplar.stream_connections import StreamConnections
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.tile_memory import check_memory, list_steps, list_tensors
from ipujax.poplar.user_lines import user_line
from ipujax.poplar.written_elements import WrittenElements
from ipujax.report import PlacedStep, Report, auto_report, place_memory, spread_over_ipus
from ipujax.system import read_engine_options


@check.guard
class Engine:
    """The compiled programs of a graph, with the values of its variables.

    Args:
      graph: the graph; what is added to it later does not count.
      programs: one program, or a list of them.
      options: `{"debug.readUnwritten": "zero"}` has unwritten elements be zero,
        `debug.allowOutOfMemory` lets tiles hold more than they have, without
        `debug.retainDebugInformation` there are no reports, and `autoReport.*` has them written.
        Other options of C++ are listed once in the log.

    Raises:
      poplar_error: an error that `engine_checks` or `tile_memory` finds, or an option that C++
        does not have.
    """

    def __init__(self, graph: Graph, programs: Any, options: Mapping[str, str] | None = None):
        self._graph = graph = check.require_instance(graph, Graph, "graph").root
        all_programs = programs if isinstance(programs, (list, tuple)) else [programs]
        self._programs = [require_program(program) for program in all_programs]
        self._settings = read_engine_settings(options)
        check_programs(graph, self._programs)
        self._streams = StreamConnections(graph)
        self._lowering = ProgramLowering(graph, self._streams, self._programs)
        if not self._settings.allows_out_of_memory:
            steps = list_steps(graph, self._lowering.steps, self._programs)
            check_memory(graph, list_tensors(graph), steps)
        self._compiled: dict[int, _CompiledProgram] = {}
        self._written = WrittenElements(graph)
        self._state: State = initial_state(graph)
        # Programs whose runs read only written elements, and write no others.
        self._checked: set[int] = set()
        self._is_loaded = False

    def load(self, device: Device) -> None:
        """Loads the engine onto a device."""
        check.require_instance(device, Device, "device")
        if device.getTarget() != self._graph.getTarget():
            raise control_program_error(
                "the device is of another target than the graph",
                where=user_line(),
                fix="make the graph with device.getTarget()",
            )
        self._is_loaded = True

    def run(self, index: int = 0, debugName: str = "") -> None:
        """Runs one of the programs.

        Args:
          index: its index in the list of programs.
          debugName: a name for this run, which is ignored.

        Raises:
          stream_connection_error: a stream that is not connected.
          control_program_error: a read of elements that nothing has written; no such program; an
            engine that is not loaded.
          index_error: a row that a remote buffer does not have.
        """
        program = self._program(index)
        if not self._is_loaded:
            raise control_program_error(
                "the engine is not loaded", where=user_line(), fix="call engine.load(device)"
            )
        for part in program.walk():
            for side in (part.src, part.dst) if isinstance(part, programs.Copy) else ():
                if isinstance(side, DataStream):
                    self._streams.require_connected(side, part.where)
        if not self._settings.takes_unwritten_as_zero and index not in self._checked:
            self._check_reads(index, program)
        compiled = self._compile(index)
        try:
            results = compiled.function(compiled.arguments(self._state))
            jax.block_until_ready(results)
        except jax.errors.JaxRuntimeError as error:
            raise explain_failure(error, self._lowering.steps.all_groups()) or error from None
        except CallbackError as error:
            # The host's side of a step has failed, for a row that a remote buffer lacks.
            if isinstance(error.__cause__, poplar_error):
                raise error.__cause__ from None
            raise
        self._state |= dict(zip(compiled.result_keys, results, strict=True))
        jax.effects_barrier()

    def _check_reads(self, index: int, program: programs.Program) -> None:
        """Raises an error for a read of unwritten elements; notes the elements that are written."""
        written_before = self._written.is_written.copy()
        try:
            self._written.run(program)
        except control_program_error:
            self._written.is_written = written_before
            raise
        if np.array_equal(written_before, self._written.is_written):
            self._checked.add(index)
        else:
            self._checked.clear()

    def loadAndRun(self, device: Device, index: int = 0) -> None:
        """Loads the engine onto a device, and runs one of the programs."""
        self.load(device)
        self.run(index)

    def disableExecutionProfiling(self) -> None:
        """Does nothing: reports are modelled, whatever has run."""

    def enableExecutionProfiling(self) -> None:
        """Does nothing: reports are modelled, whatever has run."""

    def _program(self, index: int) -> programs.Program:
        index = check.require_integer(index, "index", at_least=0)
        if index >= len(self._programs):
            raise control_program_error(
                f"there is no program {index}",
                where=user_line(),
                fix=f"the engine has {len(self._programs)}",
            )
        return self._programs[index]

    def _compile(self, index: int) -> _CompiledProgram:
        if index not in self._compiled:
            program = self._program(index)
            argument_keys = self._lowering.keys_used_by(program)
            result_keys = self._lowering.keys_written_by(program)

            def run(arrays: list[jax.Array]) -> list[jax.Array]:
                state = dict(zip(argument_keys, arrays, strict=True))
                final_state = self._lowering.run(program, state)
                return [final_state[key] for key in result_keys]

            function = driver.compile(run, name=f"program_{index}")
            self._compiled[index] = _CompiledProgram(function, argument_keys, result_keys)
            self._write_auto_report(index)
        return self._compiled[index]

    # --- the host ---------------------------------------------------------------------------------

    def connectStream(self, handle: str, begin: np.ndarray) -> None:
        """Connects a stream with a contiguous array of its dtype, used in place.

        Args:
          handle: the stream's name.
          begin: one transfer, or several as a ring.
        """
        self._streams.connect(handle, begin)

    def connectStreamToCallback(self, handle: str, index: Any, callback: Any = None) -> None:
        """Connects a stream with a callback that fills, or reads, the array of each transfer.

        Args:
          handle: the stream's name.
          index: the number of the replica, 0, which may be left out.
          callback: a function of the array, or a `StreamCallback`.
        """
        if callback is None:
            index, callback = 0, index
        _require_replica(index, "index")
        self._streams.connect_callback(handle, callback)

    def connectHostFunction(self, *_: Any) -> NoReturn:
        """Raises a `NotImplementedError`: the host takes part by streams and their callbacks."""
        raise NotImplementedError("poplar.Engine.connectHostFunction is left out")

    def writeTensor(self, handle: str, buffer: Any) -> None:
        """Writes a tensor that `Graph.createHostWrite` has named."""
        tensor = _find_handle(self._graph.host_writes, handle)
        values = np.asarray(buffer, tensor.type.dtype).reshape(-1)
        flat = tensor.elements.reshape(-1)
        if values.size != flat.size:
            raise index_error(
                f"{values.size} values for '{handle}', {tensor}",
                where=user_line(),
                fix=f"give {flat.size}",
            )
        arrays = {n: np.array(self._state[n]) for n in variables_of(self._graph, flat)}
        write_values(self._graph, arrays, flat, values)
        self._state |= {number: jnp.asarray(array) for number, array in arrays.items()}
        if not self._written.is_written[flat].all():
            self._written.is_written[flat] = True
            self._checked.clear()

    def readTensor(self, handle: str, buffer: np.ndarray | None = None) -> np.ndarray:
        """Reads a tensor that `Graph.createHostRead` has named.

        Args:
          handle: its name.
          buffer: the array to fill and return; a new one of the tensor's shape by default.
        """
        tensor = _find_handle(self._graph.host_reads, handle)
        flat = tensor.elements.reshape(-1)
        if not self._settings.takes_unwritten_as_zero:
            self._written.require(flat, f"readTensor('{handle}')", user_line())
        values = read_values(self._graph, self._state, flat, tensor.type.dtype)
        return _fill(buffer, values.reshape(tensor.shape()), f"'{handle}', {tensor}")

    def copyToRemoteBuffer(
        self, src: Any, handle: str, repeatIndex: int = 0, replicationIndex: int = 0
    ) -> None:
        """Writes a row of a remote buffer.

        Args:
          src: its elements.
          handle: the buffer's name.
          repeatIndex: the row.
          replicationIndex: the replica: 0.
        """
        buffer, row = self._find_row(handle, repeatIndex, replicationIndex)
        values = np.asarray(src, buffer.type.dtype).reshape(-1)
        if values.size != buffer.size:
            raise index_error(
                f"{values.size} values for a row of remote buffer '{handle}'",
                where=user_line(),
                fix=f"give {buffer.size}",
            )
        key = key_of_buffer(buffer)
        rows = np.array(self._state[key])
        rows[row] = values
        self._state[key] = jnp.asarray(rows)

    def copyFromRemoteBuffer(
        self,
        handle: str,
        dst: np.ndarray | None = None,
        repeatIndex: int = 0,
        replicationIndex: int = 0,
    ) -> np.ndarray:
        """Reads a row of a remote buffer.

        Args:
          handle: the buffer's name.
          dst: the array to fill and return; a new one by default.
          repeatIndex: the row.
          replicationIndex: the replica: 0.
        """
        buffer, row = self._find_row(handle, repeatIndex, replicationIndex)
        values = np.asarray(self._state[key_of_buffer(buffer)])[row]
        return _fill(dst, values, f"remote buffer '{handle}'")

    def _find_row(self, handle: str, row: int, replica: int) -> tuple[RemoteBuffer, slice]:
        buffer = self._graph.remote_buffers.get(check.require_instance(handle, str, "handle"))
        if buffer is None:
            raise stream_connection_error(
                f"the graph has no remote buffer '{handle}'",
                where=user_line(),
                fix=f"it has: {', '.join(self._graph.remote_buffers) or 'none'}",
            )
        _require_replica(replica, "replicationIndex")
        row = check.require_integer(row, "repeatIndex", at_least=0)
        self._streams.require_rows(buffer, user_line(), np.array([row]))
        return buffer, slice(row * buffer.size, (row + 1) * buffer.size)

    # --- reports ----------------------------------------------------------------------------------

    def report(self, program: int = 0) -> Report:
        """Returns the modelled cost of one run of a program.

        `memory` holds the graph's variables and constants on the tiles that they are mapped to,
        and the most work space of operations that the planner lays out.

        Raises:
          profiling_disabled: the options have no information retained.
        """
        if not self._settings.keeps_reports:
            raise profiling_disabled(
                'the engine was made with {"debug.retainDebugInformation": "false"}',
                where=user_line(),
                fix="leave that out",
            )
        target = self._graph.getTarget()
        planned = self._lower(program).report(target.as_one_chip)
        if target.ipus > 1:
            planned = spread_over_ipus(planned, target.chip, target.ipus)
        steps = list_steps(self._graph, self._lowering.steps, [self._program(program)])
        if any(is_planned(self._graph, part) for part in self._program(program).walk()):
            work_space = planned.memory.tile_categories["temporaries"]
            steps.append(PlacedStep("operations that the planner lays out", work_space))
        buffers = self._graph.remote_buffers.values()
        return place_memory(
            planned,
            list_tensors(self._graph),
            steps,
            sum(buffer.repeats * buffer.size * buffer.type.size for buffer in buffers),
        )

    getReport = report

    def printProfileSummary(
        self, outputStream: Any = None, options: Mapping[str, str] | None = None
    ) -> None:
        """Prints the reports of all programs.

        Args:
          outputStream: the text file to print to; standard output by default.
          options: `showExecutionSteps` adds a line for each step of a call.
        """
        flags = check.require_instance(options, Mapping, "options", "a dict", optional=True) or {}
        shows_steps = str(flags.get("showExecutionSteps", "false")).lower() == "true"
        for index in range(len(self._programs)):
            report = self.report(index)
            print(report, file=outputStream)
            for step in report.steps if shows_steps else ():
                print(f"{step.start_cycle:>12,} {step.kind:9} {step.name}", file=outputStream)

    def _lower(self, index: int) -> Any:
        compiled = self._compile(index)
        return compiled.function.lower(compiled.arguments(self._state))

    def _write_auto_report(self, index: int) -> None:
        """Writes the reports of a program that the `autoReport` options ask for."""
        if self._settings.auto_report:
            reportable = _ReportedProgram(self, index, self._lower(index))
            auto_report.write_auto_report(
                reportable, read_engine_options(self._settings.auto_report)
            )


@dc.dataclass(frozen=True, slots=True)
class _CompiledProgram:
    """A compiled program: a function, and the keys in a state of its arguments and results."""

    function: Any
    argument_keys: list[int]
    result_keys: list[int]

    def arguments(self, state: State) -> list[jax.Array]:
        """Returns the function's arguments."""
        return [state[key] for key in self.argument_keys]


class _ReportedProgram:
    """A program of an engine, as automatic reports take it."""

    def __init__(self, engine: Engine, index: int, lowered: Any):
        self._engine, self._index, self._lowered = engine, index, lowered
        self.program = lowered.program

    def compute_program_hash(self) -> str:
        """Returns a text that tells the program from all others."""
        return self._lowered.compute_program_hash()

    def report(self) -> Report:
        """Models the cost of the program."""
        return self._engine.report(self._index)

    def as_text(self, *, origins: bool = False) -> str:
        """Returns the program as text."""
        return self._lowered.as_text(origins=origins)


def _require_replica(replica: Any, argument: str) -> None:
    if check.require_integer(replica, argument, at_least=0):
        raise index_error(f"replica {replica}", where=user_line(), fix="there is one, 0")


def _find_handle(handles: Mapping[str, Tensor], handle: str) -> Tensor:
    if handle not in handles:
        raise stream_connection_error(
            f"the graph has no host copy '{handle}'",
            where=user_line(),
            fix=f"it has: {', '.join(handles) or 'none'}",
        )
    return handles[handle]


def _fill(buffer: np.ndarray | None, values: np.ndarray, description: str) -> np.ndarray:
    """Returns the user's array filled with values, or a new array of them."""
    if buffer is None:
        return values.copy()
    check.require_instance(buffer, np.ndarray, "the array to fill", "a NumPy array")
    if buffer.size != values.size or buffer.dtype != values.dtype:
        raise index_error(
            f"the array has {buffer.size} elements of {buffer.dtype}, and {description} has "
            f"{values.size} of {values.dtype}",
            where=user_line(),
        )
    buffer[...] = values.reshape(buffer.shape)
    return buffer
