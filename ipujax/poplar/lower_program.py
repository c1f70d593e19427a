"""A program as a function of JAX: the arrays of variables in, those that it writes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.operators import cycles_of_function, run_branch
from ipujax.poplar import program as programs
from ipujax.poplar.element_access import State, read_elements, write_elements
from ipujax.poplar.graph import Graph
from ipujax.poplar.lower_steps import Step, StepLowering, key_of_buffer
from ipujax.poplar.stream_connections import StreamConnections
from ipujax.poplar.tensors import Tensor

CLOCK = -1
"""The key under which a state holds the cycles that have passed, uint32 [2]: low, high."""


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
            isinstance(part, programs.CycleMark) for each in all_programs for part in each.walk()
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

    def written_by(self, program: programs.Program) -> list[int]:
        """Returns what any part of a program writes: variables, remote buffers, the clock."""
        written = {n for part in program.walk() for n in self.steps.accesses(part)[1]}
        return sorted({*written, CLOCK} if self.has_clock else written)

    def variables_of_program(self, program: programs.Program) -> list[int]:
        """Returns what any part of a program reads or writes."""
        both = (self.steps.accesses(part) for part in program.walk())
        used = {number for pair in both for numbers in pair for number in numbers}
        return sorted({*used, *self.written_by(program)})

    # --- cycles -----------------------------------------------------------------------------------

    def _pass_time(self, program: Step, state: State) -> State:
        """Lets the clock count a step's modelled cycles, if a program asks for them."""
        if not self.has_clock:
            return state
        cycles = np.uint32(self._cycles_of(program))

        def advance(now: State) -> jax.Array:
            low, high = now[CLOCK]
            return jnp.stack([low + cycles, high + (low + cycles < low).astype(jnp.uint32)])

        return {**state, CLOCK: self.steps.run_free(advance, [CLOCK], state)}

    def _cycles_of(self, program: Step) -> int:
        if id(program) not in self._cycles:
            read, written = self.steps.accesses(program)
            shapes = {
                number: jax.ShapeDtypeStruct(*self.shape_of(number)) for number in {*read, *written}
            }

            def run(state: State) -> list[jax.Array]:
                after = self.steps.run_step(program, state)
                return [after[number] for number in written]

            chip = self.graph.getTarget().as_one_chip
            self._cycles[id(program)] = cycles_of_function(run, shapes, chip)
        return self._cycles[id(program)]

    def shape_of(self, number: int) -> tuple[tuple[int, ...], np.dtype]:
        """Returns the shape and dtype of what a state holds under a key."""
        if number == CLOCK:
            return (2,), np.dtype(np.uint32)
        if number < CLOCK:
            buffers = self.graph.remote_buffers.values()
            buffer = next(each for each in buffers if key_of_buffer(each) == number)
            return (buffer.repeats * buffer.size,), buffer.type.dtype
        variable = self.graph.variables[number]
        return (variable.size,), variable.type.dtype

    def _mark(self, program: programs.CycleMark, before: jax.Array, state: State) -> State:
        """Writes the cycles since an earlier clock into the tensor that asks for them."""
        elements = program.tensor.elements
        (number,) = self.steps.variables([elements])

        def write(now: State) -> jax.Array:
            low, high = now[CLOCK] - now[_EARLIER]
            high = high - (now[CLOCK][0] < now[_EARLIER][0]).astype(jnp.uint32)
            return write_elements(self.graph, now, elements, jnp.stack([low, high]))[number]

        known = {**state, _EARLIER: before}
        return {**state, number: self.steps.run_free(write, [_EARLIER, CLOCK, number], known)}

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

        def decide(
            tensor: Tensor, how: Callable[[jax.Array], jax.Array], now: list[jax.Array]
        ) -> jax.Array:
            current = {**state, **dict(zip(written, now, strict=True))}
            return self._decide(tensor, how, current)

        match program:
            case programs.Repeat():
                run = body(program.body)
                return lax.fori_loop(0, program.count, lambda _, now: run(now), values)
            case programs.RepeatWhile():
                condition, run = body(program.condition), body(program.body)
                return lax.while_loop(
                    lambda now: decide(
                        program.predicate, lambda flag: (flag != 0) == program.goes_on, now
                    ),
                    lambda now: condition(run(now)),
                    condition(values),
                )
            case programs.If():
                bodies = [body(program.false_body), body(program.true_body)]
                index = decide(program.predicate, lambda flag: jnp.int32(flag != 0), values)
                return run_branch(index, bodies, values)
            case programs.Switch():
                index = decide(program.control, program.find_case, values)
                return run_branch(index, [body(part) for part in program.parts()], values)
            case _:
                raise NotImplementedError(f"{type(program).__name__} is not there yet")

    def _decide(
        self, tensor: Tensor, how: Callable[[jax.Array], jax.Array], state: State
    ) -> jax.Array:
        """Returns what the control makes of a scalar."""

        def read(now: State) -> jax.Array:
            return how(
                read_elements(self.graph, now, tensor.elements, tensor.type.dtype).reshape(())
            )

        return self.steps.run_free(read, self.steps.variables([tensor.elements]), state)


_EARLIER = -(2**62)  # the key of an earlier clock, while cycles are counted
