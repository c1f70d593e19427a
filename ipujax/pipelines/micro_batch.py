"""What a pipeline does for one micro-batch: a forward and a backward task for every stage."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.gradient_accumulation import GradientAccumulationReductionMethod
from ipujax.pipelines.model import Model
from ipujax.pipelines.settings import Settings
from ipujax.pipelines.stages import Stage, Value
from lowering import jaxpr, pipelines, storage


@dc.dataclass(frozen=True)
class Buffer:
    """A loop variable over the micro-batches.

    Attributes:
      aval: shape and dtype.
      storage: where it waits between tasks.
    """

    aval: Any
    storage: storage.Storage = storage.HERE


class MicroBatch:
    """The body of the loop over micro-batches, to be traced.

    The loop variables are, in this order: gradient accumulators, one for each trainable variable
    that a stage reads; counters of a running mean, one for each stage; sums of outfeed leaves;
    and what the weight update reads of the last stage's outputs.

    Args:
      settings: of the pipeline.
      model: its traced stages.
      kept: outputs of the last stage whose last values the weight update reads.
    """

    def __init__(self, settings: Settings, model: Model, kept: Sequence[Value]):
        self.settings, self.model, self.kept = settings, model, list(kept)
        self.owners = model.owners() if settings.training else {}
        self.accumulators = {value: self._accumulator(value) for value in self.owners}
        running = settings.reduction is GradientAccumulationReductionMethod.RUNNING_MEAN
        self.counters = sorted(set(self.owners.values())) if running else []
        self.sums = [
            Buffer(jax.ShapeDtypeStruct(v.aval.shape, settings.outfeed_dtype(v.aval)))
            for v in (model.sent_leaves() if settings.accumulate_outfeed else [])
        ]
        self.halves = {stage.number: self._halves(stage) for stage in model.stages}
        self.env: dict[Value, Any] = {}
        self.state: dict[Any, Any] = {}
        self.cotangents: dict[Value, list[Any]] = {}
        self.partial: dict[Value, list[Any]] = {}

    def _accumulator(self, value: Value) -> Buffer:
        dtype = self.settings.accumulation_dtype(value.aval)
        aval = jax.ShapeDtypeStruct(value.aval.shape, dtype)
        return Buffer(aval, self.settings.accumulator_storage)

    def buffers(self) -> list[Buffer]:
        """The loop variables."""
        counters = [Buffer(jax.ShapeDtypeStruct((), jnp.float32)) for _ in self.counters]
        kept = [Buffer(value.aval) for value in self.kept]
        return [*self.accumulators.values(), *counters, *self.sums, *kept]

    # --- tracing ----------------------------------------------------------------------------------

    def __call__(self, *flat: Any) -> list[Any]:
        """One micro-batch: constants and loop variables -> loop variables."""
        constants = self.model.constants
        self.env = dict(zip(constants, flat, strict=False))
        names: list[Any] = [*self.accumulators, *(("counter", n) for n in self.counters)]
        names += [("sum", i) for i in range(len(self.sums))]
        self.state = dict(zip(names, flat[len(constants) :], strict=False))
        self.cotangents, self.partial = {}, {}
        for stage in self.model.stages:
            self.forward(stage)
        if self.settings.training:
            for stage in reversed(self.model.stages):
                self.backward(stage)
        return [*(self.state[name] for name in names), *(self.env[v] for v in self.kept)]

    def task(
        self,
        stage: Stage,
        kind: pipelines.Kind,
        function: Callable[[Callable[[Value], Any]], dict[Any, Any]],
        reads: Sequence[Value],
        updates: Sequence[Any] = (),
        others: Sequence[Any] = (),
    ) -> dict[Any, Any]:
        """Runs a function as a task.

        Args:
          stage: which stage the task belongs to.
          kind: which phase of it.
          function: given values, buffers and others by name, gives new ones by name.
          reads: the values that it reads.
          updates: the names of the buffers that it adds to.
          others: further operands, known to the function as numbers.
        """
        reads = list(dict.fromkeys(reads))
        results: list[Any] = []

        def flat_function(*flat: Any) -> list[Any]:
            given: dict[Any, Any] = dict(zip([*reads, *updates], flat, strict=False))
            given.update(enumerate(flat[len(reads) + len(updates) :]))
            made = function(self.loading(given))
            results[:] = [name for name in made if name not in updates]
            return [*(made[name] for name in updates), *(made[name] for name in results)]

        options = self.settings.forward_options
        if kind is pipelines.Kind.BACKWARD:
            options = self.settings.backward_options
        spec = pipelines.TaskSpec(
            kind=kind,
            stage=stage.number,
            accumulated=tuple((len(reads) + i, i) for i in range(len(updates))),
            options=options[stage.number],
        )
        operands = [self.env[v] for v in reads] + [self.state[n] for n in updates] + list(others)
        flat = pipelines.task(flat_function, operands, spec)
        self.state.update(zip(updates, flat, strict=False))
        return dict(zip(results, flat[len(updates) :], strict=True))

    def loading(self, given: dict[Any, Any]) -> Callable[[Any], Any]:
        """Looks names up; variables that are kept elsewhere are brought in when asked for."""
        loaded: dict[Any, Any] = {}

        def look_up(name: Any) -> Any:
            if name not in self.model.variables:
                return given[name]
            if name not in loaded:
                loaded[name] = storage.load(given[name], self.settings.weight_storage)
            return loaded[name]

        return look_up

    def forward(self, stage: Stage) -> None:
        """A stage's forward task."""
        last = stage is self.model.stages[-1]
        halves = self.halves[stage.number]
        closed = stage.closed if halves is None else halves.forward
        reads = [v for v in stage.operands if v not in self.model.elements]
        sums = [("sum", i) for i in range(len(self.sums))] if last else []
        if last and self.settings.outfeed_queue is not None:
            own = {*stage.results, *self.model.elements}
            reads += [v for v in self.model.sent_leaves() if v not in own]
        if stage.number:
            reads += [v for v in stage.operands if v in self.model.elements]
            if last:
                reads += [v for v in self.model.sent_leaves() if v in self.model.elements]

        def function(given: Callable[[Any], Any]) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            with stage.on_its_ipu():
                if stage.number == 0:
                    made.update(self.model.next_element())
            operands = [made[v] if v in made else given(v) for v in stage.operands]
            results = jaxpr.run_equations(closed.jaxpr, closed.consts, operands)
            count = len(stage.results)
            made.update(zip(stage.results, results, strict=False))
            made.update((("residual", stage.number, i), r) for i, r in enumerate(results[count:]))
            if last and self.model.sent_leaves():
                with stage.on_its_ipu():
                    sent = [made[v] if v in made else given(v) for v in self.model.sent_leaves()]
                    made.update(self.send(sent, [given(name) for name in sums]))
            return made

        made = self.task(stage, pipelines.Kind.FORWARD, function, reads, updates=sums)
        self.env.update(made)

    def send(self, sent: Sequence[Any], sums: Sequence[Any]) -> dict[Any, Any]:
        """Sends the last stage's outputs, or adds them up."""
        if not self.settings.accumulate_outfeed:
            self.model.enqueue(sent)
            return {}
        pairs = enumerate(zip(sums, sent, strict=True))
        return {("sum", i): total + x.astype(total.dtype) for i, (total, x) in pairs}

    # --- backward ---------------------------------------------------------------------------------

    def _halves(self, stage: Stage) -> pipelines.Halves | None:
        if not self.settings.training:
            return None
        model = self.model
        flowing = [i for i, v in enumerate(stage.results) if v.trainable and v in model.sought]
        return pipelines.differentiate(
            stage.closed,
            gradients=[i for i, v in enumerate(stage.operands) if v.trainable],
            cotangents=flowing,
            constant={i for i, v in enumerate(stage.operands) if v.constant},
        )

    def backward(self, stage: Stage) -> None:
        """A stage's backward task: adds to its accumulators, and passes cotangents on."""
        halves = self.halves[stage.number]
        if halves is None:
            return
        model = self.model
        seeds = [v for v in stage.results if v.trainable and v in model.sought]
        wanted = [v for v in stage.operands if v.trainable]
        owned = [v for v in wanted if self.owners.get(v) == stage.number]
        reads = [stage.operands[i] for i in halves.kept]
        residuals = [("residual", stage.number, i) for i in range(halves.residuals)]
        given_back = [self.cotangents.get(v, []) for v in seeds]
        partial = {v: self.partial.pop(v, []) for v in owned}
        others = [x for group in (*given_back, *partial.values()) for x in group]
        counters = [("counter", stage.number)] if stage.number in self.counters and owned else []
        outputs = model.hook_reads() if owned else []

        def function(given: Callable[[Any], Any]) -> dict[Any, Any]:
            numbers = iter(range(len(others)))
            with stage.on_its_ipu():
                cotangents = [
                    self.seed(v, [given(next(numbers)) for _ in group])
                    for v, group in zip(seeds, given_back, strict=True)
                ]
            operands = [*map(given, reads), *map(given, residuals), *cotangents]
            closed = halves.backward
            gradients = dict(
                zip(wanted, jaxpr.run_equations(closed.jaxpr, closed.consts, operands), strict=True)
            )
            with stage.on_its_ipu():
                for v, group in partial.items():
                    for _ in group:
                        gradients[v] = gradients[v] + given(next(numbers))
                made: dict[Any, Any] = {
                    ("gradient", v): gradients[v] for v in wanted if v not in owned
                }
                mapped = model.mapped({v: gradients[v] for v in owned}, given)
                made.update(self.accumulated(mapped, given, counters))
            return made

        updates = [*owned, *counters]
        reads_all = [*reads, *residuals, *outputs, *(model.hook_variables(owned))]
        made = self.backward_task(stage, function, reads_all, updates, others)
        for v in wanted:
            if v in owned:
                continue
            target = self.partial if v in model.variables else self.cotangents
            target.setdefault(v, []).append(made["gradient", v])

    def backward_task(
        self,
        stage: Stage,
        function: Callable[[Callable[[Any], Any]], dict[Any, Any]],
        reads: Sequence[Any],
        owned: Sequence[Any],
        others: Sequence[Any],
    ) -> dict[Any, Any]:
        """A task whose buffers are named apart from the variables that they belong to."""
        names = [("buffer", v) if isinstance(v, Value) else v for v in owned]
        self.state.update((("buffer", v), self.state[v]) for v in owned if isinstance(v, Value))
        made = self.task(stage, pipelines.Kind.BACKWARD, function, reads, names, others)
        for v in owned:
            if isinstance(v, Value):
                self.state[v] = self.state.pop(("buffer", v))
        return made

    def seed(self, value: Value, given: Sequence[Any]) -> Any:
        """The cotangent of a value: the sum of what its readers gave back; 1 for the loss."""
        total: Any = (
            jnp.ones(value.aval.shape, value.aval.dtype) if value is self.model.loss else None
        )
        for cotangent in given:
            total = cotangent if total is None else total + cotangent
        return jnp.zeros(value.aval.shape, value.aval.dtype) if total is None else total

    def accumulated(
        self,
        gradients: dict[Value, Any],
        given: Callable[[Any], Any],
        counters: Sequence[Any],
    ) -> dict[Any, Any]:
        """The accumulators after this micro-batch's gradients."""
        reduction = self.settings.reduction
        done = given(counters[0]) if counters else None
        made: dict[Any, Any] = {}
        for value, gradient in gradients.items():
            name = ("buffer", value)
            buffer = self.accumulators[value]
            total = storage.load(given(name), buffer.storage)
            own = gradient.astype(total.dtype)
            if reduction is GradientAccumulationReductionMethod.MEAN:
                own = own * jnp.asarray(1 / self.settings.count, total.dtype)
            elif done is not None:
                total = total * (done / (done + 1)).astype(total.dtype)
                own = own * (1 / (done + 1)).astype(total.dtype)
            made[name] = storage.store(total + own, buffer.storage)
        if done is not None:
            made[counters[0]] = done + 1
        return made
