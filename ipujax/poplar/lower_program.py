"""A program as a function of JAX: the arrays of variables in, those that it writes out."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from ipujax.operators import run_superstep
from ipujax.poplar import program as programs
from ipujax.poplar.element_access import (
    State,
    read_elements,
    read_elements_of_type,
    variables_of,
    write_elements,
)
from ipujax.poplar.graph import ComputeSet, DataStream, Graph
from ipujax.poplar.stream_connections import StreamConnections
from ipujax.poplar.superstep_costs import (
    SuperstepTiles,
    compute_set_tiles,
    copy_tiles,
    elementwise_tiles,
)
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.vertex_groups import VertexGroup, group_vertices, run_groups

Step = programs.Execute | programs.Copy | programs.Operation


class ProgramLowering:
    """Lowers the programs of one engine.

    Attributes:
      graph: the graph.
      streams: the host's side of its streams.
    """

    def __init__(self, graph: Graph, streams: StreamConnections):
        self.graph, self.streams = graph, streams
        self._groups: dict[ComputeSet, list[VertexGroup]] = {}
        self._tiles: dict[object, SuperstepTiles] = {}

    def run(self, program: programs.Program, state: State) -> State:
        """Returns the state after a program, called while JAX traces."""
        match program:
            case programs.Sequence() | programs.Call():
                for part in program.parts():
                    state = self.run(part, state)
                return state
            case programs.Operation() if program.cycles is None:
                with jax.named_scope(_scope_name(program.name)):
                    return {**state, **self._compute(program, state)}
            case programs.Execute() | programs.Copy() | programs.Operation():
                return self._run_step(program, state)
            case programs.PrintTensor():
                self._print(program, state)
                return state
            case programs.WriteUndef() | programs.Sync():
                return state
            case _:
                return self._run_control(program, state)

    def groups_of(self, compute_set: ComputeSet) -> list[VertexGroup]:
        """Returns the groups of a compute set; made once."""
        if compute_set not in self._groups:
            self._groups[compute_set] = group_vertices(compute_set, len([*self.all_groups()]))
        return self._groups[compute_set]

    def all_groups(self) -> Iterator[VertexGroup]:
        """Yields the groups of all compute sets that have been lowered, by their numbers."""
        return itertools.chain.from_iterable(self._groups.values())

    def tiles_of(self, program: Step) -> SuperstepTiles:
        """Returns what is a superstep on its tiles; found once."""
        key = program.compute_set if isinstance(program, programs.Execute) else program
        if key not in self._tiles:
            if isinstance(program, programs.Execute):
                groups = self.groups_of(program.compute_set)
                tiles = compute_set_tiles(self.graph, program.name, groups)
            elif isinstance(program, programs.Operation):
                tiles = elementwise_tiles(self.graph, program)
            else:
                src, dst = program.src.elements, program.dst.elements
                tiles = copy_tiles(self.graph, program.name, src, dst, program.src.type.size)
            self._tiles[key] = tiles
        return self._tiles[key]

    def written_by(self, program: programs.Program) -> list[int]:
        """Returns the variables that any part of a program writes."""
        return sorted({n for part in program.walk() for n in self.accesses(part)[1]})

    def variables_of_program(self, program: programs.Program) -> list[int]:
        """Returns the variables that any part of a program reads or writes."""
        parts = [*program.walk()]
        regions = [tensor.elements for part in parts for tensor in part.read_tensors()]
        used = [number for part in parts for numbers in self.accesses(part) for number in numbers]
        return sorted({*used, *self._variables(regions)})

    # --- steps ------------------------------------------------------------------------------------

    def _run_step(self, program: Step, state: State) -> State:
        if isinstance(program, programs.Copy):
            if isinstance(program.src, DataStream):
                return self._copy_from_host(program.src, program.dst, state)
            if isinstance(program.dst, DataStream):
                return self._copy_to_host(program.src, program.dst, state)
        read, written = self.accesses(program)
        numbers = sorted({*read, *written})

        def step(*arrays: jax.Array) -> list[jax.Array]:
            changed = self._compute(program, dict(zip(numbers, arrays, strict=True)))
            return [changed[number] for number in written]

        if not written:
            return state
        operands = [state[number] for number in numbers]
        with jax.named_scope(_scope_name(program.name)):
            results = run_superstep(step, operands, self.tiles_of(program).step)
        return {**state, **dict(zip(written, results, strict=True))}

    def _compute(self, program: Step, state: State) -> State:
        if isinstance(program, programs.Execute):
            return run_groups(self.graph, self.groups_of(program.compute_set), state)
        if isinstance(program, programs.Operation):
            return self._operate(program, state)
        values = read_elements(self.graph, state, program.src.elements)
        return write_elements(self.graph, state, program.dst.elements, values)

    def _operate(self, program: programs.Operation, state: State) -> State:
        arrays = [
            read_elements_of_type(self.graph, state, tensor.elements, tensor.type)
            for tensor in program.inputs
        ]
        changed: State = {}
        for tensor, array in zip(program.outputs, program.function(*arrays), strict=True):
            now = {**state, **changed}
            changed |= write_elements(self.graph, now, tensor.elements, jnp.asarray(array))
        return changed

    def accesses(self, program: programs.Program) -> tuple[list[int], list[int]]:
        """Returns the variables that one step reads, and those that it writes."""
        read: list[np.ndarray] = []
        written: list[np.ndarray] = []
        match program:
            case programs.Execute():
                for group in self.groups_of(program.compute_set):
                    for name, field in group.codelet.fields.items():
                        read += [group.elements[name]] * field.is_read
                        written += [group.elements[name]] * field.is_written
            case programs.Copy():
                for regions, side in ((read, program.src), (written, program.dst)):
                    regions += [side.elements] if isinstance(side, Tensor) else []
            case programs.Operation():
                read += [tensor.elements for tensor in program.inputs]
                written += [tensor.elements for tensor in program.outputs]
            case _:
                pass
        return self._variables(read), self._variables(written)

    def _variables(self, regions: Sequence[np.ndarray]) -> list[int]:
        return sorted({n for region in regions for n in variables_of(self.graph, region)})

    def _copy_from_host(self, stream: DataStream, tensor: Tensor, state: State) -> State:
        shape = jax.ShapeDtypeStruct((stream.size,), stream.type.dtype)
        take = functools.partial(self.streams.take, stream.name)
        values = io_callback(take, shape, ordered=True)
        return {**state, **write_elements(self.graph, state, tensor.elements, values)}

    def _copy_to_host(self, tensor: Tensor, stream: DataStream, state: State) -> State:
        values = read_elements(self.graph, state, tensor.elements).reshape(-1)
        io_callback(functools.partial(self.streams.put, stream.name), None, values, ordered=True)
        return state

    def _print(self, program: programs.PrintTensor, state: State) -> None:
        def write(values: np.ndarray) -> None:
            text = np.array2string(np.asarray(values), separator=",")
            print(f"{program.title}: {text}", file=sys.stderr)

        values = read_elements(self.graph, state, program.tensor.elements)
        io_callback(write, None, values, ordered=True)

    # --- control ----------------------------------------------------------------------------------

    def _run_control(self, program: programs.Program, state: State) -> State:
        """Runs loops and branches, with what they write as their variables."""
        written = self.written_by(program)

        def body(part: programs.Program) -> Callable[[list[jax.Array]], list[jax.Array]]:
            def run(values: list[jax.Array]) -> list[jax.Array]:
                after = self.run(part, {**state, **dict(zip(written, values, strict=True))})
                return [after[number] for number in written]

            return run

        values = self._run_bodies(program, body, written, state)
        return {**state, **dict(zip(written, values, strict=True))}

    def _run_bodies(
        self,
        program: programs.Program,
        body: Callable[[programs.Program], Callable[[list[jax.Array]], list[jax.Array]]],
        written: list[int],
        state: State,
    ) -> list[jax.Array]:
        values = [state[number] for number in written]

        def scalar(tensor: Tensor, now: list[jax.Array]) -> jax.Array:
            current = {**state, **dict(zip(written, now, strict=True))}
            return read_elements(self.graph, current, tensor.elements).reshape(())

        match program:
            case programs.Repeat():
                run = body(program.body)
                return lax.fori_loop(0, program.count, lambda _, now: run(now), values)
            case programs.RepeatWhile():
                condition, run = body(program.condition), body(program.body)
                return lax.while_loop(
                    lambda now: (scalar(program.predicate, now) != 0) == program.goes_on,
                    lambda now: condition(run(now)),
                    condition(values),
                )
            case programs.If():
                is_true = scalar(program.predicate, values) != 0
                return lax.cond(is_true, body(program.true_body), body(program.false_body), values)
            case programs.Switch():
                index = jnp.int32(len(program.cases))
                for number, (case, _) in reversed([*enumerate(program.cases)]):
                    control = scalar(program.control, values)
                    index = jnp.where(control == np.asarray(case, control.dtype), number, index)
                return lax.switch(index, [body(part) for part in program.parts()], values)
            case _:
                raise NotImplementedError(f"{type(program).__name__} is not there yet")


def _scope_name(name: str) -> str:
    return name.replace("/", "_") or "superstep"
