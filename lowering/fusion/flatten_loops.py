"""Makes one loop of a loop in a loop, so that its elements stream without a stop in between."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering import ir
from lowering.fusion.emit import Values, emit
from lowering.fusion.merge_iterations import MERGES, Merged, as_accumulation
from lowering.jaxpr import Aval, ShapedArray, trace_flat
from lowering.ops.collectives import axis_of
from lowering.structure import may_be_seen
from lowering.units import IpuId, ValueId

_ONE = IpuId(0)
_COUNTER = ShapedArray((), jnp.dtype("int32"))

Hosted = Callable[[ir.Node], bool]


def flatten_loops(program: ir.Program, hosted: Hosted) -> ir.Program:
    """Flattens each loop around a loop that the host must drive.

    Before: everything is on one IPU; `hosted` says which steps stay with the host.
    After:  a loop whose body is, beside steps that need no host, one loop that streams (and that
            is no loop of the user's own, but the micro-batches of a pipeline) is one loop over all
            iterations of the inner one. Its kernel counts, and does what stood after (and before)
            the inner loop where an inner loop would end (and begin). Where the inner loop only adds
            up, a few iterations may become one of the new loop.
    """
    flattener = _Flattener(program, hosted)
    body = flattener.sequence(program.body)
    return dc.replace(program, body=body, avals=tuple(flattener.avals))


@dc.dataclass(frozen=True, slots=True)
class _Nest:
    """A loop in a loop: what stands before, the inner loop, and what stands after."""

    outer: ir.Repeat
    before: ir.Sequence
    inner: ir.Repeat
    after: ir.Sequence

    @property
    def own(self) -> ir.Sequence:
        """What the inner loop does beside streaming."""
        streams = (ir.StreamIn, ir.StreamOut)
        return ir.Sequence(tuple(s for s in self.inner.body.steps if not isinstance(s, streams)))

    @property
    def ins(self) -> list[ir.StreamIn]:
        """Where elements come from."""
        return [step for step in self.inner.body.steps if isinstance(step, ir.StreamIn)]

    @property
    def outs(self) -> list[ir.StreamOut]:
        """Where results go."""
        return [step for step in self.inner.body.steps if isinstance(step, ir.StreamOut)]

    @property
    def taken(self) -> list[ValueId]:
        """The elements of an iteration."""
        return [v for step in self.ins for v in step.writes]

    @property
    def sent(self) -> list[ValueId]:
        """The results of an iteration."""
        return [v for step in self.outs for v in step.reads]

    @property
    def made(self) -> set[ValueId]:
        """What stands before the inner loop makes."""
        return set(ir.writes(self.before))

    @property
    def started(self) -> list[tuple[ValueId, ValueId]]:
        """What an inner loop starts with, by name, and the value that it has then.

        That is its variables, and what it or the steps after it find there.
        """
        read = [*ir.reads(self.own), *ir.reads(self.after), *(c.leaving for c in self.outer.carry)]
        same = [(v, v) for v in dict.fromkeys([*read, *self.sent]) if v in self.made]
        return [*((c.entering, c.initial) for c in self.inner.carry), *same]


class _Flattener:
    def __init__(self, program: ir.Program, hosted: Hosted):
        self.program, self.hosted = program, hosted
        self.avals: list[Aval] = list(program.avals)

    def new(self, aval: Aval) -> ValueId:
        self.avals.append(aval)
        return ValueId(len(self.avals) - 1)

    def sequence(self, body: ir.Sequence) -> ir.Sequence:
        steps: list[ir.Node] = []
        for node in body.steps:
            nest = self.nest(node) if isinstance(node, ir.Repeat) else None
            steps += [node] if nest is None else self.flattened(nest)
        return ir.Sequence(tuple(steps))

    def nest(self, node: ir.Repeat) -> _Nest | None:
        """The loop as a nest, if it is one that can be flattened."""
        steps = node.body.steps
        inside = [i for i, step in enumerate(steps) if self.hosted(step)]
        if len(inside) != 1 or node.count is None or node.slices or node.stacks:
            return None
        inner = steps[inside[0]]
        if not isinstance(inner, ir.Repeat) or not inner.count or inner.slices or inner.stacks:
            return None
        if inner.loop is not None:
            return None  # a user's own loop: the error of a data set's end tells its variables
        simple = (
            not self.hosted(step)
            or (isinstance(step, (ir.StreamIn, ir.StreamOut)) and step.count is None)
            for step in inner.body.steps
        )
        if not all(simple):
            return None
        before, after = steps[: inside[0]], steps[inside[0] + 1 :]
        if any(map(_must_be_counted, before)):
            return None
        return _Nest(node, ir.Sequence(before), inner, ir.Sequence(after))

    def flattened(self, nest: _Nest) -> list[ir.Node]:
        """What stood before, once, and the new loop."""
        merge = self.merge(nest)
        first = self.first(nest)
        carried = [*(c.entering for c in nest.outer.carry), *(name for name, _ in nest.started)]
        initial = [*(c.initial for c in nest.outer.carry), *first.writes]
        final = [c.final for c in nest.outer.carry]
        final += [self.new(self.avals[v]) for v in initial[len(final) :]]
        whole = _Kernel(self, nest, carried, merge).loop(initial, final)
        if merge is not None:
            single = _Kernel(self, nest, carried, None).loop(initial, final)
            whole = dc.replace(whole, single=single)
        return [first, whole]

    def first(self, nest: _Nest) -> ir.Execute:
        """Runs what stands before the inner loop on the outer loop's initial values."""
        sources = [source for _, source in nest.started]
        writes = [*(self.new(self.avals[v]) for v in sources), self.new(_COUNTER)]
        initial = {c.entering: c.initial for c in nest.outer.carry}
        needed = [*ir.reads(nest.before), *(v for v in sources if v not in nest.made)]
        names = {v: initial.get(v, v) for v in needed}
        reads = list(dict.fromkeys(names.values()))

        def function(*operands: Any) -> list[Any]:
            outside = dict(zip(reads, operands, strict=True))
            values: Values = {v: outside[name] for v, name in names.items()}
            emit(nest.before, values)
            return [*(values[v] for v in sources), jnp.int32(0)]

        return self.kernel(function, reads, writes)

    def merge(self, nest: _Nest) -> Merged | None:
        """Several iterations of the inner loop as one, if that is better."""
        depths = [step.queue.prefetch_depth for step in nest.ins]
        most = min((depth for depth in depths if depth is not None), default=max(MERGES))
        fitting = (n for n in MERGES if (nest.inner.count or 0) % n == 0 and n <= most)
        width = next(fitting, 1)
        if not nest.ins or self.program.replicas > 1 or width == 1:
            return None
        entering = [c.entering for c in nest.inner.carry]
        results = [*(c.leaving for c in nest.inner.carry), *nest.sent]
        known = {*entering, *nest.taken, *ir.writes(nest.own)}
        outside = [v for v in dict.fromkeys([*ir.reads(nest.own), *results]) if v not in known]
        names = [*entering, *nest.taken, *outside]

        def function(*operands: Any) -> list[Any]:
            values: Values = dict(zip(names, operands, strict=True))
            emit(nest.own, values)
            return [values[v] for v in results]

        closed = trace_flat(function, [self.avals[v] for v in names])
        iteration = as_accumulation(closed, len(entering), len(nest.taken))
        return None if iteration is None else Merged(iteration, width, outside)

    def kernel(
        self,
        function: Callable[..., list[Any]],
        reads: Sequence[ValueId],
        writes: Sequence[ValueId],
        origin: str = "",
    ) -> ir.Execute:
        avals = [self.avals[v] for v in reads]
        jaxpr = trace_flat(function, avals, axis_of(self.program.replicas))
        return ir.Execute(ir.Kernel(jaxpr, origin), _ONE, tuple(reads), tuple(writes))


def _must_be_counted(node: ir.Node) -> bool:
    """Whether a step must not run once more than written: somebody would see it, or wait for it."""
    steps = ir.walk(ir.Sequence((node,)))
    kernels = [step.kernel for step in steps if isinstance(step, ir.Execute)]
    return isinstance(node, ir.While) or any(may_be_seen(k.jaxpr.jaxpr) for k in kernels)


class _Kernel:
    """The body of the new loop."""

    def __init__(
        self, flattener: _Flattener, nest: _Nest, carried: list[ValueId], merge: Merged | None
    ):
        self.flattener, self.nest, self.merge = flattener, nest, merge
        self.width = 1 if merge is None else merge.count
        new = flattener.new
        self.names = carried
        self.entering = [*(new(flattener.avals[v]) for v in carried), new(_COUNTER)]
        self.leaving = [*(new(flattener.avals[v]) for v in carried), new(_COUNTER)]
        self.ins = [self.stacked_in(step) for step in nest.ins]
        self.outs = [self.stacked_out(step) for step in nest.outs]
        self.execute = self.traced()

    def loop(self, initial: Sequence[ValueId], final: Sequence[ValueId]) -> ir.Repeat:
        """The new loop around the kernel."""
        outer = self.nest.outer
        names = zip(initial, self.entering, self.leaving, final, strict=True)
        return dc.replace(
            outer,
            count=(outer.count or 0) * (self.nest.inner.count or 0) // self.width,
            body=ir.Sequence((*self.ins, self.execute, *self.outs)),
            carry=tuple(ir.Carry(*four, ipu=_ONE) for four in names),
        )

    def stacked_in(self, step: ir.StreamIn) -> ir.StreamIn:
        if self.width == 1:
            return step
        writes = tuple(self.flattener.new(self.stacked(v)) for v in step.writes)
        return dc.replace(step, writes=writes, count=self.width)

    def stacked_out(self, step: ir.StreamOut) -> ir.StreamOut:
        reads = tuple(self.flattener.new(self.stacked(v)) for v in step.reads)
        count = None if self.width == 1 else self.width
        return dc.replace(step, reads=reads, count=count)

    def stacked(self, value: ValueId) -> Aval:
        aval = self.flattener.avals[value]
        return aval if self.width == 1 else ShapedArray((self.width, *aval.shape), aval.dtype)

    def traced(self) -> ir.Execute:
        nest, carry = self.nest, self.nest.inner.carry
        elements = [v for step in self.ins for v in step.writes]
        sent = [v for step in self.outs for v in step.reads]
        inside = {*self.names, *elements, *nest.taken, *nest.made, *(c.final for c in carry)}
        inside.update(ir.writes(nest.own), ir.writes(nest.after))
        wanted = [
            *ir.reads(nest.before),
            *(c.initial for c in carry),
            *ir.reads(nest.own),
            *(c.leaving for c in carry),
            *nest.sent,
            *ir.reads(nest.after),
            *(c.leaving for c in nest.outer.carry),
        ]
        consts = [v for v in dict.fromkeys(wanted) if v not in inside]

        def function(*flat: Any) -> list[Any]:
            count = len(self.names)
            state, counter = list(flat[:count]), flat[count]
            taken = flat[count + 1 : count + 1 + len(elements)]
            outside: Values = dict(zip(consts, flat[count + 1 + len(elements) :], strict=True))
            state, results = self.iteration(state, taken, outside)
            counter, state = self.turned(counter + self.width, state, outside)
            return [*state, counter, *results]

        kernels = (step.kernel for step in ir.walk(nest.own) if isinstance(step, ir.Execute))
        origin = next((kernel.origin for kernel in kernels), "")
        reads = [*self.entering, *elements, *consts]
        return self.flattener.kernel(function, reads, [*self.leaving, *sent], origin)

    def iteration(
        self, state: list[Any], elements: Sequence[Any], outside: Values
    ) -> tuple[list[Any], list[Any]]:
        """As many iterations of the inner loop as became one: the new state, and what is sent."""
        before = dict(zip(self.names, state, strict=True))
        values: Values = {**outside, **before}
        carry = self.nest.inner.carry
        if self.merge is not None:
            entering = [values[c.entering] for c in carry]
            results = self.merge(*entering, *elements, *(values[v] for v in self.merge.outside))
        else:
            values.update(zip(self.nest.taken, elements, strict=True))
            emit(self.nest.own, values)
            results = [values[v] for v in (*(c.leaving for c in carry), *self.nest.sent)]
        after = {**before, **dict(zip((c.entering for c in carry), results, strict=False))}
        return [after[name] for name in self.names], results[len(carry) :]

    def turned(self, counter: Any, state: list[Any], outside: Values) -> tuple[Any, list[Any]]:
        """After an inner loop's last iteration: what stands after it, and before the next one.

        A loop that runs once or not at all, since a branch would copy what it does not change.
        """
        is_last = counter == self.nest.inner.count

        def turn(_: Any, state: list[Any]) -> list[Any]:
            values: Values = {**outside, **dict(zip(self.names, state, strict=True))}
            values.update((c.final, values[c.entering]) for c in self.nest.inner.carry)
            emit(self.nest.after, values)
            outer = self.nest.outer.carry
            fresh: Values = dict(outside)
            fresh.update((c.entering, values[c.leaving]) for c in outer)
            emit(self.nest.before, fresh)
            fresh.update([(name, fresh[source]) for name, source in self.nest.started])
            return [fresh[name] for name in self.names]

        state = lax.fori_loop(0, is_last.astype(jnp.int32), turn, state)
        return jnp.where(is_last, 0, counter), state
