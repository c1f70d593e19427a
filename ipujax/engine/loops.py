"""Streams a loop with queues, in chunks inside XLA.

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
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.engine import loop_kernels
from ipujax.engine.loop_kernels import Arrays, Index, LoopKernel, element, row_shape, with_row
from ipujax.engine.storage import load
from ipujax.errors import OutOfRangeError
from ipujax.host.session import Session
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


def is_streamable(node: ir.Repeat) -> bool:
    """Whether a loop's body is, on one IPU: take elements, run one kernel, send results."""
    steps = [s for s in node.body.steps if isinstance(s, (ir.Execute, ir.StreamIn, ir.StreamOut))]
    if len(steps) < len(node.body.steps) or node.slices or node.stacks:
        return False
    kernels = [step for step in steps if isinstance(step, ir.Execute)]
    return len(kernels) <= 1 and len({user.ipu for user in (*node.carry, *steps)}) <= 1


class StreamedLoop:
    """One loop of a program, as a step of the machine that runs it.

    Args:
      machine: runs the program.
      node: the loop; `is_streamable`.
      trips: reads the trip count.
      capacities: iterations that the buffers of a chunk hold; found out by default.
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
        inside = {*(c.entering for c in node.carry), *ir.writes(node.body)}
        used = (*ir.reads(node.body), *(c.leaving for c in node.carry))
        self.consts = tuple(dict.fromkeys(v for v in used if v not in inside))
        self.fitting = 0  # iterations of a chunk, by the last measurement
        self.lent = [c for c in node.carry if not self.is_ours(c)]
        self.copies = machine.copying([c.initial for c in self.lent], self.ipu)
        self.capacities = capacities or loop_kernels.capacities(self)
        self.chunk_kernels = {
            capacity: loop_kernels.of_chunks(self, capacity) for capacity in self.capacities
        }
        self.single: StreamedLoop | None = None
        if node.single is not None:
            each = self.ins[0].count or 1
            rows = [capacity * each for capacity in self.capacities]
            self.single = StreamedLoop(machine, node.single, trips, rows)

    # --- what one iteration does ----------------------------------------------------------------

    def iteration(self, carry: Arrays, consts: Arrays, elements: Arrays) -> State:
        """The loop variables after one iteration, and what it sends."""
        values = dict(zip(self.consts, consts, strict=True))
        values.update(zip((c.entering for c in self.node.carry), carry, strict=True))
        values.update(zip((value for _, value in self.taken), elements, strict=True))
        for kernel in self.kernels:
            closed, operands = kernel.kernel.jaxpr, [values[value] for value in kernel.reads]
            results = jaxpr.run_equations(closed.jaxpr, closed.consts, operands)
            values.update(zip(kernel.writes, results, strict=True))
        leaving = [values[c.leaving] for c in self.node.carry]
        return leaving, [values[value] for _, value in self.sent]

    def chunk(self, capacity: int, count: jax.Array, *flat: jax.Array) -> list[jax.Array]:
        """`count` iterations; elements and results have a leading axis of the chunk's capacity.

        Gives `count` back as well: ready when the chunk is, and never donated.
        """
        carry, consts, buffers = self.split(flat)
        avals = [(step, self.machine.program.avals[value]) for step, value in self.sent]
        sent = [
            jnp.zeros((self.kept(step, capacity), *row_shape(step, aval)), aval.dtype)
            for step, aval in avals
        ]

        def body(index: jax.Array, state: State) -> State:
            carry, sent = state
            carry, results = self.iteration(carry, consts, self.rows(buffers, index))
            rows = zip(self.sent, sent, results, strict=True)
            return carry, [with_row(step, whole, row, index) for (step, _), whole, row in rows]

        carry, sent = lax.fori_loop(0, count, body, (list(carry), sent))
        return [count, *carry, *sent]

    def rows(self, buffers: Arrays, index: Index) -> list[jax.Array]:
        """What one iteration takes of each buffer."""
        leaves = zip(self.taken, buffers, strict=True)
        return [element(leaf, index, step.count) for (step, _), leaf in leaves]

    @property
    def capacity(self) -> int:
        """Iterations of one chunk at most, for loops of any length."""
        each = max([step.count or 1 for step in self.ins], default=1)
        depths = [(step.queue.prefetch_depth or CHUNK_ELEMENTS) // each for step in self.ins]
        avals = self.machine.program.avals
        sizes = [size_in_bytes(avals[value]) for _, value in (*self.taken, *self.sent)]
        size = max(sizes, default=0)
        fitting = CHUNK_BYTES // (max(size, 1) * self.placement.replicas)
        return max(1, min(CHUNK_ELEMENTS, fitting, *depths))

    def kept(self, step: ir.StreamOut, capacity: int) -> int:
        """Results of a chunk that its outfeed wants: all of them, or the last."""
        return 1 if step.queue.keeps_last else capacity * (step.count or 1)

    def split(self, flat: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Loop variables, constants, and the leaves of infeeds, among flat operands."""
        first = len(self.node.carry)
        second = first + len(self.consts)
        return flat[:first], flat[first:second], flat[second:]

    # --- running --------------------------------------------------------------------------------

    def __call__(self, values: Values, session: Session) -> None:
        """Runs the whole loop."""
        run = _Run(self, values, session)
        try:
            run.finish()
        finally:
            for feeder in run.feeders:
                feeder.close()
        for c, value in zip(self.node.carry, run.carry, strict=True):
            values[c.final, c.ipu] = value

    def constants(self, values: Values) -> list[jax.Array]:
        """What the loop reads but does not change."""
        return [load(values[value, self.ipu]) for value in self.consts]

    def is_ours(self, c: ir.Carry) -> bool:
        """Whether nobody else has an initial value's buffer, as what was put away may."""
        return c.initial in self.spare and c.initial not in self.machine.stored

    def own(self, values: Values) -> list[jax.Array]:
        """The initial values, to be donated from iteration to iteration; the caller's stay his."""
        carry: dict[int, jax.Array] = {}
        for c in self.node.carry:
            place = c.initial, c.ipu
            carry[c.initial] = load(values.pop(place) if c.initial in self.spare else values[place])
        copies = self.copies(*(carry[c.initial] for c in self.lent))
        owned = dict(zip((c.entering for c in self.lent), copies, strict=True))
        return [owned.get(c.entering, carry[c.initial]) for c in self.node.carry]


class _Run:
    """One execution of a streamed loop: how far it is, and how large its chunks are now.

    Attributes:
      feeders: what reads each infeed.
      carry: the loop variables after the iterations that have been dispatched.
      consts: what the loop reads but does not change, and its loop over single elements.
    """

    def __init__(self, loop: StreamedLoop, values: Values, session: Session):
        self.loop, self.session = loop, session
        self.count = int(loop.trips(values))
        self.carry = loop.own(values)
        self.feeders = [session.feeder_of_loop(s.queue, s.count or 1) for s in loop.ins]
        loops = [loop] if loop.single is None else [loop, loop.single]
        self.consts = {each: each.constants(values) for each in loops}
        # What the user has committed to a device was compiled otherwise by jit.
        held = itertools.chain(self.carry, *self.consts.values())
        self.direct = loop.placement.is_default and not any(x.committed for x in held)
        fitting = [capacity for capacity in loop.capacities if capacity >= self.count]
        self.capacity = fitting[0] if fitting else loop.capacities[-1]
        # A short loop that is run again needs no small chunks to find out how long it takes.
        self.size = loop.fitting if loop.fitting >= self.count else 1
        # Without prefetching, an element is asked for when all results before it are there.
        self.ahead = 2 if all(feeder.queue.fetches_ahead for feeder in self.feeders) else 0
        if not self.ahead:
            self.size = 1
        self.requested = 0
        self.done = 0
        self.planned: collections.deque[int] = collections.deque()
        self.running: collections.deque[jax.Array] = collections.deque()
        self.clock = time.perf_counter()

    def finish(self) -> None:
        """Runs all iterations."""
        self.request()
        while self.done < self.count:
            # A chunk may run in several pieces, as its elements come.
            if len(self.planned) < max(1, self.ahead):
                self.request()
            waited = [feeder.wait() // feeder.each for feeder in self.feeders]
            ready = min([self.planned[0], *waited])
            if ready:
                self.dispatch(ready)
            else:
                self.one_by_one()
                ready = 1
            self.done += ready
            self.planned[0] -= ready
            if not self.planned[0]:
                self.planned.popleft()
            self.session.interrupts.check()
            self.adapt(ready)

    def one_by_one(self) -> None:
        """An iteration whose elements have not come all at once: through what is there, in turn."""
        single, (feeder, *_) = self.loop.single, self.feeders
        taken = 0
        while taken < feeder.each:
            waited = [f.wait() for f in self.feeders]
            ready = min(feeder.each - taken, *waited)
            if not ready or single is None:
                self.stop(waited, taken)
            leaves = [leaf for f in self.feeders for leaf in f.leaves(ready)]
            kernel = single.chunk_kernels[self.capacity * feeder.each]
            self.launch(single, kernel, ready, leaves)
            taken += ready

    def request(self) -> None:
        """Has the next chunk's elements fetched."""
        size = min(self.size, self.capacity, self.count - self.requested)
        if size > 0:
            self.requested += size
            self.planned.append(size)
            for feeder in self.feeders:
                feeder.request(size * feeder.each, self.capacity * feeder.each)

    def dispatch(self, ready: int) -> None:
        """Sends off the next iterations, one chunk."""
        leaves = [leaf for f in self.feeders for leaf in f.leaves(ready * f.each)]
        self.launch(self.loop, self.loop.chunk_kernels[self.capacity], ready, leaves)

    def launch(
        self, loop: StreamedLoop, kernel: LoopKernel, count: int, elements: list[np.ndarray]
    ) -> None:
        """Dispatches a kernel for a chunk of `count` iterations."""
        run = kernel.direct if self.direct else kernel
        token, *results = run(count, (*self.carry, *self.consts[loop]), elements)
        self.running.append(token)
        self.carry, sent = results[: len(self.carry)], results[len(self.carry) :]
        for step in loop.outs:
            leaves, sent = sent[: len(step.reads)], sent[len(step.reads) :]
            leaves = [self.loop.placement.parted(leaf) for leaf in leaves]
            self.session.collector(step.queue).send(step.structure, leaves, loop.kept(step, count))
        for feeder in self.feeders:
            feeder.completed()

    def adapt(self, ready: int) -> None:
        """Waits for an earlier chunk, and sizes the next for about `CHUNK_SECONDS`."""
        while len(self.running) > self.ahead:
            self.running.popleft().block_until_ready()
        if not self.ahead:
            self.session.flush()
            return
        now = time.perf_counter()
        elapsed, self.clock = now - self.clock, now
        fitting = int(ready * CHUNK_SECONDS / max(elapsed, 1e-9))
        if self.loop.placement.spans_processes:
            fitting = self.capacity  # all have to take the same chunks, whatever their clocks say
        self.loop.fitting = fitting
        self.size = max(1, min(fitting, GROWTH * self.size, self.capacity))

    def stop(self, waited: list[int], taken: int) -> NoReturn:
        """Raises what a data set that stopped short, `taken` elements into an iteration, says."""
        feeder = self.feeders[waited.index(0)]
        error = feeder.exhausted(feeder.each, taken)  # one iteration's, to be the whole loop's
        structure = self.loop.node.loop
        if isinstance(error, OutOfRangeError) and structure is not None:
            carried = jax.tree.unflatten(structure, self.carry[: structure.num_leaves])
            error = self.session.of_the_loop(error, self.count, self.done, carried)
        raise error
