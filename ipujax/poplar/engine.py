"""Engines: programs of a graph, ready to run, and what its variables hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import driver
from ipujax.poplar import program as programs
from ipujax.poplar.cpp_codelets import explain_failure
from ipujax.poplar.devices import Device
from ipujax.poplar.element_access import State, variables_of
from ipujax.poplar.engine_checks import check_calls, check_programs
from ipujax.poplar.exceptions import (
    check,
    control_program_error,
    index_error,
    stream_connection_error,
)
from ipujax.poplar.graph import DataStream, Graph
from ipujax.poplar.graph_report import GraphReport, make_graph_report
from ipujax.poplar.lower_program import ProgramLowering
from ipujax.poplar.plain_fields import connect_plain_fields
from ipujax.poplar.stream_connections import StreamConnections
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_places import user_place
from ipujax.poplar.written_elements import WrittenElements

READ_UNWRITTEN = "debug.readUnwritten"


@check.guard
class Engine:
    """The programs of a graph, checked.

    Args:
      graph: the graph; what is added to it later does not count.
      programs: one program, or a list of them.
      options: `{"debug.readUnwritten": "zero"}` has unwritten elements be zero.

    Raises:
      poplar_error: by its kinds, for what `engine_checks` finds.
    """

    def __init__(self, graph: Graph, programs: Any, options: Mapping[str, str] | None = None):
        self._graph = check.require_instance(graph, Graph, "graph")
        given = programs if isinstance(programs, (list, tuple)) else [programs]
        self._programs = [_require_program(each) for each in given]
        self._options = dict(options or {})
        for option in self._options:
            if option != READ_UNWRITTEN:
                raise NotImplementedError(f"the engine option {option!r} is not there yet")
        for each in self._programs:
            check_calls(each)
        connect_plain_fields(graph, self._programs)
        check_programs(graph, self._programs)
        self._streams = StreamConnections(graph)
        self._lowering = ProgramLowering(graph, self._streams)
        self._compiled: dict[int, tuple[Any, list[int], list[int]]] = {}
        self._written = WrittenElements(graph)
        self._state: State = self._initial_state()
        self._settled: set[int] = set()
        self._is_loaded = False

    def _initial_state(self) -> State:
        values = {
            variable.number: np.zeros(variable.size, variable.type.dtype)
            if variable.values is None
            else np.array(variable.values)
            for variable in self._graph.variables
        }
        for elements, given in self._graph.initial_values:
            _put_on_host(self._graph, values, elements, given)
        return {number: jnp.asarray(array) for number, array in values.items()}

    def load(self, device: Device) -> None:
        """Loads the engine onto a device."""
        check.require_instance(device, Device, "device")
        if device.getTarget() != self._graph.getTarget():
            raise control_program_error(
                "the device is of another target than the graph",
                where=user_place(),
                fix="make the graph with device.getTarget()",
            )
        self._is_loaded = True

    def run(self, index: int = 0, debugName: str = "") -> None:
        """Runs one of the programs.

        Args:
          index: its place in the list of programs.
          debugName: a name for this run; ignored by Poplar's results, and here.

        Raises:
          stream_connection_error: a stream that is not connected.
          control_program_error: a read of elements that nothing has written; no such program; an
            engine that is not loaded.
        """
        program = self._program(index)
        if not self._is_loaded:
            raise control_program_error(
                "the engine is not loaded", where=user_place(), fix="call engine.load(device)"
            )
        for part in program.walk():
            for side in (part.src, part.dst) if isinstance(part, programs.Copy) else ():
                if isinstance(side, DataStream):
                    self._streams.require_connected(side, part.where)
        if self._options.get(READ_UNWRITTEN) != "zero" and index not in self._settled:
            self._follow(index, program)
        compiled, numbers, written = self._compile(index)
        try:
            results = compiled([self._state[number] for number in numbers])
            jax.block_until_ready(results)
        except jax.errors.JaxRuntimeError as error:
            raise explain_failure(error, self._lowering.all_groups()) or error from None
        self._state |= dict(zip(written, results, strict=True))
        jax.effects_barrier()

    def _follow(self, index: int, program: programs.Program) -> None:
        """Follows what a program writes; programs that change nothing more are settled."""
        before = self._written.known.copy()
        try:
            self._written.run(program)
        except control_program_error:
            self._written.known = before
            raise
        if not np.array_equal(before, self._written.known):
            self._settled.clear()
        else:
            self._settled.add(index)

    def loadAndRun(self, device: Device, index: int = 0) -> None:
        """Loads the engine onto a device, and runs one of the programs."""
        self.load(device)
        self.run(index)

    def _program(self, index: int) -> programs.Program:
        index = check.require_integer(index, "index", at_least=0)
        if index >= len(self._programs):
            raise control_program_error(
                f"there is no program {index}",
                where=user_place(),
                fix=f"the engine has {len(self._programs)}",
            )
        return self._programs[index]

    def _compile(self, index: int) -> tuple[Any, list[int], list[int]]:
        """Returns the compiled program, the variables that it takes, and those that it gives."""
        if index not in self._compiled:
            program = self._program(index)
            numbers = self._lowering.variables_of_program(program)
            written = self._lowering.written_by(program)

            def run(arrays: list[jax.Array]) -> list[jax.Array]:
                after = self._lowering.run(program, dict(zip(numbers, arrays, strict=True)))
                return [after[number] for number in written]

            self._compiled[index] = (driver.compile(run, name=f"program_{index}"), numbers, written)
        return self._compiled[index]

    # --- the host ---------------------------------------------------------------------------------

    def connectStream(self, handle: str, begin: np.ndarray) -> None:
        """Connects a stream with a contiguous array of its dtype, used in place.

        Args:
          handle: the stream's name.
          begin: one transfer, or several as a ring.
        """
        self._streams.connect(handle, begin)

    def connectStreamToCallback(self, handle: str, callback: Callable[[np.ndarray], None]) -> None:
        """Connects a stream with a function that fills, or reads, each transfer's array."""
        self._streams.connect_callback(handle, callback)

    def writeTensor(self, handle: str, buffer: Any) -> None:
        """Writes a tensor that `Graph.createHostWrite` has named."""
        tensor = _find_handle(self._graph.host_writes, handle)
        values = np.asarray(buffer, tensor.type.dtype).reshape(-1)
        flat = tensor.elements.reshape(-1)
        if values.size != flat.size:
            raise index_error(
                f"{values.size} values for '{handle}', {tensor}",
                where=user_place(),
                fix=f"give {flat.size}",
            )
        arrays = {n: np.array(self._state[n]) for n in variables_of(self._graph, flat)}
        _put_on_host(self._graph, arrays, flat, values)
        self._state |= {number: jnp.asarray(array) for number, array in arrays.items()}
        if not self._written.known[flat].all():
            self._written.known[flat] = True
            self._settled.clear()

    def readTensor(self, handle: str, buffer: np.ndarray | None = None) -> np.ndarray:
        """Reads a tensor that `Graph.createHostRead` has named.

        Args:
          handle: its name.
          buffer: the array to fill and return; a new one of the tensor's shape by default.
        """
        tensor = _find_handle(self._graph.host_reads, handle)
        flat = tensor.elements.reshape(-1)
        if self._options.get(READ_UNWRITTEN) != "zero":
            self._written.require(flat, f"readTensor('{handle}')", user_place())
        if buffer is None:
            buffer = np.empty(tensor.shape(), tensor.type.dtype)
        if buffer.size != flat.size or buffer.dtype != tensor.type.dtype:
            raise index_error(
                f"the array for '{handle}' has {buffer.size} elements of {buffer.dtype}, and "
                f"{tensor} has {flat.size}",
                where=user_place(),
            )
        values = np.empty(flat.size, tensor.type.dtype)
        for number in variables_of(self._graph, flat):
            variable = self._graph.variables[number]
            inside = (flat >= variable.start) & (flat < variable.start + variable.size)
            values[inside] = np.asarray(self._state[number])[flat[inside] - variable.start]
        buffer[...] = values.reshape(buffer.shape)
        return buffer

    # --- reports ----------------------------------------------------------------------------------

    def report(self, program: int = 0) -> GraphReport:
        """Returns the modelled cost of one run of a program."""
        compiled, numbers, _ = self._compile(program)
        report = compiled.lower([self._state[n] for n in numbers]).report(
            self._graph.getTarget().chip
        )
        return make_graph_report(report, self._graph, self._lowering, self._program(program))

    getReport = report

    def printProfileSummary(self, program: int = 0) -> None:
        """Prints the report of a program."""
        print(self.report(program))


def _require_program(value: Any) -> programs.Program:
    return programs.require_program(value)


def _find_handle(handles: Mapping[str, Tensor], handle: str) -> Tensor:
    if handle not in handles:
        raise stream_connection_error(
            f"the graph has no host copy '{handle}'",
            where=user_place(),
            fix=f"it has: {', '.join(handles) or 'none'}",
        )
    return handles[handle]


def _put_on_host(
    graph: Graph, arrays: Mapping[int, np.ndarray], elements: np.ndarray, values: np.ndarray
) -> None:
    for number in variables_of(graph, elements):
        variable = graph.variables[number]
        inside = (elements >= variable.start) & (elements < variable.start + variable.size)
        arrays[number][elements[inside] - variable.start] = values[inside]
