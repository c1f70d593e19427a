"""Programs as JAX functions of a state.

A state holds arrays by integer keys: variables by their numbers (0 and above), the clock, and
remote buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.operators import cycles_of_function, run_branch
from ipujax.poplar import program as programs
from ipujax.poplar.element_access import State, write_elements
from ipujax.poplar.graph import Graph
from ipujax.poplar.lower_steps import Step, StepLowering, key_of_buffer
from ipujax.poplar.stream_connections import StreamConnections
from ipujax.poplar.tensors import Tensor

CLOCK = -1
"""The key under which a state holds the cycles that have passed, uint32 [2]: low, high."""

_EARLIER_CLOCK = -(2**62)
"""The key of the clock at the start of a part whose cycles are counted."""

_Body = Callable[[list[jax.Array]], list[jax.Array]]
"""The body of a loop or branch: the arrays of the variables that it writes, before and after."""


class ProgramLowering:
    """Lowers the programs of one engine.

    Attributes:
      graph: the graph.
      steps: the lowering of single steps.
      has_clock: whether a program asks for cycles, so that all of them count.
    """

    def __init__(
        self,
        graph: Graph,
        streams: StreamConnections,
        all_programs: Iterable[programs.Program],
        unplaced: frozenset[int] | None = None,
    ):
        self.graph, self.steps = graph, StepLowering(graph, streams, unplaced)
        self.has_clock = any(
            isinstance(part, programs.CycleMark)
            for program in all_programs
            for part in program.walk()
        )
        self._cycles: dict[int, int] = {}

    def run(self, program: programs.Program, state: State) -> State:
        """Returns the state after a program, called while JAX traces."""
        match program:
            case programs.CycleCount():
                clock_before = state[CLOCK]
                state = self.run(program.body, state)
                return self._mark(program, clock_before, state)
            case programs.CycleStamp():
                return self._mark(program, jnp.zeros(2, jnp.uint32), state)
            case programs.Sequence() | programs.Call():
                for part in program.parts():
                    state = self.run(part, state)
                return state
            case (
                programs.Execute() | programs.Copy() | programs.PrintTensor() | programs.Operation()
            ):
                return self._pass_time(program, self.steps.run_step(program, state))
            case programs.WriteUndef() | programs.Sync():
                return state
            case _:
                return self._run_control(program, state)

    def keys_written_by(self, program: programs.Program) -> list[int]:
        """Returns the keys of the variables, remote buffers and clock that a program writes."""
        written = {key for part in program.walk() for key in self.steps.accesses(part)[1]}
        return sorted({*written, CLOCK} if self.has_clock else written)

    def keys_used_by(self, program: programs.Program) -> list[int]:
        """Returns the keys of all that any part of a program reads or writes."""
        read = {key for part in program.walk() for key in self.steps.accesses(part)[0]}
        return sorted({*read, *self.keys_written_by(program)})

    # --- cycles -----------------------------------------------------------------------------------

    def _pass_time(self, program: Step, state: State) -> State:
        """Lets the clock count a step's modelled cycles, if a program asks for them."""
        if not self.has_clock:
            return state
        cycles = np.uint32(self._cycles_of(program))

        def advance(variables: State) -> jax.Array:
            low, high = variables[CLOCK]
            return jnp.stack([low + cycles, high + (low + cycles < low).astype(jnp.uint32)])

        return {**state, CLOCK: self.steps.run_function(advance, [CLOCK], state)}

    def _cycles_of(self, program: Step) -> int:
        if id(program) not in self._cycles:
            read, written = self.steps.accesses(program)
            shapes = {key: jax.ShapeDtypeStruct(*self.shape_of(key)) for key in {*read, *written}}

            def run(state: State) -> list[jax.Array]:
                state_after = self.steps.run_step(program, state)
                return [state_after[key] for key in written]

            chip = self.graph.getTarget().as_one_chip
            self._cycles[id(program)] = cycles_of_function(run, shapes, chip)
        return self._cycles[id(program)]

    def shape_of(self, key: int) -> tuple[tuple[int, ...], np.dtype]:
        """Returns the shape and dtype of the array that a state holds under a key."""
        if key == CLOCK:
            return (2,), np.dtype(np.uint32)
        if key < CLOCK:
            buffers = self.graph.remote_buffers.values()
            buffer = next(buffer for buffer in buffers if key_of_buffer(buffer) == key)
            return (buffer.repeats * buffer.size,), buffer.type.dtype
        variable = self.graph.variables[key]
        return (variable.size,), variable.type.dtype

    def _mark(self, program: programs.CycleMark, earlier_clock: jax.Array, state: State) -> State:
        """Writes the cycles since an earlier clock into the tensor that asks for them."""
        elements = program.tensor.elements
        (number,) = self.steps.variables([elements])

        def write(variables: State) -> jax.Array:
            clock, earlier = variables[CLOCK], variables[_EARLIER_CLOCK]
            low, high = clock - earlier
            cycles = jnp.stack([low, high - (clock[0] < earlier[0]).astype(jnp.uint32)])
            return write_elements(self.graph, variables, elements, cycles)[number]

        keys, operands = [_EARLIER_CLOCK, CLOCK, number], {**state, _EARLIER_CLOCK: earlier_clock}
        return {**state, number: self.steps.run_function(write, keys, operands)}

    # --- control ----------------------------------------------------------------------------------

    def _run_control(self, program: programs.Program, state: State) -> State:
        """Runs a loop or a branch, whose variables are the arrays that it writes."""
        written = self.keys_written_by(program)
        initial_values = [state[key] for key in written]

        def state_with(values: list[jax.Array]) -> State:
            return {**state, **dict(zip(written, values, strict=True))}

        def body_of(part: programs.Program) -> _Body:
            def run(values: list[jax.Array]) -> list[jax.Array]:
                state_after = self.run(part, state_with(values))
                return [state_after[key] for key in written]

            return run

        def read_control(
            tensor: Tensor, convert: Callable[[jax.Array], jax.Array], values: list[jax.Array]
        ) -> jax.Array:
            """Returns the condition or index that a tensor of one element stands for."""
            return self.steps.read_tensor(
                tensor, state_with(values), lambda array: convert(array.reshape(()))
            )

        match program:
            case programs.Repeat():
                run = body_of(program.body)
                results = lax.fori_loop(
                    0, program.count, lambda _, values: run(values), initial_values
                )
            case programs.RepeatWhile():
                condition, run = body_of(program.condition), body_of(program.body)
                results = lax.while_loop(
                    lambda values: read_control(
                        program.predicate, lambda flag: (flag != 0) == program.goes_on, values
                    ),
                    lambda values: condition(run(values)),
                    condition(initial_values),
                )
            case programs.If():
                bodies = [body_of(program.false_body), body_of(program.true_body)]
                index = read_control(
                    program.predicate, lambda flag: jnp.int32(flag != 0), initial_values
                )
                results = run_branch(index, bodies, initial_values)
            case programs.Switch():
                bodies = [body_of(part) for part in program.parts()]
                index = read_control(program.control, program.find_case, initial_values)
                results = run_branch(index, bodies, initial_values)
            case _:
                raise NotImplementedError(f"{type(program).__name__} is not there yet")
        return state_with(results)
