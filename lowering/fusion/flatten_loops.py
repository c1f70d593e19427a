"""The flattening of a loop in a loop, whose elements then stream without a stop in between."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from lowering import ir
from lowering.fusion.emit import Values, evaluate_steps
from lowering.fusion.merge_iterations import MERGES, MergedIterations, match_accumulating_iteration
from lowering.ground import IpuId, ValueId
from lowering.jaxprs import Aval, ShapedArray, trace_flat, typed_jax, zeros_of_aval
from lowering.ops import axis_of_replicas

_ONE = IpuId(0)
_COUNTER = ShapedArray((), jnp.dtype("int32"))

Hosted = Callable[[ir.Node], bool]


def flatten_loops(program: ir.Program, is_hosted: Hosted) -> ir.Program:
    """Flattens each loop around a loop that the host must drive.

    Before: everything is on one IPU; `is_hosted` tells which steps stay with the host.
    After:  a loop whose body is, beside steps that need no host, one loop that streams (and that
            is no loop of the user's own, but the micro-batches of a pipeline) is one loop over all
            iterations of the inner one. Its kernel counts, and runs the steps before (and after)
            the inner loop in the iterations in which an inner loop begins (and ends). If it only
            adds up, several of its iterations may become one of the new loop.
    """
    flattener = _Flattener(program, is_hosted)
    body = flattener.flatten_steps(program.body)
    return dc.replace(program, body=body, avals=tuple(flattener.avals))


@dc.dataclass(frozen=True, slots=True)
class _Nest:
    """A loop in a loop: the steps before the inner loop, that loop, and the steps after it."""

    outer: ir.Repeat
    before: ir.Sequence
    inner: ir.Repeat
    after: ir.Sequence

    @property
    def inner_steps_without_streams(self) -> ir.Sequence:
        """The steps of the inner loop that do not stream."""
        streams = (ir.StreamIn, ir.StreamOut)
        return ir.Sequence(tuple(s for s in self.inner.body.steps if not isinstance(s, streams)))

    @property
    def inner_stream_ins(self) -> list[ir.StreamIn]:
        """The steps of the inner loop that take elements from a queue."""
        return [step for step in self.inner.body.steps if isinstance(step, ir.StreamIn)]

    @property
    def inner_stream_outs(self) -> list[ir.StreamOut]:
        """The steps of the inner loop that send results to a queue."""
        return [step for step in self.inner.body.steps if isinstance(step, ir.StreamOut)]

    @property
    def inner_elements(self) -> list[ValueId]:
        """The elements that an iteration of the inner loop takes."""
        return [v for step in self.inner_stream_ins for v in step.writes]

    @property
    def inner_results(self) -> list[ValueId]:
        """The results that an iteration of the inner loop sends."""
        return [v for step in self.inner_stream_outs for v in step.reads]

    @property
    def values_made_before_inner_loop(self) -> set[ValueId]:
        """The values that the steps before the inner loop make."""
        return set(ir.values_written(self.before))

    @property
    def inner_initial_values(self) -> list[tuple[ValueId, ValueId]]:
        """The names and values with which the inner loop starts.

        These are its loop variables, and values from before it that it or the steps after it read.
        """
        later_reads = [
            *ir.values_read(self.inner_steps_without_streams),
            *ir.values_read(self.after),
            *(c.leaving for c in self.outer.carry),
        ]
        unchanged_values = [
            (v, v)
            for v in dict.fromkeys([*later_reads, *self.inner_results])
            if v in self.values_made_before_inner_loop
        ]
        return [*((c.entering, c.initial) for c in self.inner.carry), *unchanged_values]


class _Flattener:
    def __init__(self, program: ir.Program, is_hosted: Hosted):
        self.program, self.hosted = program, is_hosted
        self.avals: list[Aval] = list(program.avals)

    def new_value(self, aval: Aval) -> ValueId:
        self.avals.append(aval)
        return ValueId(len(self.avals) - 1)

    def flatten_steps(self, body: ir.Sequence) -> ir.Sequence:
        steps: list[ir.Node] = []
        for node in body.steps:
            nest = self.match_nest(node) if isinstance(node, ir.Repeat) else None
            steps += [node] if nest is None else self.build_flat_loop(nest)
        return ir.Sequence(tuple(steps))

    def match_nest(self, node: ir.Repeat) -> _Nest | None:
        """Returns a loop as a nest, or None if it cannot be flattened."""
        steps = node.body.steps
        hosted_positions = [i for i, step in enumerate(steps) if self.hosted(step)]
        if len(hosted_positions) != 1 or node.count is None or node.slices or node.stacks:
            return None
        inner_loop = steps[hosted_positions[0]]
        if (
            not isinstance(inner_loop, ir.Repeat)
            or not inner_loop.count
            or inner_loop.slices
            or inner_loop.stacks
        ):
            return None
        if inner_loop.loop is not None:
            return None  # a user's own loop: the error of a data set's end tells its variables
        can_be_flattened = (
            not self.hosted(step)
            or (isinstance(step, (ir.StreamIn, ir.StreamOut)) and step.count is None)
            for step in inner_loop.body.steps
        )
        if not all(can_be_flattened):
            return None
        steps_before, steps_after = steps[: hosted_positions[0]], steps[hosted_positions[0] + 1 :]
        return _Nest(node, ir.Sequence(steps_before), inner_loop, ir.Sequence(steps_after))

    def build_flat_loop(self, nest: _Nest) -> list[ir.Node]:
        """Returns the steps before the inner loop, run once, and the flat loop."""
        merged = self.merge_inner_iterations(nest)
        prologue = self.build_prologue(nest)
        carried = [
            *(c.entering for c in nest.outer.carry),
            *(name for name, _ in nest.inner_initial_values),
        ]
        initial = [*(c.initial for c in nest.outer.carry), *prologue.writes]
        final = [c.final for c in nest.outer.carry]
        final += [self.new_value(self.avals[v]) for v in initial[len(final) :]]
        flat_loop = _FlatLoopKernel(self, nest, carried, merged).build_loop_around_kernel(
            initial, final
        )
        if merged is not None:
            single = _FlatLoopKernel(self, nest, carried, None).build_loop_around_kernel(
                initial, final
            )
            flat_loop = dc.replace(flat_loop, single=single)
        return [prologue, flat_loop]

    def build_prologue(self, nest: _Nest) -> ir.Execute:
        """Returns a kernel that makes room for what the steps before the inner loop compute."""
        avals = [self.avals[source] for _, source in nest.inner_initial_values]
        writes = [self.new_value(aval) for aval in (*avals, _COUNTER)]

        def make_zeros() -> list[Any]:
            return [*map(zeros_of_aval, avals), jnp.int32(0)]

        return self.trace_kernel_of_function(make_zeros, [], writes)

    def merge_inner_iterations(self, nest: _Nest) -> MergedIterations | None:
        """Returns several iterations of the inner loop as one, or None if that does not pay."""
        depths = [step.queue.prefetch_depth for step in nest.inner_stream_ins]
        most_iterations = min((depth for depth in depths if depth is not None), default=max(MERGES))
        possible_widths = (
            n for n in MERGES if (nest.inner.count or 0) % n == 0 and n <= most_iterations
        )
        width = next(possible_widths, 1)
        if not nest.inner_stream_ins or self.program.replicas > 1 or width == 1:
            return None
        entering = [c.entering for c in nest.inner.carry]
        results = [*(c.leaving for c in nest.inner.carry), *nest.inner_results]
        values_of_iteration = {
            *entering,
            *nest.inner_elements,
            *ir.values_written(nest.inner_steps_without_streams),
        }
        outside = [
            v
            for v in dict.fromkeys([*ir.values_read(nest.inner_steps_without_streams), *results])
            if v not in values_of_iteration
        ]
        names = [*entering, *nest.inner_elements, *outside]

        def run_inner_iteration(*operands: Any) -> list[Any]:
            values: Values = dict(zip(names, operands, strict=True))
            evaluate_steps(nest.inner_steps_without_streams, values)
            return [values[v] for v in results]

        closed = trace_flat(run_inner_iteration, [self.avals[v] for v in names])
        iteration = match_accumulating_iteration(closed, len(entering), len(nest.inner_elements))
        return None if iteration is None else MergedIterations(iteration, width, outside)

    def trace_kernel_of_function(
        self,
        function: Callable[..., list[Any]],
        reads: Sequence[ValueId],
        writes: Sequence[ValueId],
        origin: str = "",
    ) -> ir.Execute:
        avals = [self.avals[v] for v in reads]
        jaxpr = trace_flat(function, avals, axis_of_replicas(self.program.replicas))
        return ir.Execute(ir.Kernel(jaxpr, origin), _ONE, tuple(reads), tuple(writes))


class _FlatLoopKernel:
    """The kernel that is the body of a flat loop."""

    def __init__(
        self,
        flattener: _Flattener,
        nest: _Nest,
        carried: list[ValueId],
        merge: MergedIterations | None,
    ):
        self.flattener, self.nest, self.merge = flattener, nest, merge
        self.width = 1 if merge is None else merge.count
        new = flattener.new_value
        self.names = carried
        self.entering = [*(new(flattener.avals[v]) for v in carried), new(_COUNTER)]
        self.leaving = [*(new(flattener.avals[v]) for v in carried), new(_COUNTER)]
        self.ins = [self.stack_stream_in(step) for step in nest.inner_stream_ins]
        self.outs = [self.stack_stream_out(step) for step in nest.inner_stream_outs]
        self.execute = self.trace_flat_iteration()

    def build_loop_around_kernel(
        self, initial: Sequence[ValueId], final: Sequence[ValueId]
    ) -> ir.Repeat:
        """Returns the flat loop around the kernel."""
        outer = self.nest.outer
        names = zip(initial, self.entering, self.leaving, final, strict=True)
        return dc.replace(
            outer,
            count=(outer.count or 0) * (self.nest.inner.count or 0) // self.width,
            body=ir.Sequence((*self.ins, self.execute, *self.outs)),
            carry=tuple(ir.Carry(*four, ipu=_ONE) for four in names),
        )

    def stack_stream_in(self, step: ir.StreamIn) -> ir.StreamIn:
        if self.width == 1:
            return step
        writes = tuple(self.flattener.new_value(self.aval_of_stack(v)) for v in step.writes)
        return dc.replace(step, writes=writes, count=self.width)

    def stack_stream_out(self, step: ir.StreamOut) -> ir.StreamOut:
        reads = tuple(self.flattener.new_value(self.aval_of_stack(v)) for v in step.reads)
        count = None if self.width == 1 else self.width
        return dc.replace(step, reads=reads, count=count)

    def aval_of_stack(self, value: ValueId) -> Aval:
        aval = self.flattener.avals[value]
        return aval if self.width == 1 else ShapedArray((self.width, *aval.shape), aval.dtype)

    def trace_flat_iteration(self) -> ir.Execute:
        nest, carry = self.nest, self.nest.inner.carry
        elements = [v for step in self.ins for v in step.writes]
        stream_results = [v for step in self.outs for v in step.reads]
        values_of_kernel = {
            *self.names,
            *elements,
            *nest.inner_elements,
            *nest.values_made_before_inner_loop,
            *(c.final for c in carry),
        }
        values_of_kernel.update(
            ir.values_written(nest.inner_steps_without_streams), ir.values_written(nest.after)
        )
        all_reads = [
            *ir.values_read(nest.before),
            *(c.initial for c in carry),
            *ir.values_read(nest.inner_steps_without_streams),
            *(c.leaving for c in carry),
            *nest.inner_results,
            *ir.values_read(nest.after),
            *(c.leaving for c in nest.outer.carry),
        ]
        consts = [v for v in dict.fromkeys(all_reads) if v not in values_of_kernel]

        def run_flat_iteration(*flat: Any) -> list[Any]:
            count = len(self.names)
            state, counter = dict(zip(self.names, flat[:count], strict=True)), flat[count]
            elements_taken = flat[count + 1 : count + 1 + len(elements)]
            outside: Values = dict(zip(consts, flat[count + 1 + len(elements) :], strict=True))
            state.update(self.begin_inner_loop(counter == 0, {**outside, **state}))
            results = self.run_merged_iterations(state, elements_taken, outside)
            counter = counter + self.width
            is_last = counter == nest.inner.count
            state.update(self.end_inner_loop(is_last, {**outside, **state}))
            return [*state.values(), jnp.where(is_last, 0, counter), *results]

        kernels = (
            step.kernel
            for step in ir.walk_nodes(nest.inner_steps_without_streams)
            if isinstance(step, ir.Execute)
        )
        origin = next((kernel.origin for kernel in kernels), "")
        reads = [*self.entering, *elements, *consts]
        return self.flattener.trace_kernel_of_function(
            run_flat_iteration, reads, [*self.leaving, *stream_results], origin
        )

    def run_merged_iterations(
        self, state: Values, elements: Sequence[Any], outside: Values
    ) -> list[Any]:
        """Runs the merged iterations of the inner loop on the state; returns their results."""
        values: Values = {**outside, **state}
        carry = self.nest.inner.carry
        if self.merge is not None:
            entering = [values[c.entering] for c in carry]
            results = self.merge(*entering, *elements, *(values[v] for v in self.merge.outside))
        else:
            values.update(zip(self.nest.inner_elements, elements, strict=True))
            evaluate_steps(self.nest.inner_steps_without_streams, values)
            results = [values[v] for v in (*(c.leaving for c in carry), *self.nest.inner_results)]
        state.update(zip((c.entering for c in carry), results, strict=False))
        return results[len(carry) :]

    def begin_inner_loop(self, is_first: Any, values: Values) -> Values:
        """Returns the inner loop's values, as the steps before it make them in its first iteration.

        Its loop variables and those of the outer loop are written apart from one another, so that
        XLA need not copy any of them.
        """

        def run_steps_before(before: Values) -> list[Any]:
            evaluate_steps(self.nest.before, before)
            return [before[source] for _, source in self.nest.inner_initial_values]

        names = [name for name, _ in self.nest.inner_initial_values]
        return _replace_if(is_first, run_steps_before, names, values)

    def end_inner_loop(self, is_last: Any, values: Values) -> Values:
        """Returns the outer loop's variables, as the steps after the inner loop make them."""

        def run_steps_after(after: Values) -> list[Any]:
            after.update((c.final, after[c.entering]) for c in self.nest.inner.carry)
            evaluate_steps(self.nest.after, after)
            return [after[c.leaving] for c in self.nest.outer.carry]

        names = [c.entering for c in self.nest.outer.carry]
        return _replace_if(is_last, run_steps_after, names, values)


def _replace_if(
    condition: Any, compute: Callable[[Values], list[Any]], names: Sequence[ValueId], values: Values
) -> Values:
    """Returns the values of some names: computed anew if a condition holds, or as they are.

    In a loop that runs once or not at all: a branch would copy values that do not change.
    """
    kept = {name: value for name, value in values.items() if name not in names}

    def compute_once(index: Any, old_values: Any) -> list[Any]:
        # What does not depend on the index, XLA would compute in every outer iteration.
        operands = {**kept, **dict(zip(names, old_values, strict=True))}
        _, current = typed_jax.optimization_barrier((index, operands))
        return compute(current)

    trips = condition.astype(jnp.int32)
    old_values = [values[name] for name in names]
    new_values = typed_jax.fori_loop(0, trips, compute_once, old_values)
    return dict(zip(names, new_values, strict=True))
