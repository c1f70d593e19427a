"""The tasks of one micro-batch of a pipeline: a forward and a backward task for every stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp

from ipujax.optimizers import GradientAccumulationReductionMethod as Reduction
from ipujax.optimizers import add_to_accumulator
from ipujax.pipelines.gradient_mapping import GradientMapping
from ipujax.pipelines.pipeline_stages import Aval, Stage, Value
from ipujax.pipelines.request import DtypeOf
from ipujax.pipelines.traced_stages import Arrays, Model
from lowering import jaxpr, ops, pipelines

Lookup = Callable[[Value], jax.Array]
"""A function from a value to its array, inside a task that reads it."""


class MicroBatch:
    """The body of the loop over micro-batches, to be traced.

    Args:
      model: the traced stages of the pipeline.
      last_outputs: outputs of the last stage whose last values the weight update reads.

    Attributes:
      accumulators: the gradient accumulator of each trainable variable that a stage reads.
      mapping: the optimizer's mapping of gradients before they are accumulated, or None.
      adding: for each of these variables the stage whose backward task adds to the accumulator.
      counters: the counter of the running mean of each stage.
      sums: the sums of outfeed leaves.
      state: the loop variable of each leaf of the untrained state that a stage changes.
      private_state: those of these leaves that only the forward task that changes them reads.
    """

    def __init__(self, model: Model, last_outputs: Sequence[Value]):
        request = model.request
        self.model, self.request, self.kept = model, request, list(last_outputs)
        self.owners = model.stage_accumulating_gradient if request.is_training else {}
        self.mapping = GradientMapping(model) if model.maps_micro_batch_gradients else None
        self.adding = self.owners if self.mapping is None else self.mapping.stages
        self.accumulators = {
            v: _create_accumulator(
                v.aval, request.accumulator_dtype_of, request.accumulator_storage
            )
            for v in self.owners
        }
        running = request.reduction is Reduction.RUNNING_MEAN
        self.counters = {
            stage: Value(jax.ShapeDtypeStruct((), jnp.float32))
            for stage in (sorted(set(self.adding.values())) if running else ())
        }
        summed = model.sent_leaves if request.accumulate_outfeed else []
        self.sums = [_create_accumulator(v.aval, request.output_sum_dtype_of) for v in summed]
        self.state = {v: Value(v.aval) for v in model.changed_state}
        tracer = pipelines.PullbackTracer()
        self.halves = {s.number: self._differentiate_stage(s, tracer) for s in model.stages}
        self.private_state = {v for v in model.changed_state if self._is_private(v)}
        self.residuals = {
            stage.number: [
                Value(aval, stage.number)
                for aval in self.forward_jaxpr(stage).out_avals[len(stage.results) :]
            ]
            for stage in model.stages
        }
        self.arrays: dict[Value, jax.Array] = {}
        self.cotangents: dict[Value, list[Value]] = {}
        self.waiting: dict[Value, Value] = {}  # gradients that earlier stages' mapping reads

    def _differentiate_stage(
        self, stage: Stage, tracer: pipelines.PullbackTracer
    ) -> pipelines.StageDerivative | None:
        if not self.request.is_training:
            return None
        flowing = [i for i, v in enumerate(stage.results) if self.has_cotangent(v)]
        return pipelines.differentiate_stage(
            stage.closed,
            gradients=[i for i, v in enumerate(stage.operands) if v.trainable],
            cotangents=flowing,
            constant_operands={
                i
                for i, v in enumerate(stage.operands)
                if v in self.model.values_shared_by_micro_batches
            },
            tracer=tracer,
        )

    def _is_private(self, leaf: Value) -> bool:
        """Returns whether no task but the one that changes a leaf of the state ever reads it."""
        changing = self.model.changed_state[leaf]
        halves = self.halves[changing.number]
        waiting = [changing.operands[i] for i in halves.kept] if halves is not None else []
        others = [v for stage in self.model.stages if stage is not changing for v in stage.operands]
        read = {*waiting, *others, *self.model.sent_leaves, *self.kept}
        return read.isdisjoint([leaf, changing.changed[leaf]])

    def has_cotangent(self, value: Value) -> bool:
        """Returns whether a stage's result has a cotangent."""
        return value.trainable and value in self.model.values_with_cotangents

    def forward_jaxpr(self, stage: Stage) -> jaxpr.ClosedJaxpr:
        """Returns the jaxpr of a stage's forward task, which computes its results and residuals."""
        halves = self.halves[stage.number]
        return stage.closed if halves is None else halves.forward

    @property
    def loop_variables(self) -> list[Value]:
        """The loop variables."""
        added = [*self.accumulators.values(), *self.counters.values(), *self.sums]
        return [*added, *self.state.values(), *self.kept]

    @property
    def variable_roles(self) -> list[tuple[str, str]]:
        """The role and the name of each loop variable, for reports."""
        model = self.model
        return [
            *(
                ("gradient sum", _join_leaf_path("variables", model.variables[v]))
                for v in self.accumulators
            ),
            *(("micro-batches of the mean", f"stage {stage}") for stage in self.counters),
            *(("sum for the outfeed", "") for _ in self.sums),
            *(("", _join_leaf_path("state", model.untrained_state[v])) for v in self.state),
            *(("last output", "") for _ in self.kept),
        ]

    def describe_loop_variables(self) -> Iterator[pipelines.LoopVariable]:
        """Yields how each loop variable would be combined if stages had copies."""
        kinds = pipelines.Combination
        of_sums = kinds.NONE if self.counters else kinds.SUM
        for accumulator in self.accumulators.values():
            yield pipelines.LoopVariable(of_sums, accumulator.storage)
        yield from (pipelines.LoopVariable(kinds.NONE) for _ in self.counters)
        yield from (pipelines.LoopVariable(kinds.SUM) for _ in self.sums)
        for value in self.state:
            yield pipelines.LoopVariable(self.model.combination_of_state(value))
        yield from (pipelines.LoopVariable(kinds.LAST) for _ in self.kept)

    # --- tracing ----------------------------------------------------------------------------------

    def __call__(self, *flat: jax.Array) -> list[jax.Array]:
        """Traces one micro-batch: constants and loop variables to new loop variables."""
        self.arrays = dict(
            zip(
                [*self.model.values_shared_by_micro_batches, *self.loop_variables],
                flat,
                strict=True,
            )
        )
        self.cotangents, self.waiting = {}, {}
        for stage in self.model.stages:
            self.add_forward_task(stage)
        if self.request.is_training:
            for stage in reversed(self.model.stages):
                self.add_backward_task(stage)
        return [self.arrays[v] for v in self.loop_variables]

    def add_task(
        self,
        stage: Stage,
        kind: pipelines.TaskRole,
        function: Callable[[Lookup], Arrays],
        reads: Sequence[Value],
        updates: Sequence[Value],
    ) -> None:
        """Traces a function as a task.

        Args:
          stage: which stage the task belongs to.
          kind: which phase of it.
          function: looks up the values that it reads and updates, and gives new ones.
          reads: the values that it reads.
          updates: the loop variables that it changes.
        """
        operands = list(dict.fromkeys([*reads, *updates]))
        first = len(operands) - len(updates)
        results: list[Value] = []

        def flat_function(*flat: jax.Array) -> list[jax.Array]:
            new_arrays = function(self.build_lazy_lookup(dict(zip(operands, flat, strict=True))))
            results[:] = [*updates, *(value for value in new_arrays if value not in updates)]
            return [new_arrays[value] for value in results]

        spec = pipelines.TaskSpec(
            kind=kind,
            stage=stage.number,
            accumulated=tuple((first + i, i) for i in range(len(updates))),
            options=self.request.task_options[kind][stage.number],
        )
        flat = pipelines.run_as_task(flat_function, [self.arrays[v] for v in operands], spec)
        self.arrays.update(zip(results, flat, strict=True))

    def build_lazy_lookup(self, arrays: Arrays) -> Lookup:
        """Builds a lookup that loads a stored value when it is first read."""
        loaded: dict[Value, jax.Array] = {}

        def look_up(value: Value) -> jax.Array:
            if value not in loaded:
                is_weight = value in self.model.variables
                storage = self.model.weight_storage if is_weight else value.storage
                loaded[value] = ops.bring_from_storage(arrays[value], storage)
            return loaded[value]

        return look_up

    # --- forward ----------------------------------------------------------------------------------

    def add_forward_task(self, stage: Stage) -> None:
        """Adds the forward task of a stage."""
        model, closed = self.model, self.forward_jaxpr(stage)
        last = stage is model.stages[-1]
        sums, sent = (self.sums, model.sent_leaves) if last else ([], [])
        results = [*stage.results, *self.residuals[stage.number]]
        buffers = {v: self.state[v] for v in stage.changed}
        made_here = {*stage.results, *buffers, *(model.element_leaves if stage.number == 0 else ())}
        needed_values = (*stage.operands, *sent, *stage.changed.values())
        reads = [v for v in needed_values if v not in made_here]

        def copy_shared(leaf: Value, array: jax.Array) -> jax.Array:
            return array if leaf in self.private_state else jnp.copy(array)

        def run_forward(array_of: Lookup) -> Arrays:
            new_arrays: dict[Value, jax.Array] = {}

            def array_in_task(value: Value) -> jax.Array:
                return new_arrays[value] if value in new_arrays else array_of(value)

            if stage.number == 0:
                with stage.open_ipu_scope():
                    new_arrays.update(model.take_infeed_element())
            # What the backward task reads is what this micro-batch found, not what came later.
            new_arrays.update((v, copy_shared(v, array_of(b))) for v, b in buffers.items())
            operands = [array_in_task(v) for v in stage.operands]
            flat = pipelines.evaluate_without_tracing(closed, operands)
            new_arrays.update(zip(results, flat, strict=True))
            # A copy, since later stages may read what is left, and the buffer goes on changing.
            new_arrays.update(
                (buffers[v], copy_shared(v, array_in_task(to))) for v, to in stage.changed.items()
            )
            if sent:
                with stage.open_ipu_scope():
                    new_arrays.update(
                        self.send_or_accumulate_outputs(
                            [array_in_task(v) for v in sent], [array_of(v) for v in sums]
                        )
                    )
            return new_arrays

        self.add_task(
            stage, pipelines.TaskRole.FORWARD, run_forward, reads, [*sums, *buffers.values()]
        )

    def send_or_accumulate_outputs(
        self, sent: Sequence[jax.Array], sums: Sequence[jax.Array]
    ) -> Arrays:
        """Sends the last stage's outputs to the outfeed, or adds them to their sums."""
        if not self.request.accumulate_outfeed:
            self.model.enqueue_arrays(sent)
            return {}
        added = [total + x.astype(total.dtype) for total, x in zip(sums, sent, strict=True)]
        return dict(zip(self.sums, added, strict=True))

    # --- backward ---------------------------------------------------------------------------------

    def add_backward_task(self, stage: Stage) -> None:
        """Adds the backward task of a stage, which accumulates gradients."""
        halves = self.halves[stage.number]
        if halves is None:
            return
        seeds = [v for v in stage.results if self.has_cotangent(v)]
        trainable_operands = [v for v in stage.operands if v.trainable]
        owned = [v for v in trainable_operands if self.owners.get(v) == stage.number]
        passed = {v: Value(v.aval, stage.number) for v in trainable_operands if v not in owned}
        halves_reads = [*(stage.operands[i] for i in halves.kept), *self.residuals[stage.number]]
        due = [v for v, number in self.adding.items() if number == stage.number]
        given_back = [v for value in (*seeds, *owned) for v in self.cotangents.get(value, ())]
        counters = [self.counters[stage.number]] if due and self.counters else []
        awaited = () if self.mapping is None else self.mapping.awaited
        deferred_gradients = {v: Value(v.aval, stage.number) for v in owned if v in awaited}

        def run_backward(array_of: Lookup) -> Arrays:
            with stage.open_ipu_scope():
                cotangents = [self.sum_cotangents(v, array_of) for v in seeds]
            operands = [*(array_of(v) for v in halves_reads), *cotangents]
            flat = pipelines.evaluate_without_tracing(halves.backward, operands)
            gradients = dict(zip(trainable_operands, flat, strict=True))
            with stage.open_ipu_scope():
                for v in owned:
                    for later_gradient in self.cotangents.get(v, ()):
                        gradients[v] = gradients[v] + array_of(later_gradient)
                mapped = self.apply_gradient_mapping(stage, gradients, array_of)
                sums = self.accumulate_gradients({v: mapped[v] for v in due}, array_of, counters)
            on = {**passed, **deferred_gradients}
            return {**{to: gradients[v] for v, to in on.items()}, **sums}

        reads = [*halves_reads, *self.values_read_by_gradient_mapping(stage), *given_back]
        updates = [*(self.accumulators[v] for v in due), *counters]
        self.add_task(stage, pipelines.TaskRole.BACKWARD, run_backward, reads, updates)
        self.waiting.update(deferred_gradients)
        for value, cotangent in passed.items():
            self.cotangents.setdefault(value, []).append(cotangent)

    def values_read_by_gradient_mapping(self, stage: Stage) -> list[Value]:
        """Returns the values that a stage's gradient mapping reads besides its own gradients."""
        if self.mapping is None:
            return []
        gradients = self.mapping.gradients_read_by(stage.number)
        return [
            *self.mapping.values_read_by(stage.number),
            *(self.waiting[v] for v in gradients if v in self.waiting),
        ]

    def apply_gradient_mapping(self, stage: Stage, gradients: Arrays, array_of: Lookup) -> Arrays:
        """Maps a stage's gradients if the optimizer has a mapping, else returns them."""
        if self.mapping is None:
            return gradients
        waited = {
            v: array_of(self.waiting[v])
            for v in self.mapping.gradients_read_by(stage.number)
            if v in self.waiting
        }
        return self.mapping.map_stage_gradients(stage.number, array_of, {**gradients, **waited})

    def sum_cotangents(self, value: Value, array_of: Lookup) -> jax.Array:
        """Sums the cotangents that the readers of a value passed back; 1 for the loss."""
        terms = [array_of(cotangent) for cotangent in self.cotangents.get(value, ())]
        if value is self.model.loss:
            terms.insert(0, jnp.ones(value.aval.shape, value.aval.dtype))
        if not terms:
            return jnp.zeros(value.aval.shape, value.aval.dtype)
        return sum(terms[1:], start=terms[0])

    def accumulate_gradients(
        self, gradients: Arrays, array_of: Lookup, counters: Sequence[Value]
    ) -> Arrays:
        """Adds gradients to their accumulators, and counts the micro-batch."""
        method, count = self.request.reduction, self.request.micro_batches
        done = array_of(counters[0]) if counters else None
        new_arrays: dict[Value, jax.Array] = {}
        for value, gradient in gradients.items():
            buffer = self.accumulators[value]
            with self.model.stages[self.owners[value]].open_ipu_scope():
                total = add_to_accumulator(array_of(buffer), gradient, method, count, done)
                new_arrays[buffer] = ops.move_to_storage(total, buffer.storage)
        if done is not None:
            new_arrays[counters[0]] = done + 1
        return new_arrays


def _create_accumulator(
    aval: Aval, dtype_of: DtypeOf, storage: ops.Storage = ops.ON_TILES
) -> Value:
    """Creates the loop variable in which arrays are summed."""
    return Value(jax.ShapeDtypeStruct(aval.shape, dtype_of(aval)), storage=storage)


def _join_leaf_path(root: str, name: str) -> str:
    """Returns a leaf's path with its root, which `Model` names only for a tree of one leaf."""
    return name if name == root else f"{root}{name}"
