"""What a pipeline does for one micro-batch: a forward and a backward task for every stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from ipujax.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipujax.optimizers.accumulation import added
from ipujax.pipelines.gradient_mapping import GradientMapping
from ipujax.pipelines.model import Arrays, Model
from ipujax.pipelines.request import DtypeOf
from ipujax.pipelines.stages import Aval, Stage, Value
from lowering import jaxpr, ops, pipelines

Lookup = Callable[[Value], jax.Array]
"""Gives the array of a value, inside a task that reads it."""


class MicroBatch:
    """The body of the loop over micro-batches, to be traced.

    Args:
      model: the traced stages of the pipeline.
      kept: outputs of the last stage whose last values the weight update reads.

    Attributes:
      accumulators: of gradients, for each trainable variable that a stage reads.
      mapping: what the optimizer makes of gradients before they are added up; None for nothing.
      adding: for each of these variables the stage whose backward task adds to the accumulator.
      counters: of a running mean, by stage.
      sums: of outfeed leaves.
      state: for each leaf of the untrained state that a stage changes.
      kept: as given.
    """

    def __init__(self, model: Model, kept: Sequence[Value]):
        request = model.request
        self.model, self.request, self.kept = model, request, list(kept)
        self.owners = model.owners if request.training else {}
        self.mapping = GradientMapping(model) if model.maps else None
        self.adding = self.owners if self.mapping is None else self.mapping.stages
        self.accumulators = {
            v: _buffer(v.aval, request.accumulation_dtype, request.accumulator_storage)
            for v in self.owners
        }
        running = request.reduction is Reduction.RUNNING_MEAN
        self.counters = {
            stage: Value(jax.ShapeDtypeStruct((), jnp.float32))
            for stage in (sorted(set(self.adding.values())) if running else ())
        }
        summed = model.sent_leaves if request.accumulate_outfeed else []
        self.sums = [_buffer(v.aval, request.outfeed_dtype) for v in summed]
        self.state = {v: Value(v.aval) for v in model.changed}
        self.halves = {stage.number: self._halves(stage) for stage in model.stages}
        self.residuals = {
            stage.number: [
                Value(aval, stage.number)
                for aval in self.closed(stage).out_avals[len(stage.results) :]
            ]
            for stage in model.stages
        }
        self.arrays: dict[Value, jax.Array] = {}
        self.cotangents: dict[Value, list[Value]] = {}
        self.waiting: dict[Value, Value] = {}  # gradients that earlier stages' mapping reads

    def _halves(self, stage: Stage) -> pipelines.Halves | None:
        if not self.request.training:
            return None
        flowing = [i for i, v in enumerate(stage.results) if self.is_sought(v)]
        return pipelines.differentiate(
            stage.closed,
            gradients=[i for i, v in enumerate(stage.operands) if v.trainable],
            cotangents=flowing,
            constant={i for i, v in enumerate(stage.operands) if v in self.model.constants},
        )

    def is_sought(self, value: Value) -> bool:
        """Whether a stage's result has a cotangent."""
        return value.trainable and value in self.model.sought

    def closed(self, stage: Stage) -> jaxpr.ClosedJaxpr:
        """What a stage computes forward: its results and residuals."""
        halves = self.halves[stage.number]
        return stage.closed if halves is None else halves.forward

    @property
    def variables(self) -> list[Value]:
        """The loop variables."""
        added = [*self.accumulators.values(), *self.counters.values(), *self.sums]
        return [*added, *self.state.values(), *self.kept]

    @property
    def roles(self) -> list[tuple[str, str]]:
        """What each of them is, and of what, for reports."""
        model = self.model
        return [
            *(("gradient sum", _path("variables", model.variables[v])) for v in self.accumulators),
            *(("micro-batches of the mean", f"stage {stage}") for stage in self.counters),
            *(("sum for the outfeed", "") for _ in self.sums),
            *(("", _path("state", model.untrained[v])) for v in self.state),
            *(("last output", "") for _ in self.kept),
        ]

    # --- tracing ----------------------------------------------------------------------------------

    def __call__(self, *flat: jax.Array) -> list[jax.Array]:
        """One micro-batch: constants and loop variables -> loop variables."""
        self.arrays = dict(zip([*self.model.constants, *self.variables], flat, strict=True))
        self.cotangents, self.waiting = {}, {}
        for stage in self.model.stages:
            self.forward(stage)
        if self.request.training:
            for stage in reversed(self.model.stages):
                self.backward(stage)
        return [self.arrays[v] for v in self.variables]

    def task(
        self,
        stage: Stage,
        kind: pipelines.Kind,
        function: Callable[[Lookup], Arrays],
        reads: Sequence[Value],
        updates: Sequence[Value],
    ) -> None:
        """Runs a function as a task.

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
            made = function(self.loading(dict(zip(operands, flat, strict=True))))
            results[:] = [*updates, *(value for value in made if value not in updates)]
            return [made[value] for value in results]

        spec = pipelines.TaskSpec(
            kind=kind,
            stage=stage.number,
            accumulated=tuple((first + i, i) for i in range(len(updates))),
            options=self.request.options[kind][stage.number],
        )
        flat = pipelines.task(flat_function, [self.arrays[v] for v in operands], spec)
        self.arrays.update(zip(results, flat, strict=True))

    def loading(self, arrays: Arrays) -> Lookup:
        """Looks values up; what waits elsewhere is brought in when it is first asked for."""
        loaded: dict[Value, jax.Array] = {}

        def look_up(value: Value) -> jax.Array:
            if value not in loaded:
                is_weight = value in self.model.variables
                where = self.model.weight_storage if is_weight else value.storage
                loaded[value] = ops.load(arrays[value], where)
            return loaded[value]

        return look_up

    # --- forward ----------------------------------------------------------------------------------

    def forward(self, stage: Stage) -> None:
        """A stage's forward task."""
        model, closed = self.model, self.closed(stage)
        last = stage is model.stages[-1]
        sums, sent = (self.sums, model.sent_leaves) if last else ([], [])
        results = [*stage.results, *self.residuals[stage.number]]
        buffers = {v: self.state[v] for v in stage.changed}
        made_here = {*stage.results, *buffers, *(model.elements if stage.number == 0 else ())}
        wanted = (*stage.operands, *sent, *stage.changed.values())
        reads = [v for v in wanted if v not in made_here]

        def function(array_of: Lookup) -> Arrays:
            made: dict[Value, jax.Array] = {}

            def known(value: Value) -> jax.Array:
                return made[value] if value in made else array_of(value)

            if stage.number == 0:
                with stage.on_its_ipu():
                    made.update(model.next_element())
            # What the backward task reads is what this micro-batch found, not what came later.
            made.update((v, jnp.copy(array_of(buffer))) for v, buffer in buffers.items())
            flat = jaxpr.run_equations(
                closed.jaxpr, closed.consts, [known(v) for v in stage.operands]
            )
            made.update(zip(results, flat, strict=True))
            # A copy, since later stages may read what is left, and the buffer goes on changing.
            made.update((buffers[v], jnp.copy(known(to))) for v, to in stage.changed.items())
            if sent:
                with stage.on_its_ipu():
                    made.update(self.send([known(v) for v in sent], [array_of(v) for v in sums]))
            return made

        self.task(stage, pipelines.Kind.FORWARD, function, reads, [*sums, *buffers.values()])

    def send(self, sent: Sequence[jax.Array], sums: Sequence[jax.Array]) -> Arrays:
        """Sends the last stage's outputs, or adds them up."""
        if not self.request.accumulate_outfeed:
            self.model.enqueue(sent)
            return {}
        added = [total + x.astype(total.dtype) for total, x in zip(sums, sent, strict=True)]
        return dict(zip(self.sums, added, strict=True))

    # --- backward ---------------------------------------------------------------------------------

    def backward(self, stage: Stage) -> None:
        """A stage's backward task: adds to its accumulators, and passes cotangents on."""
        halves = self.halves[stage.number]
        if halves is None:
            return
        seeds = [v for v in stage.results if self.is_sought(v)]
        wanted = [v for v in stage.operands if v.trainable]
        owned = [v for v in wanted if self.owners.get(v) == stage.number]
        passed = {v: Value(v.aval, stage.number) for v in wanted if v not in owned}
        halves_reads = [*(stage.operands[i] for i in halves.kept), *self.residuals[stage.number]]
        due = [v for v, number in self.adding.items() if number == stage.number]
        given_back = [v for value in (*seeds, *owned) for v in self.cotangents.get(value, ())]
        counters = [self.counters[stage.number]] if due and self.counters else []
        awaited = () if self.mapping is None else self.mapping.awaited
        left = {v: Value(v.aval, stage.number) for v in owned if v in awaited}

        def function(array_of: Lookup) -> Arrays:
            with stage.on_its_ipu():
                cotangents = [self.seed(v, array_of) for v in seeds]
            closed, operands = halves.backward, [array_of(v) for v in halves_reads]
            flat = jaxpr.run_equations(closed.jaxpr, closed.consts, [*operands, *cotangents])
            gradients = dict(zip(wanted, flat, strict=True))
            with stage.on_its_ipu():
                for v in owned:
                    for other in self.cotangents.get(v, ()):
                        gradients[v] = gradients[v] + array_of(other)
                mapped = self.mapped(stage, gradients, array_of)
                sums = self.accumulated({v: mapped[v] for v in due}, array_of, counters)
            on = {**passed, **left}
            return {**{to: gradients[v] for v, to in on.items()}, **sums}

        reads = [*halves_reads, *self.mapping_reads(stage), *given_back]
        updates = [*(self.accumulators[v] for v in due), *counters]
        self.task(stage, pipelines.Kind.BACKWARD, function, reads, updates)
        self.waiting.update(left)
        for value, cotangent in passed.items():
            self.cotangents.setdefault(value, []).append(cotangent)

    def mapping_reads(self, stage: Stage) -> list[Value]:
        """What a stage's part of the mapping reads beside the gradients that it has itself."""
        if self.mapping is None:
            return []
        gradients = self.mapping.gradients(stage.number)
        return [
            *self.mapping.others(stage.number),
            *(self.waiting[v] for v in gradients if v in self.waiting),
        ]

    def mapped(self, stage: Stage, gradients: Arrays, array_of: Lookup) -> Arrays:
        """What is added up, as far as a stage makes it."""
        if self.mapping is None:
            return gradients
        waited = {
            v: array_of(self.waiting[v])
            for v in self.mapping.gradients(stage.number)
            if v in self.waiting
        }
        return self.mapping.mapped(stage.number, array_of, {**gradients, **waited})

    def seed(self, value: Value, array_of: Lookup) -> jax.Array:
        """The cotangent of a value: the sum of what its readers gave back; 1 for the loss."""
        terms = [array_of(cotangent) for cotangent in self.cotangents.get(value, ())]
        if value is self.model.loss:
            terms.insert(0, jnp.ones(value.aval.shape, value.aval.dtype))
        if not terms:
            return jnp.zeros(value.aval.shape, value.aval.dtype)
        return sum(terms[1:], start=terms[0])

    def accumulated(self, gradients: Arrays, array_of: Lookup, counters: Sequence[Value]) -> Arrays:
        """The accumulators, and the counter, after this micro-batch's gradients."""
        method, count = self.request.reduction, self.request.micro_batches
        done = array_of(counters[0]) if counters else None
        made: dict[Value, jax.Array] = {}
        for value, gradient in gradients.items():
            buffer = self.accumulators[value]
            with self.model.stages[self.owners[value]].on_its_ipu():
                total = added(array_of(buffer), gradient, method, count, done)
                made[buffer] = ops.store(total, buffer.storage)
        if done is not None:
            made[counters[0]] = done + 1
        return made


def _buffer(aval: Aval, dtype_of: DtypeOf, where: ops.Storage = ops.HERE) -> Value:
    """The loop variable that sums up arrays."""
    return Value(jax.ShapeDtypeStruct(aval.shape, dtype_of(aval)), storage=where)


def _path(root: str, name: str) -> str:
    """A leaf's path with its root, which a `Model` only names where there is nothing else."""
    return name if name == root else f"{root}{name}"
