"""Runs a loop with queues in chunks of iterations inside XLA, streaming its elements.

A chunk is `kernel(carry, buffers[K], k)` with k known at run time, so one compilation serves all
chunks. The first chunks are small, so that results of a short loop are seen while it runs; later
ones take about `CHUNK_SECONDS`. While one chunk runs, the next one's elements are being stacked
in a thread, and the results of the one before are handed to their queues.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.engine import loop_kernels
from ipujax.engine.loop_kernels import (
    Arrays,
    Index,
    LoopKernel,
    shape_of_sent_element,
    take_element,
    write_sent_row,
)
from ipujax.engine.queue_session import Session
from ipujax.engine.remote_storage import load_stored_value
from ipujax.ground import OutOfRangeError
from lowering import ir, jaxpr, size_in_bytes

if TYPE_CHECKING:
    from ipujax.engine.replay import Machine

# Long enough to hide a dispatch of some 100 us, short enough to look live.
CHUNK_SECONDS = 0.02
# How much larger a chunk may be than the one before: its time is only known afterwards.
GROWTH = 8
# Bounds on one chunk's buffers, whatever the size of an element. A chunk clears all of its buffers,
# also for a single iteration; larger ones are slower, too, since they leave the caches.
CHUNK_ELEMENTS = 2048
CHUNK_BYTES = 1 << 20

Values = dict[ir.Place, Any]
"""What is at a place: an array, a `Stored`, or on the host also a `PerReplica`."""
State = tuple[list[jax.Array], list[jax.Array]]


class _Chunk(NamedTuple):
    """Iterations that have been dispatched together.

    Attributes:
      token: an array of JAX's that is ready when they are computed.
      iterations: how many; less than 1 if they are a part of one.
      dispatched: the time of the dispatch, in seconds.
    """

    token: Any
    iterations: float
    dispatched: float


def is_streamable(node: ir.Repeat) -> bool:
    """Returns whether a loop only takes elements, runs one kernel and sends results, on one IPU."""
    steps = [s for s in node.body.steps if isinstance(s, (ir.Execute, ir.StreamIn, ir.StreamOut))]
    if len(steps) < len(node.body.steps) or node.slices or node.stacks:
        return False
    kernels = [step for step in steps if isinstance(step, ir.Execute)]
    return len(kernels) <= 1 and len({user.ipu for user in (*node.carry, *steps)}) <= 1


class StreamedLoop:
    """One loop of a program as a step of the machine that runs it.

    Args:
      machine: runs the program.
      node: the loop; `is_streamable`.
      trips: reads the trip count.
      capacities: iterations that the buffers of a chunk hold; computed by default.
    """

    def __init__(
        self,
        machine: Machine,
        node: ir.Repeat,
        trips: Callable[[Values], int],
        capacities: Sequence[int] = (),
    ):
        self.machine, self.node, self.trips = machine, node, trips
        self.placement, self.spare = machine.placement, machine.spare
        steps = node.body.steps
        self.ins = [step for step in steps if isinstance(step, ir.StreamIn)]
        self.outs = [step for step in steps if isinstance(step, ir.StreamOut)]
        self.taken = [(step, value) for step in self.ins for value in step.writes]
        self.sent = [(step, value) for step in self.outs for value in step.reads]
        self.kernels = [step for step in steps if isinstance(step, ir.Execute)]
        users = (*node.carry, *self.ins, *self.outs, *self.kernels)
        self.ipu = next((user.ipu for user in users), ir.IpuId(0))
        inside = {*(c.entering for c in node.carry), *ir.values_written(node.body)}
        used = (*ir.values_read(node.body), *(c.leaving for c in node.carry))
        self.consts = tuple(dict.fromkeys(v for v in used if v not in inside))
        self.fitting = 0  # iterations of a chunk, by the last measurement
        self.running: collections.deque[_Chunk] = collections.deque()
        self.clock = 0.0  # when the last chunk was waited for
        self.lent = [c for c in node.carry if not self.may_overwrite(c)]
        self.copies = machine.build_copier([c.initial for c in self.lent], self.ipu)
        self.capacities = capacities or loop_kernels.choose_chunk_capacities(self)
        self.chunk_kernels = {
            capacity: loop_kernels.build_chunk_kernel(self, capacity)
            for capacity in self.capacities
        }
        self.single: StreamedLoop | None = None
        if node.single is not None:
            elements_per_iteration = self.ins[0].count or 1
            rows = [capacity * elements_per_iteration for capacity in self.capacities]
            self.single = StreamedLoop(machine, node.single, trips, rows)

    # --- what one iteration does ----------------------------------------------------------------

    def compute_iteration(self, carry: Arrays, consts: Arrays, elements: Arrays) -> State:
        """Computes one iteration: its loop variables, and the values that it sends."""
        values = dict(zip(self.consts, consts, strict=True))
        values.update(zip((c.entering for c in self.node.carry), carry, strict=True))
        values.update(zip((value for _, value in self.taken), elements, strict=True))
        for kernel in self.kernels:
            closed, operands = kernel.kernel.jaxpr, [values[value] for value in kernel.reads]
            results = jaxpr.run_equations(closed.jaxpr, closed.consts, operands)
            values.update(zip(kernel.writes, results, strict=True))
        leaving = [values[c.leaving] for c in self.node.carry]
        return leaving, [values[value] for _, value in self.sent]

    def compute_chunk(self, capacity: int, count: Index, *flat: jax.Array) -> list[Any]:
        """Computes `count` iterations on buffers with a leading axis of the chunk's capacity.

        Gives `count` back as well: ready when the chunk is, and never donated.
        """
        carry, consts, buffers = self.split_operands(flat)
        avals = [(step, self.machine.program.avals[value]) for step, value in self.sent]
        sent = [
            jnp.zeros(
                (self.count_results_to_send(step, capacity), *shape_of_sent_element(step, aval)),
                aval.dtype,
            )
            for step, aval in avals
        ]

        def compute_and_write(index: jax.Array, state: State) -> State:
            carry, sent = state
            carry, results = self.compute_iteration(
                carry, consts, self.take_elements(buffers, index)
            )
            rows = zip(self.sent, sent, results, strict=True)
            return carry, [
                write_sent_row(step, buffer, row, index) for (step, _), buffer, row in rows
            ]

        carry, sent = lax.fori_loop(0, count, compute_and_write, (list(carry), sent))
        return [count, *carry, *sent]

    def take_elements(self, buffers: Arrays, index: Index) -> list[jax.Array]:
        """Takes the elements of one iteration from the buffers."""
        leaves = zip(self.taken, buffers, strict=True)
        return [take_element(leaf, index, step.count) for (step, _), leaf in leaves]

    @property
    def capacity(self) -> int:
        """The largest number of iterations in one chunk, for loops of any length."""
        elements_per_iteration = max([step.count or 1 for step in self.ins], default=1)
        depths = [
            (step.queue.prefetch_depth or CHUNK_ELEMENTS) // elements_per_iteration
            for step in self.ins
        ]
        avals = self.machine.program.avals
        sizes = [size_in_bytes(avals[value]) for _, value in (*self.taken, *self.sent)]
        size = max(sizes, default=0)
        fitting = CHUNK_BYTES // (max(size, 1) * self.placement.replicas)
        return max(1, min(CHUNK_ELEMENTS, fitting, *depths))

    def count_results_to_send(self, step: ir.StreamOut, capacity: int) -> int:
        """Returns how many results of a chunk its outfeed wants: all of them, or the last."""
        return 1 if step.queue.keeps_last else capacity * (step.count or 1)

    def split_operands(self, flat: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Splits flat operands into loop variables, constants and infeed leaves."""
        first = len(self.node.carry)
        second = first + len(self.consts)
        return flat[:first], flat[first:second], flat[second:]

    # --- running --------------------------------------------------------------------------------

    def __call__(self, values: Values, session: Session) -> None:
        """Runs the whole loop."""
        run = _Run(self, values, session)
        try:
            run.run_all_iterations()
        finally:
            for feeder in run.feeders:
                feeder.return_unused_elements()
        for c, value in zip(self.node.carry, run.carry, strict=True):
            values[c.final, c.ipu] = value

    def queue_sent_results(self, session: Session, sent: Arrays, count: int) -> None:
        """Hands what `count` iterations sent to the outfeeds."""
        for step in self.outs:
            leaves, sent = sent[: len(step.reads)], sent[len(step.reads) :]
            leaves = [self.placement.take_local_replicas(leaf) for leaf in leaves]
            session.get_outfeed_collector(step.queue).queue_results(
                step.structure, leaves, self.count_results_to_send(step, count)
            )

    def note_dispatch(self, token: jax.Array, iterations: float) -> None:
        """Notes that iterations were dispatched, and an array that is ready when they are done."""
        self.running.append(_Chunk(token, iterations, time.perf_counter()))

    def join_earlier_runs(self, session: Session) -> collections.deque[_Chunk]:
        """Returns the chunks of earlier runs, which need not wait for their last ones.

        While some are being computed, the session waits for elements without haste.
        """
        while self.running and self.running[0].token.is_ready():
            self.running.popleft()
        running = self.running
        session.is_computing = lambda: not all(chunk.token.is_ready() for chunk in running)
        return running

    def load_constants(self, values: Values) -> list[jax.Array]:
        """Loads the values that the loop reads and does not change."""
        return [load_stored_value(values[value, self.ipu]) for value in self.consts]

    def may_overwrite(self, c: ir.Carry) -> bool:
        """Returns whether the loop may overwrite the buffer of an initial value."""
        return c.initial in self.spare and c.initial not in self.machine.stored

    def take_initial_carry(self, values: Values) -> list[jax.Array]:
        """Returns initial values that may be donated; those of the caller are copied."""
        carry: dict[int, jax.Array] = {}
        for c in self.node.carry:
            value_key = c.initial, c.ipu
            carry[c.initial] = load_stored_value(
                values.pop(value_key) if c.initial in self.spare else values[value_key]
            )
        copies = self.copies(*(carry[c.initial] for c in self.lent))
        copy_of = dict(zip((c.entering for c in self.lent), copies, strict=True))
        return [copy_of.get(c.entering, carry[c.initial]) for c in self.node.carry]


class _Run:
    """One run of a streamed loop: its progress and its current chunk size.

    Attributes:
      feeders: what reads each infeed.
      carry: the loop variables after the iterations that have been dispatched.
      consts: what the loop reads but does not change, and its loop over single elements.
    """

    def __init__(self, loop: StreamedLoop, values: Values, session: Session):
        self.loop, self.session = loop, session
        self.count = int(loop.trips(values))
        self.carry = loop.take_initial_carry(values)
        self.feeders = [session.make_loop_feeder(s.queue, s.count or 1) for s in loop.ins]
        loops = [loop] if loop.single is None else [loop, loop.single]
        self.consts = {
            streamed_loop: streamed_loop.load_constants(values) for streamed_loop in loops
        }
        # What the user has committed to a device was compiled otherwise by jit.
        resident = itertools.chain(self.carry, *self.consts.values())
        self.direct = loop.placement.is_default and not any(x.committed for x in resident)
        fitting = [capacity for capacity in loop.capacities if capacity >= self.count]
        self.capacity = fitting[0] if fitting else loop.capacities[-1]
        # Without prefetching, an element is asked for when all results before it are there.
        self.ahead = 2 if all(feeder.queue.fetches_ahead for feeder in self.feeders) else 0
        self.requested = 0
        self.done = 0
        self.planned: collections.deque[int] = collections.deque()
        self.running = loop.join_earlier_runs(session)
        # A short loop that is run again needs no small chunks to find out how long it takes; nor
        # does one while an earlier run computes. Otherwise the device would wait for a large chunk.
        self.size = 1
        if self.ahead and (self.running or loop.fitting >= self.count):
            self.size = max(1, min(loop.fitting, self.capacity))

    def run_all_iterations(self) -> None:
        """Runs all iterations."""
        self.request_chunk_elements()
        while self.done < self.count:
            # A chunk may run in several pieces, as its elements come.
            if len(self.planned) < max(1, self.ahead):
                self.request_chunk_elements()
            waited = [feeder.wait_for_iterations() // feeder.each for feeder in self.feeders]
            ready = min([self.planned[0], *waited])
            if ready:
                self.dispatch_chunk(ready)
            else:
                self.run_iteration_by_elements()
                ready = 1
            self.done += ready
            self.planned[0] -= ready
            if not self.planned[0]:
                self.planned.popleft()
            self.session.interrupts.handle_delayed_interrupt()
            self.adapt_chunk_size(ready)

    def run_iteration_by_elements(self) -> None:
        """Runs one iteration element by element, as its elements arrive one at a time."""
        single, (feeder, *_) = self.loop.single, self.feeders
        num_taken = 0
        while num_taken < feeder.each:
            waited = [f.wait_for_iterations() for f in self.feeders]
            ready = min(feeder.each - num_taken, *waited)
            if not ready or single is None:
                self.raise_end_of_data(waited, num_taken)
            leaves = [leaf for f in self.feeders for leaf in f.take_iterations(ready)]
            kernel = single.chunk_kernels[self.capacity * feeder.each]
            self.launch_chunk(single, kernel, ready, leaves)
            num_taken += ready

    def request_chunk_elements(self) -> None:
        """Requests the elements of the next chunk from the feeders."""
        size = min(self.size, self.capacity, self.count - self.requested)
        if size > 0:
            self.requested += size
            self.planned.append(size)
            for feeder in self.feeders:
                feeder.request_elements(size * feeder.each, self.capacity * feeder.each)

    def dispatch_chunk(self, ready: int) -> None:
        """Dispatches the next `ready` iterations as one chunk."""
        leaves = [leaf for f in self.feeders for leaf in f.take_iterations(ready * f.each)]
        self.launch_chunk(self.loop, self.loop.chunk_kernels[self.capacity], ready, leaves)

    def launch_chunk(
        self, loop: StreamedLoop, kernel: LoopKernel, count: int, elements: list[np.ndarray]
    ) -> None:
        """Dispatches a kernel for a chunk of `count` iterations."""
        run = kernel.run_on_uncommitted_arrays if self.direct else kernel
        token, *results = run(count, (*self.carry, *self.consts[loop]), elements)
        iterations = count / (1 if loop is self.loop else self.feeders[0].each)
        self.loop.note_dispatch(token, iterations)
        self.carry, sent = results[: len(self.carry)], results[len(self.carry) :]
        loop.queue_sent_results(self.session, sent, count)
        for feeder in self.feeders:
            feeder.forget_used_elements()

    def adapt_chunk_size(self, ready: int) -> None:
        """Waits for an earlier chunk, and sizes the next one for about `CHUNK_SECONDS`."""
        dispatched, computed = self.running[-1].dispatched, ready * 1.0
        while len(self.running) > self.ahead:
            chunk = self.running.popleft()
            chunk.token.block_until_ready()
            dispatched, computed = chunk.dispatched, chunk.iterations
        if not self.ahead:
            self.session.deliver_all_results()
            return
        # Before the first chunk is waited for, dispatches are all that can be timed.
        current_time = time.perf_counter()
        elapsed = current_time - max(self.loop.clock, dispatched)
        self.loop.clock = current_time
        fitting = int(computed * CHUNK_SECONDS / max(elapsed, 1e-9))
        if self.loop.placement.spans_processes:
            fitting = self.capacity  # all have to take the same chunks, whatever their clocks say
        self.loop.fitting = fitting
        self.size = max(1, min(fitting, GROWTH * self.size, self.capacity))

    def raise_end_of_data(self, waited: list[int], num_taken: int) -> NoReturn:
        """Raises the error of a data set that ended `num_taken` elements into an iteration."""
        feeder = self.feeders[waited.index(0)]
        error = feeder.make_exhausted_error_of_iteration(
            feeder.each, num_taken
        )  # one iteration's, to be the whole loop's
        structure = self.loop.node.loop
        if isinstance(error, OutOfRangeError) and structure is not None:
            carried = jax.tree.unflatten(structure, self.carry[: structure.num_leaves])
            error = self.session.convert_to_loop_error(error, self.count, self.done, carried)
        raise error
