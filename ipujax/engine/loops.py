"""Streams a loop with queues: in chunks inside XLA, or step by step where that is as fast.

A chunk is `kernel(carry, buffers[K], k)` with k known at run time, so one compilation serves all
chunks. The first chunks are small, so that results of a short loop are seen while it runs; later
ones take about `CHUNK_SECONDS`. While one chunk runs, the next one's elements are being stacked
in a thread, and the results of the one before are handed to their queues.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.engine.feeds import Feeder, Session, exhausted, of_the_loop
from ipujax.engine.placement import Axis, Placement
from ipujax.engine.storage import load
from ipujax.errors import OutOfRangeError
from lowering import ir, jaxpr, workload

# Long enough to hide a dispatch of some 100 us, short enough to look live.
CHUNK_SECONDS = 0.02
# How much larger a chunk may be than the one before: its time is only known afterwards.
GROWTH = 8
# Bounds on one chunk's buffers, whatever the size of an element.
CHUNK_ELEMENTS = 2048
CHUNK_BYTES = 8 << 20

Values = dict[ir.Place, Any]


def is_streamable(node: ir.Repeat) -> bool:
    """Whether a loop's body is, on one IPU: take elements, run one kernel, send results."""
    steps: Any = node.body.steps
    simple = all(isinstance(step, (ir.Execute, ir.StreamIn, ir.StreamOut)) for step in steps)
    if not simple or node.slices or node.stacks:
        return False
    counted = any(getattr(step, "count", None) is not None for step in steps)
    if counted and any(
        slow_inside_loops(step.kernel.jaxpr) for step in steps if isinstance(step, ir.Execute)
    ):
        return False
    kernels = sum(isinstance(step, ir.Execute) for step in steps)
    return kernels <= 1 and len({user.ipu for user in (*node.carry, *steps)}) <= 1


class StreamedLoop:
    """One loop of a program, as a step of the machine that runs it.

    Args:
      node: the loop; `is_streamable`.
      placement: the devices of the program.
      trips: reads the trip count.
      spare: initial values that nobody needs afterwards, not even the caller.
    """

    def __init__(
        self,
        node: ir.Repeat,
        placement: Placement,
        trips: Callable[[Values], Any],
        spare: Collection[int],
    ):
        self.node, self.placement, self.trips, self.spare = node, placement, trips, spare
        steps = node.body.steps
        self.ins = [step for step in steps if isinstance(step, ir.StreamIn)]
        self.outs = [step for step in steps if isinstance(step, ir.StreamOut)]
        self.kernel = next((step for step in steps if isinstance(step, ir.Execute)), None)
        self.ipu = next((c.ipu for c in (*node.carry, *self.ins, *self.outs)), ir.IpuId(0))
        self.by_step = self.kernel is not None and slow_inside_loops(self.kernel.kernel.jaxpr)
        entering = {c.entering for c in node.carry}
        taken = {value for step in self.ins for value in step.writes}
        made = set(self.kernel.writes) if self.kernel else set[int]()
        used = (
            *(self.kernel.reads if self.kernel else ()),
            *(c.leaving for c in node.carry),
            *(value for step in self.outs for value in step.reads),
        )
        inside = entering | taken | made
        self.consts = tuple(dict.fromkeys(v for v in used if v not in inside))
        self.single: StreamedLoop | None = None
        if node.single is not None:
            self.single = StreamedLoop(node.single, placement, trips, spare)
        self.fitting = 0  # iterations of a chunk, by the last measurement
        self.chunk_kernel = self.jitted(self.chunk, chunked=True)
        self.by_step_kernel = self.jitted(self.step, chunked=False)

    # --- what one iteration does ----------------------------------------------------------------

    def iteration(
        self, carry: Sequence[Any], consts: Sequence[Any], elements: Sequence[Sequence[Any]]
    ) -> tuple[list[Any], list[list[Any]]]:
        """The loop variables after one iteration, and what it sends to each outfeed."""
        values = dict(zip(self.consts, consts, strict=True))
        values.update(zip((c.entering for c in self.node.carry), carry, strict=True))
        for step, leaves in zip(self.ins, elements, strict=True):
            values.update(zip(step.writes, leaves, strict=True))
        if self.kernel is not None:
            closed = self.kernel.kernel.jaxpr
            operands = [values[value] for value in self.kernel.reads]
            results = jaxpr.run_equations(closed.jaxpr, closed.consts, operands)
            values.update(zip(self.kernel.writes, results, strict=True))
        leaving = [values[c.leaving] for c in self.node.carry]
        return leaving, [[values[v] for v in step.reads] for step in self.outs]

    def step(self, count: Any, *flat: Any) -> list[Any]:
        """One iteration on flat operands; elements have no leading axis. Gives `count` back."""
        carry, consts, elements = self.split(flat)
        leaving, sent = self.iteration(carry, consts, elements)
        return [count, *leaving, *(leaf for leaves in sent for leaf in leaves)]

    def chunk(self, count: Any, *flat: Any) -> list[Any]:
        """`count` iterations; elements and results have a leading axis of the chunk's capacity.

        Gives `count` back as well: ready when the chunk is, and never donated.
        """
        carry, consts, buffers = self.split(flat)
        capacity = next(
            (
                leaf.shape[0] // (step.count or 1)
                for step, leaves in zip(self.ins, buffers, strict=True)
                for leaf in leaves
            ),
            self.capacity,
        )
        spec = jax.eval_shape(lambda: self.iteration(carry, consts, self.rows(buffers, 0))[1])
        sent = [
            [
                jnp.zeros((self.kept(step, capacity), *_row_shape(step, leaf)), leaf.dtype)
                for leaf in leaves
            ]
            for step, leaves in zip(self.outs, spec, strict=True)
        ]

        def body(index: Any, state: Any) -> Any:
            carry, sent = state
            carry, results = self.iteration(carry, consts, self.rows(buffers, index))
            sent = [
                [_with_row(step, old, new, index) for old, new in zip(whole, row, strict=True)]
                for step, whole, row in zip(self.outs, sent, results, strict=True)
            ]
            return carry, sent

        carry, sent = lax.fori_loop(0, count, body, (list(carry), sent))
        return [count, *carry, *(leaf for leaves in sent for leaf in leaves)]

    def rows(self, buffers: Sequence[Sequence[Any]], index: Any) -> list[list[Any]]:
        """What one iteration takes of each buffer."""
        return [
            [_taken(leaf, index, step.count) for leaf in leaves]
            for step, leaves in zip(self.ins, buffers, strict=True)
        ]

    @property
    def capacity(self) -> int:
        """Iterations of one chunk at most, for loops of any length."""
        queues: list[Any] = [step.queue for step in self.ins]
        each = max([step.count or 1 for step in self.ins], default=1)
        depths = [(queue.prefetch_depth or CHUNK_ELEMENTS) // each for queue in queues]
        size = max(
            [each * _bytes(aval) for queue in queues for aval in queue.avals]
            + [_bytes(aval) for aval in self.sent_avals()]
            + [1]
        )
        fitting = CHUNK_BYTES // (size * self.placement.replicas)
        return max(1, min(CHUNK_ELEMENTS, fitting, *depths))

    def sent_avals(self) -> list[Any]:
        """Shape and dtype of every leaf that the body sends, where a kernel makes it."""
        if self.kernel is None:
            return []
        made = dict(zip(self.kernel.writes, self.kernel.kernel.out_avals, strict=True))
        return [made[v] for step in self.outs for v in step.reads if v in made]

    def kept(self, step: ir.StreamOut, capacity: int) -> int:
        """Results of a chunk that its outfeed wants: all of them, or the last."""
        queue: Any = step.queue
        return 1 if queue.keeps_last else capacity * (step.count or 1)

    def split(self, flat: Sequence[Any]) -> tuple[Any, Any, list[list[Any]]]:
        """Loop variables, constants, and the leaves of each infeed, among flat operands."""
        first = len(self.node.carry)
        second = first + len(self.consts)
        rest = list(flat[second:])
        elements: list[list[Any]] = []
        for step in self.ins:
            elements.append(rest[: len(step.writes)])
            rest = rest[len(step.writes) :]
        return flat[:first], flat[first:second], elements

    def jitted(self, function: Callable[..., list[Any]], *, chunked: bool) -> Any:
        """The function for all replicas; a chunk's loop variables are donated."""
        carry = len(self.node.carry)
        leaves = sum(len(step.writes) for step in self.ins)
        results = sum(len(step.reads) for step in self.outs)
        lead: Axis = 1 if chunked else 0
        in_axes: list[Axis] = [None, *[0] * (carry + len(self.consts)), *[lead] * leaves]
        out_axes: list[Axis] = [None, *[0] * carry, *[lead] * results]
        whole = self.placement.replicated(function, self.ipu, in_axes, out_axes)
        # By step nothing is donated: on a CPU that costs more than it saves.
        return jax.jit(whole, donate_argnums=tuple(range(1, 1 + carry)) if chunked else ())

    # --- running --------------------------------------------------------------------------------

    def __call__(self, values: Values, session: Session) -> None:
        """Runs the whole loop."""
        count = int(self.trips(values))
        carry = [self.own(c, values) for c in self.node.carry]
        feeders = [Feeder(step.queue, session.replicas, step.count or 1) for step in self.ins]
        interrupted = True
        try:
            carry = _Run(self, values, session, feeders, count).finish(carry)
            interrupted = False
        except Exception:
            interrupted = False
            raise
        finally:
            for feeder in feeders:
                feeder.close(wait=not interrupted)
        for c, value in zip(self.node.carry, carry, strict=True):
            values[c.final, c.ipu] = value

    def constants(self, values: Values) -> list[Any]:
        """What the loop reads but does not change."""
        return [load(values[value, self.ipu]) for value in self.consts]

    def own(self, c: ir.Carry, values: Values) -> Any:
        """An initial value to be donated from iteration to iteration; the caller's stay his."""
        is_spare = c.initial in self.spare
        initial = values.pop((c.initial, c.ipu)) if is_spare else values[c.initial, c.ipu]
        array = load(initial)
        # What was put away may share its buffer with the value that it was.
        is_ours = is_spare and array is initial
        return array if is_ours or self.by_step else jnp.copy(array)


class _Run:
    """One execution of a streamed loop: how far it is, and how large its chunks are now.

    Attributes:
      consts: what the loop reads but does not change, and its loop over single elements.
    """

    def __init__(
        self,
        loop: StreamedLoop,
        values: Values,
        session: Session,
        feeders: list[Feeder],
        count: int,
    ):
        self.loop, self.session, self.feeders, self.count = loop, session, feeders, count
        own = [loop] if loop.single is None else [loop, loop.single]
        self.consts = {each: each.constants(values) for each in own}
        # A power of two, so that loops of many lengths share few compilations.
        roof = 1 << max(count - 1, 0).bit_length()
        self.capacity = min(loop.capacity, roof)
        # A short loop that is run again needs no small chunks to find out how long it takes.
        self.size = loop.fitting if loop.fitting >= count else 1
        self.requested = 0
        self.done = 0
        self.planned: collections.deque[int] = collections.deque()
        self.running: collections.deque[Any] = collections.deque()
        self.clock = time.perf_counter()

    def finish(self, carry: list[Any]) -> list[Any]:
        """Runs all iterations; gives the loop variables after them."""
        self.request()
        while self.done < self.count:
            self.request()
            waited = [feeder.wait(self.session.flush) // feeder.each for feeder in self.feeders]
            ready = min([self.planned[0], *waited])
            if ready:
                carry = self.dispatch(ready, carry)
            else:
                carry, ready = self.one_by_one(carry), 1
            self.done += ready
            self.planned[0] -= ready
            if not self.planned[0]:
                self.planned.popleft()
            self.adapt(ready)
        return carry

    def one_by_one(self, carry: list[Any]) -> list[Any]:
        """An iteration whose elements have not come all at once: through what is there, in turn."""
        single, (feeder, *_) = self.loop.single, self.feeders
        taken = 0
        while taken < feeder.each:
            waited = [f.wait(self.session.flush) for f in self.feeders]
            ready = min(feeder.each - taken, *waited)
            if not ready or single is None:
                self.stop(waited, carry, taken)
            leaves = [leaf for f in self.feeders for leaf in f.leaves(ready)]
            carry = self.launch(single, single.chunk_kernel, ready, carry, leaves)
            taken += ready
        return carry

    def request(self) -> None:
        """Has the next chunk's elements fetched."""
        size = min(self.size, self.capacity, self.count - self.requested)
        if size > 0:
            self.requested += size
            self.planned.append(size)
            for feeder in self.feeders:
                feeder.request(size * feeder.each, self.capacity * feeder.each)

    def dispatch(self, ready: int, carry: list[Any]) -> list[Any]:
        """Sends off the next iterations: one chunk, or step by step."""
        if not self.loop.by_step:
            leaves = [leaf for f in self.feeders for leaf in f.leaves(ready * f.each)]
            return self.launch(self.loop, self.loop.chunk_kernel, ready, carry, leaves)
        for _ in range(ready):
            leaves = [leaf for feeder in self.feeders for leaf in feeder.element()]
            carry = self.launch(self.loop, self.loop.by_step_kernel, None, carry, leaves)
        return carry

    def launch(
        self,
        loop: StreamedLoop,
        kernel: Any,
        count: int | None,
        carry: list[Any],
        leaves: list[np.ndarray],
    ) -> list[Any]:
        """Dispatches a kernel for one iteration (None) or for a chunk of `count`."""
        axis: Axis = None if self.session.replicas == 1 else int(count is not None)
        elements: list[Any] = leaves
        if axis is not None or not carry:
            # Otherwise jit brings them to where the loop variables are, in a fraction of the time.
            elements = list(loop.placement.elements(leaves, loop.ipu, axis))
        token, *results = kernel(np.int32(count or 1), *carry, *self.consts[loop], *elements)
        self.running.append(token)
        carry, sent = results[: len(carry)], results[len(carry) :]
        for step in loop.outs:
            own, sent = sent[: len(step.reads)], sent[len(step.reads) :]
            kept = None if count is None else loop.kept(step, count)
            self.session.collector(step.queue).send(step.structure, own, kept)
        return carry

    def adapt(self, ready: int) -> None:
        """Waits for an earlier chunk, and sizes the next for about `CHUNK_SECONDS`."""
        while len(self.running) > 2:
            self.running.popleft().block_until_ready()
        now = time.perf_counter()
        elapsed, self.clock = now - self.clock, now
        fitting = int(ready * CHUNK_SECONDS / max(elapsed, 1e-9))
        self.loop.fitting = fitting
        self.size = max(1, min(fitting, GROWTH * self.size, self.capacity))

    def stop(self, waited: list[int], carry: list[Any], taken: int) -> NoReturn:
        """Raises what a data set that stopped short, `taken` elements into an iteration, says."""
        feeder, replicas = self.feeders[waited.index(0)], self.session.replicas
        # As of one iteration, to be made the whole loop's.
        asked, there = feeder.each * replicas, taken * replicas + feeder.left
        error = exhausted(feeder.queue, asked, there, feeder.error, replicas)
        structure = self.loop.node.loop
        if isinstance(error, OutOfRangeError) and structure is not None:
            error = of_the_loop(
                error, structure, self.count, self.done, carry[: structure.num_leaves], replicas
            )
        raise error


def slow_inside_loops(closed: Any) -> bool:
    """Whether a body holds a convolution that XLA runs many times slower inside a CPU loop.

    Only the canonical forward form (NHWC, HWIO) is fast there (jax-ml/jax#12868); the gradient
    convolutions permute their dimensions or dilate their operands.
    """
    return jax.default_backend() == "cpu" and workload.has_slow_convolution(closed.jaxpr)


def _taken(leaf: Any, index: Any, count: int | None) -> Any:
    """An iteration's element, or its `count` stacked ones."""
    if count is None:
        return lax.dynamic_index_in_dim(leaf, index, keepdims=False)
    return lax.dynamic_slice_in_dim(leaf, index * count, count)


def _row_shape(step: ir.StreamOut, leaf: Any) -> tuple[int, ...]:
    """The shape of one of the elements that an iteration sends."""
    return leaf.shape if step.count is None else leaf.shape[1:]


def _with_row(step: ir.StreamOut, whole: Any, row: Any, index: Any) -> Any:
    """The buffer with what an iteration sends; with its last element, if the buffer has one."""
    rows = row[None] if step.count is None else row
    if whole.shape[0] == 1:
        return rows[-1:]
    return lax.dynamic_update_slice_in_dim(whole, rows, index * rows.shape[0], 0)


def _bytes(aval: Any) -> int:
    return max(1, int(np.prod(aval.shape)) * np.dtype(aval.dtype).itemsize)
