"""Runs a program that is one short loop with queues in a single call of XLA.

What surrounds a short loop costs as much as some of its iterations: taking over donated arguments,
setting up the loop variables, and passing them in and out. So once a run has shown that the loop
is short, and whenever all its elements are there, one function takes the user's arguments and the
elements, and gives the results and what the loop sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.engine import loop_kernels
from ipujax.engine.loop_steps import StreamedLoop
from ipujax.engine.queue_session import Session
from lowering import count_equations, count_operations, ir, jaxpr

if TYPE_CHECKING:
    from ipujax.engine.replay import Machine

# Longer programs, of more than some 20 ms on one core, gain nothing and would be compiled twice.
SHORT_OPERATIONS = 2e9
# Nor do those of more equations: XLA compiles some milliseconds at each, and each costs a run some
# microseconds, beside which what surrounds the loop is little.
FEW_EQUATIONS = 2000


def build_single_call(
    machine: Machine, loops: Sequence[StreamedLoop], donated: Sequence[int]
) -> SingleCall | None:
    """Builds the function of a whole program, if all of it is kernels and one short loop.

    Args:
      machine: runs the program.
      loops: the streamed loops that are steps of the program.
      donated: which flat arguments may be overwritten.
    """
    program = machine.program
    nodes = [node for node in program.body.steps if not isinstance(node, ir.Copy)]
    has_only_kernels = all(isinstance(node, (ir.Execute, ir.Repeat)) for node in nodes)
    is_on_one_device = machine.placement.is_default and not machine.placement.process_of_ipu
    if len(loops) != 1 or not has_only_kernels or not is_on_one_device:
        return None
    (loop,), outputs = loops, Counter(_type_of(machine, v) for v in program.outputs)
    donations = Counter(_type_of(machine, program.inputs[number]) for number in donated)
    is_called_with_all_elements = bool(loop.ins) and 0 < (loop.node.count or 0) <= loop.capacity
    if not is_called_with_all_elements or machine.stored or donations - outputs:
        return None
    kernels = [
        node.kernel for node in ir.walk_nodes(loop.node.body) if isinstance(node, ir.Execute)
    ]
    operations = sum(count_operations(kernel.jaxpr.jaxpr) for kernel in kernels)
    equations = sum(count_equations(kernel.jaxpr.jaxpr) for kernel in kernels)
    if operations * (loop.node.count or 0) > SHORT_OPERATIONS or equations > FEW_EQUATIONS:
        return None
    return SingleCall(machine, loop, donated)


def _type_of(machine: Machine, value: ir.ValueId) -> tuple[tuple[int, ...], Any]:
    aval = machine.program.avals[value]
    return aval.shape, aval.dtype


class SingleCall:
    """A program that is kernels and one short loop with queues, as one function.

    Args:
      machine: runs the program.
      loop: its only loop.
      donated: which flat arguments may be overwritten; results take their places.
    """

    def __init__(self, machine: Machine, loop: StreamedLoop, donated: Sequence[int]):
        self.program, self.loop = machine.program, loop
        self.count, self.donated = loop.node.count or 0, tuple(donated)
        avals = [self.program.avals[value] for value in self.program.inputs]
        self.weak_types = [aval.weak_type for aval in avals]
        self.accepted_types: list[Any] = []
        self.function = machine.compilation.add_function(
            self.compute_program,
            [
                *(machine.value_struct(value, loop.ipu) for value in self.program.inputs),
                *loop_kernels.list_element_structs(loop, self.count),
            ],
            donate_argnums=self.donated,
        )

    def compute_program(self, *flat: jax.Array) -> list[jax.Array]:
        """Computes the program's results, and what its loop sends."""
        program, loop, sent = self.program, self.loop, list[jax.Array]()
        elements = flat[len(program.inputs) :]
        values: dict[ir.ValueId, Any] = dict(zip(program.inputs, flat, strict=False))
        values.update((value, jnp.asarray(constant)) for value, constant in program.constants)
        for node in program.body.steps:
            if isinstance(node, ir.Execute):
                closed = node.kernel.jaxpr
                # Under jit, results that are literals are arrays.
                kernel = jax.jit(partial(jaxpr.run_equations, closed.jaxpr, closed.consts))
                results = kernel([values[value] for value in node.reads])
                values.update(zip(node.writes, results, strict=True))
            elif isinstance(node, ir.Repeat):
                carry = [values[c.initial] for c in node.carry]
                constants = [values[value] for value in loop.consts]
                _, *results = loop.compute_chunk(
                    self.count, self.count, *carry, *constants, *elements
                )
                values.update(zip((c.final for c in node.carry), results, strict=False))
                sent = results[len(carry) :]
        return [*(values[value] for value in program.outputs), *sent]

    def run_if_ready(self, arguments: Sequence[Any], session: Session) -> list[jax.Array] | None:
        """Runs the program, or returns None if its loop takes long or its elements are not there.

        Args:
          arguments: flat; taken only if the program runs.
          session: its queues; elements that are there stay in them if the program does not run.
        """
        loop = self.loop
        if loop.fitting < self.count or not self._accepts(arguments):
            return None
        loop.join_earlier_runs(session)
        feeders = [session.make_loop_feeder(step.queue, step.count or 1) for step in loop.ins]
        if not all(feeder.queue.fetches_ahead for feeder in feeders):
            return None
        try:
            wanted = [self.count * feeder.each for feeder in feeders]
            for feeder, elements in zip(feeders, wanted, strict=True):
                feeder.request_elements(elements, elements)
            if any(f.wait_for_iterations(0) < n for f, n in zip(feeders, wanted, strict=True)):
                return None
            taken = [f.take_iterations(n) for f, n in zip(feeders, wanted, strict=True)]
            results = self.function.run_on_uncommitted_arrays(
                *(np.array(x) if isinstance(x, np.ndarray) else x for x in arguments),
                *(leaf for leaves in taken for leaf in leaves),
            )
            for feeder in feeders:
                feeder.forget_used_elements()
        finally:
            for feeder in feeders:
                feeder.return_unused_elements()
        outputs = len(self.program.outputs)
        loop.queue_sent_results(session, sent := results[outputs:], self.count)
        if sent:
            loop.note_dispatch(sent[0], self.count)
        return list(results[:outputs])

    def _accepts(self, arguments: Sequence[Any]) -> bool:
        """Returns whether jit finds what was compiled, and may overwrite what is donated."""
        types = [getattr(x, "aval", x.__class__) for x in arguments]
        if types != self.accepted_types:
            if [jax.typeof(x).weak_type for x in arguments] != self.weak_types:
                return False
            self.accepted_types = types
        arrays = [x for x in arguments if isinstance(x, jax.Array)]
        is_each_given_once = not self.donated or len(set(map(id, arrays))) == len(arrays)
        return is_each_given_once and not any(x.committed for x in arrays)
