"""The single steps of a program as JAX functions of a state, each with its modelled cost."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from ipujax.operators import Placement, Superstep, TileRuns, run_superstep
from ipujax.poplar import program as programs
from ipujax.poplar.element_access import State, read_elements, variables_of, write_elements
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import NO_TILE, ComputeSet, DataStream, RemoteBuffer
from ipujax.poplar.stream_connections import StreamConnections
from ipujax.poplar.superstep_costs import (
    compute_set_cost,
    copy_cost,
    elementwise_cost,
    planned_cost,
)
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.vertex_groups import VertexGroup, group_vertices, run_groups

Step: TypeAlias = programs.Execute | programs.Copy | programs.PrintTensor | programs.Operation

DeviceStep: TypeAlias = programs.Execute | programs.Copy | programs.Operation

FREE = Superstep(name="")
"""The cost of the program's own control: none, as the model does not count it."""

_FIRST_BUFFER_KEY = -2  # in a state; variables have the keys 0 and above, the clock has -1


def key_of_buffer(buffer: RemoteBuffer) -> int:
    """Returns the key under which a state holds a remote buffer, [repeats * elements]."""
    return _FIRST_BUFFER_KEY - buffer.number


def is_planned(graph: Graph, program: programs.Program) -> bool:
    """Returns whether a step is an operation that the planner lays out with the whole program.

    In graphs of several IPUs there is none: each operation is planned by itself, on its IPUs.
    """
    is_operation = isinstance(program, programs.Operation) and program.cycles is None
    return is_operation and graph.getTarget().ipus == 1


class StepLowering:
    """Lowers compute sets, copies and prints of one engine.

    Attributes:
      graph: the graph.
      streams: the host's connections of its streams.
      unplaced: the variables of a graph in `poplar.call` that the user has not mapped, by their
        numbers: the planner may map them. None for a graph with an engine, which counts its memory
        itself, or with operations whose results the planner lays out.
    """

    def __init__(
        self, graph: Graph, streams: StreamConnections, unplaced: frozenset[int] | None = None
    ):
        self.graph, self.streams, self.unplaced = graph, streams, unplaced
        self._placements: dict[int, Placement | None] = {}
        self._groups: dict[ComputeSet, list[VertexGroup]] = {}
        self._costs: dict[object, Superstep] = {}

    def groups_of(self, compute_set: ComputeSet) -> list[VertexGroup]:
        """Returns the vertex groups of a compute set, built once."""
        if compute_set not in self._groups:
            self._groups[compute_set] = group_vertices(compute_set, len([*self.all_groups()]))
        return self._groups[compute_set]

    def all_groups(self) -> Iterator[VertexGroup]:
        """Yields the groups of all compute sets that have been lowered, by their numbers."""
        return itertools.chain.from_iterable(self._groups.values())

    def cost_of(self, program: Step) -> Superstep:
        """Returns the modelled cost of one run of a step, computed once."""
        key = program.compute_set if isinstance(program, programs.Execute) else program
        if key not in self._costs:
            cost = self._find_cost(program)
            self._costs[key] = dc.replace(cost, where=program.where)
        return self._costs[key]

    def _find_cost(self, program: Step) -> Superstep:
        match program:
            case programs.Execute():
                groups = self.groups_of(program.compute_set)
                return compute_set_cost(self.graph, program.name, groups)
            case programs.Operation():
                find_cost = planned_cost if program.cycles is None else elementwise_cost
                return find_cost(self.graph, program)
            case programs.PrintTensor():
                tensor = program.tensor
                return Superstep(name=program.title, host_bytes=_bytes_of(tensor))
            case programs.Copy(src=Tensor() as src, dst=Tensor() as dst):
                return copy_cost(
                    self.graph, program.name, src.elements, dst.elements, src.type.size
                )
            case _:
                tensor = program.src if isinstance(program.src, Tensor) else program.dst
                is_remote = isinstance(program.src, RemoteBuffer) or isinstance(
                    program.dst, RemoteBuffer
                )
                moved = _bytes_of(tensor)
                return Superstep(
                    name=program.name,
                    host_bytes=0 if is_remote else moved,
                    remote_bytes=moved if is_remote else 0,
                )

    def accesses(self, program: programs.Program) -> tuple[list[int], list[int]]:
        """Returns the keys of the variables and remote buffers that one step reads, and writes."""
        read: list[np.ndarray] = []
        written: list[np.ndarray] = []
        buffers: tuple[list[int], list[int]] = ([], [])
        match program:
            case programs.Execute():
                for group in self.groups_of(program.compute_set):
                    for name, field in group.codelet.fields.items():
                        read += [group.elements[name]] * field.is_read
                        written += [group.elements[name]] * field.is_written
            case programs.Copy():
                sides = ((read, buffers[0], program.src), (written, buffers[1], program.dst))
                for regions, keys, side in sides:
                    regions += [side.elements] if isinstance(side, Tensor) else []
                    keys += [key_of_buffer(side)] if isinstance(side, RemoteBuffer) else []
                read += [program.offset.elements] if program.offset is not None else []
            case programs.Operation():
                read += [tensor.elements for tensor in program.inputs]
                written += [tensor.elements for tensor in program.outputs]
            case programs.CycleMark():
                written.append(program.tensor.elements)
            case _:
                read += [tensor.elements for tensor in program.read_tensors()]
        return (
            sorted({*buffers[0], *self.variables(read)}),
            sorted({*buffers[1], *self.variables(written)}),
        )

    def variables(self, regions: Sequence[np.ndarray]) -> list[int]:
        """Returns the numbers of the variables that elements belong to, sorted."""
        return sorted({n for region in regions for n in variables_of(self.graph, region)})

    # --- running ----------------------------------------------------------------------------------

    def run_step(self, program: Step, state: State) -> State:
        """Returns the state after a step, called while JAX traces."""
        match program:
            case programs.PrintTensor():
                values = self.read_tensor(program.tensor, state, cost=self.cost_of(program))
                io_callback(functools.partial(_print, program.title), None, values, ordered=True)
                return state
            case programs.Copy(dst=DataStream() as stream):
                values = self.read_tensor(program.src, state, cost=self.cost_of(program))
                write = functools.partial(self.streams.write_transfer, stream.name)
                io_callback(write, None, values.reshape(-1), ordered=True)
                return state
            case programs.Copy(src=DataStream() as stream):
                shape = jax.ShapeDtypeStruct((stream.size,), stream.type.dtype)
                read = functools.partial(self.streams.read_transfer, stream.name)
                values = io_callback(read, shape, ordered=True)
                return self._write_from_host(program, values, state)
            case programs.Operation() if is_planned(self.graph, program):
                with jax.named_scope(_scope_name(program.name)):
                    return {**state, **self._operate(program, state)}
            case _:
                self._check_offsets(program, state)
                return self._run_on_device(program, state)

    def run_function(
        self,
        function: Callable[[State], jax.Array],
        keys: Sequence[int],
        state: State,
        cost: Superstep = FREE,
    ) -> jax.Array:
        """Runs a function of some of a state's arrays as a step; by default it costs nothing."""

        def run(*arrays: jax.Array) -> list[jax.Array]:
            return [function(dict(zip(keys, arrays, strict=True)))]

        return run_superstep(run, [state[key] for key in keys], cost)[0]

    def read_tensor(
        self,
        tensor: Tensor,
        state: State,
        convert: Callable[[jax.Array], jax.Array] = lambda array: array,
        cost: Superstep = FREE,
    ) -> jax.Array:
        """Reads a tensor for the host or for control, and converts it, in a step of its own."""

        def read(variables: State) -> jax.Array:
            dtype = tensor.type.dtype
            return convert(read_elements(self.graph, variables, tensor.elements, dtype))

        return self.run_function(read, self.variables([tensor.elements]), state, cost)

    def _run_on_device(self, program: DeviceStep, state: State) -> State:
        read, written = self.accesses(program)
        overwritten = {*written}.difference(read) & self._overwritten_by(program)
        numbers = sorted({*read, *written} - overwritten)

        def step(*arrays: jax.Array) -> list[jax.Array]:
            variables = dict(zip(numbers, arrays, strict=True))
            for number in overwritten:
                variable = self.graph.variables[number]
                variables[number] = jnp.zeros(variable.size, variable.type.dtype)
            changed = self._compute(program, variables)
            return [changed[number] for number in written]

        if not written:
            return state
        operands = [state[number] for number in numbers]
        cost = dc.replace(
            self.cost_of(program),
            operand_places=tuple(map(self._placement_of, numbers)),
            result_places=tuple(map(self._placement_of, written)),
        )
        with jax.named_scope(_scope_name(program.name)):
            results = run_superstep(step, operands, cost)
        return {**state, **dict(zip(written, results, strict=True))}

    def _overwritten_by(self, program: DeviceStep) -> set[int]:
        """Returns the variables of which a step writes all elements and needs none.

        With an engine there are none, as all of its variables exist anyway. Outputs of codelets in
        C++ do not count, as elements that `compute` leaves alone keep their values.
        """
        regions: list[np.ndarray] = []
        match program:
            case programs.Execute():
                for group in self.groups_of(program.compute_set):
                    if group.codelet.native is None:
                        fields = group.codelet.fields.items()
                        regions += [group.elements[n] for n, field in fields if field.is_written]
            case programs.Copy(dst=Tensor() as tensor):
                regions.append(tensor.elements)
            case _:
                pass
        if not regions or self.unplaced is None:
            return set()
        written = np.unique(np.concatenate([region.reshape(-1) for region in regions]))
        numbers = self.variables([written])
        sizes = [self.graph.variables[number].size for number in numbers]
        starts = np.array([self.graph.variables[number].start for number in numbers], int)
        counts = np.searchsorted(written, starts + sizes) - np.searchsorted(written, starts)
        return {numbers[i] for i in np.flatnonzero(counts == sizes)}

    def _placement_of(self, number: int) -> Placement | None:
        """Returns where the user has mapped a variable; None if not all of it is mapped."""
        if self.unplaced is None or number < 0 or number in self.unplaced:
            return None
        if number not in self._placements:
            variable = self.graph.variables[number]
            tiles = self.graph.tile_of[variable.start : variable.start + variable.size]
            is_mapped = (tiles != NO_TILE).all()
            runs = TileRuns.from_tiles(tiles)
            self._placements[number] = Placement(variable.name, runs) if is_mapped else None
        return self._placements[number]

    def _compute(self, program: DeviceStep, state: State) -> State:
        """Returns the arrays that a step on the device writes."""
        if isinstance(program, programs.Execute):
            return run_groups(self.graph, self.groups_of(program.compute_set), state)
        if isinstance(program, programs.Operation):
            return self._operate(program, state)
        src, dst = program.src, program.dst
        if isinstance(src, RemoteBuffer):
            rows = state[key_of_buffer(src)].reshape(src.repeats, src.size)
            values = rows[self._offsets(program, state)].reshape(-1)
            return write_elements(self.graph, state, dst.elements, values)
        values = read_elements(self.graph, state, src.elements, src.type.dtype)
        if isinstance(dst, RemoteBuffer):
            key = key_of_buffer(dst)
            rows = state[key].reshape(dst.repeats, dst.size)
            rows = rows.at[self._offsets(program, state)].set(values.reshape(-1, dst.size))
            return {key: rows.reshape(-1)}
        return write_elements(self.graph, state, dst.elements, values)

    def _operate(self, program: programs.Operation, state: State) -> State:
        """Returns the arrays that an operation of PopLibs writes."""
        arrays = [
            read_elements(self.graph, state, tensor.elements, tensor.type.dtype)
            for tensor in program.inputs
        ]
        changed: State = {}
        for tensor, array in zip(program.outputs, program.function(*arrays), strict=True):
            changed |= write_elements(
                self.graph, {**state, **changed}, tensor.elements, jnp.asarray(array)
            )
        return changed

    def _offsets(self, program: programs.Copy, state: State) -> jax.Array:
        if program.offset is None:
            return jnp.zeros(1, jnp.int32)
        dtype = program.offset.type.dtype
        return read_elements(self.graph, state, program.offset.elements, dtype).reshape(-1)

    def _check_offsets(self, program: Step, state: State) -> None:
        if not isinstance(program, programs.Copy) or program.offset is None:
            return
        side = program.src if isinstance(program.src, RemoteBuffer) else program.dst
        offsets = self.read_tensor(program.offset, state, lambda offsets: offsets.reshape(-1))
        check = functools.partial(self.streams.require_rows, side, program.where)
        io_callback(check, None, offsets, ordered=True)

    def _write_from_host(self, program: programs.Copy, values: jax.Array, state: State) -> State:
        numbers = self.variables([program.dst.elements])

        def write(values: jax.Array, *arrays: jax.Array) -> list[jax.Array]:
            variables = dict(zip(numbers, arrays, strict=True))
            changed = write_elements(self.graph, variables, program.dst.elements, values)
            return [changed[number] for number in numbers]

        operands = [values, *(state[number] for number in numbers)]
        results = run_superstep(write, operands, self.cost_of(program))
        return {**state, **dict(zip(numbers, results, strict=True))}


def _print(title: str, values: np.ndarray) -> None:
    text = np.array2string(np.asarray(values), separator=",")
    print(f"{title}: {text}", file=sys.stderr)


def _bytes_of(tensor: Tensor) -> int:
    return tensor.numElements() * tensor.type.size


def _scope_name(name: str) -> str:
    return name.replace("/", "_") or "superstep"
