"""What a user could change to need less memory, each as a function of what the model is given."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ipujax.report.advice.evidence import Evidence
from lowering import (
    LoweringError,
    Options,
    ir,
    jaxpr,
    lower,
    machine,
    schedules,
    size_in_bytes,
    variants,
)

_DEFAULT_PROPORTION = 0.6  # Poplar's availableMemoryProportion
_PARTS = (2, 6)  # of it, to be tried
_PLANNED = {
    "dot_general": ("matmuls.poplar_options", "matmul_proportion"),
    "conv_general_dilated": ("convolutions.poplar_options", "convolution_proportion"),
}


@dc.dataclass(frozen=True, slots=True)
class Source:
    """What a program was lowered from.

    Attributes:
      closed: the traced function.
      options: what the compiler was told, without what only CPUs and GPUs need.
    """

    closed: jaxpr.ClosedJaxpr
    options: Options


@dc.dataclass(frozen=True, slots=True)
class Case:
    """What a model is made of.

    Attributes:
      program: as it was lowered.
      source: from what; None if nobody knows, and then nothing changes but the model's options.
      options: of the model.
      changed: whether the source is another one than that of the program.
    """

    program: ir.Program
    source: Source | None
    options: machine.ModelOptions
    changed: bool = False

    def profile(self) -> machine.Profile | None:
        """What the model says; None where the program cannot be lowered like that."""
        if self.source is None or not self.changed:
            return machine.model(self.program, self.options)
        try:
            program = lower(self.source.closed, self.source.options)
        except LoweringError:
            return None
        return machine.model(program, self.options)

    def traced(self, change: Callable[[jaxpr.ClosedJaxpr], jaxpr.ClosedJaxpr]) -> Case:
        """With a change of the function."""
        if self.source is None:
            return self
        source = dc.replace(self.source, closed=change(self.source.closed))
        return dc.replace(self, source=source, changed=True)

    def compiled(self, **options: Any) -> Case:
        """With other options of the compiler."""
        if self.source is None:
            return self
        options_then = dc.replace(self.source.options, **options)
        source = dc.replace(self.source, options=options_then)
        return dc.replace(self, source=source, changed=True)


@dc.dataclass(frozen=True, slots=True)
class Change:
    """Something to change.

    Attributes:
      rule: a word for it, the same whatever the program; of those with one word, one is enough.
      text: what to do.
      short: the same in a list of several.
      apply: what is modelled then.
      first: whether that must come before other changes.
      ipus: how many it shares the whole out to; None if it is about something else.
      line: of the user's, if it is about that alone.
    """

    rule: str
    text: str
    short: str
    apply: Callable[[Case], Case]
    first: bool = False
    ipus: int | None = None
    line: str = ""

    def excludes(self, other: Change) -> bool:
        """Whether only one of the two can be made: both cut the model, or are one rule's."""
        same = (self.rule, self.line) == (other.rule, other.line)
        return same or (self.first and other.first)


def changes(case: Case, profile: machine.Profile, worst: Evidence, least: float) -> list[Change]:
    """What is not in force yet and may help, what costs a user least first.

    Args:
      case: the program as it is.
      profile: what the model says of it.
      worst: of the IPU with the fullest tile.
      least: bytes; what cannot take away as much is left out.
    """
    found: list[Change] = []
    if case.source is not None:
        found += _of_storage(profile, worst, least)
        found += _of_stages(case, profile)
    if worst.held["temporaries"] >= least:
        found += _of_plans(case, profile)
    if case.source is not None:
        found += _of_recomputation(case.source, worst, least)
        found += _of_pipelines(case.source, profile, worst, least)
    # Recomputation leaves the others that are about activations little to do.
    return sorted(found, key=lambda change: change.rule != "recompute")


def _of_recomputation(source: Source, worst: Evidence, least: float) -> Iterator[Change]:
    """What backward passes compute again, in pipelines and outside."""
    waiting = min(worst.held["fifos"], worst.room_bytes) if worst.training else worst.kept_bytes
    if waiting >= least and not source.options.allow_recompute:
        yield Change(
            "recompute",
            "recompute activations instead of keeping them: IPUConfig.allow_recompute = True",
            "recompute (IPUConfig.allow_recompute)",
            lambda case: case.compiled(allow_recompute=True),
        )


def _of_pipelines(
    source: Source, profile: machine.Profile, worst: Evidence, least: float
) -> Iterator[Change]:
    """What pipelines do with activations between the forward and the backward pass."""
    specs = [spec for spec in variants.pipelines_of(source.closed) if spec.training]
    if not specs or min(worst.held["fifos"], worst.room_bytes) < least:
        return
    if any(spec.schedule is schedules.grouped for spec in specs):
        yield Change(
            "schedule",
            "let fewer micro-batches wait: "
            "pipeline(pipeline_schedule=PipelineSchedule.Interleaved)",
            "PipelineSchedule.Interleaved",
            _asking(schedule=schedules.interleaved),
        )
    remote = profile.target.remote_bytes_per_second
    if remote and not all(spec.offload_activations for spec in specs):
        yield Change(
            "offload_activations",
            "keep waiting activations in streaming memory: pipeline(offload_activations=True)",
            "offload_activations",
            _asking(offload_activations=True),
        )


def _of_storage(profile: machine.Profile, worst: Evidence, least: float) -> Iterator[Change]:
    """Where state and sums wait between weight updates."""
    sharing = profile.replication_factor // profile.instances
    whole = worst.state_bytes if profile.target.remote_bytes_per_second else 0
    if whole >= least:
        yield Change(
            "offload_state",
            "keep the optimizer's state in streaming memory: "
            "pipeline(offload_weight_update_variables=True)",
            "offload_weight_update_variables",
            _keeping("state", remote=True),
        )
    if whole >= least and sharing > 1:
        yield Change(
            "shard_state",
            "keep an equal part of the optimizer's state on each replica: "
            "pipeline(replicated_optimizer_state_sharding=True)",
            "replicated_optimizer_state_sharding",
            _keeping("state", remote=True, sharded=True),
        )
    if profile.target.remote_bytes_per_second and worst.accumulator_bytes >= least:
        yield Change(
            "offload_accumulators",
            "keep gradient accumulators in streaming memory: "
            "pipeline(offload_gradient_accumulation_buffers=True)",
            "offload_gradient_accumulation_buffers",
            _keeping("sums", remote=True),
        )


def _asking(**asked: Any) -> Callable[[Case], Case]:
    """Of all pipelines that train."""

    def change(closed: jaxpr.ClosedJaxpr) -> jaxpr.ClosedJaxpr:
        return variants.with_pipelines(
            closed, lambda spec: dc.replace(spec, **asked) if spec.training else spec
        )

    return lambda case: case.traced(change)


def _keeping(what: str, **asked: bool) -> Callable[[Case], Case]:
    return lambda case: case.traced(lambda closed: variants.with_storage(closed, what, **asked))


def _of_stages(case: Case, profile: machine.Profile) -> Iterator[Change]:
    """More equal stages, and more of them; recomputation is taken to be on, as it comes first."""
    source, ipus = case.source, profile.num_ipus
    if source is None or not any(spec.training for spec in variants.pipelines_of(source.closed)):
        return
    loops = [node for node in ir.walk(case.program.body) if isinstance(node, ir.Pipeline)]
    sums = [carry.entering for loop in loops for carry in loop.carry]
    gradients = sum(size_in_bytes(case.program.avals[value]) for value in sums)
    copies = profile.memory.by_category["variables"] / max(gradients, 1)
    needed = int(profile.memory.peak_bytes.sum()) // profile.target.tiles_per_ipu
    for times in (1, 2, 4):
        recut = variants.with_stages(source.closed, times * ipus, copies, recomputes=True)
        if recut is not None:
            yield _cut_again(recut, ipus)
        if times > 1 and needed <= times * ipus * profile.memory.limit:
            return


def _cut_again(recut: variants.Recut, ipus: int) -> Change:
    now, then = (", ".join(map(str, counts)) for counts in (recut.before, recut.after))
    where = f"with {then} products and convolutions of the forward pass (now {now})"
    more = recut.ipus > ipus
    count = f", gradient_accumulation_count={recut.micro_batches}"
    text = (
        f"more stages, one on each of {recut.ipus} IPUs{count}: {where}"
        if more
        else f"cut the model into more equal stages: {where}"
    )
    return Change(
        "more_ipus" if more else "split_stages",
        text,
        f"{recut.ipus} IPUs" if more else "more equal stages",
        functools.partial(_cut, recut),
        first=True,
        ipus=recut.ipus,
    )


def _cut(recut: variants.Recut, case: Case) -> Case:
    replicas = case.program.replicas // (case.source.options.instances if case.source else 1)
    cut = case.traced(lambda _: recut.closed)
    if recut.ipus > case.program.ipus:  # where more of them would be, nobody knows
        cut = dc.replace(cut, options=dc.replace(cut.options, ladder=()))
    return cut.compiled(num_ipus=recut.ipus * replicas, replicas=replicas)


def _of_plans(case: Case, profile: machine.Profile) -> Iterator[Change]:
    """Less work space for products."""
    names = {operation.name.split()[0] for operation in profile.operations}
    products = {field: option for name, (option, field) in _PLANNED.items() if name in names}
    if not products:
        return
    asked = {field: getattr(case.options.plans, field) for field in products}
    present = {f: _DEFAULT_PROPORTION if p is None else p for f, p in asked.items()}
    for part in _PARTS:
        tried = {field: round(value / part, 3) for field, value in present.items()}
        where = " and ".join(
            f"{tried[field]:g} in {option} (now {present[field]:g})"
            for field, option in products.items()
        )
        lowest = min(tried.values())
        yield Change(
            "less_work_space",
            f'a lower "availableMemoryProportion": {where}',
            f"availableMemoryProportion {lowest:g}",
            _planning(tried),
        )


def _planning(tried: dict[str, float]) -> Callable[[Case], Case]:
    def apply(case: Case) -> Case:
        plans = dc.replace(case.options.plans, **tried)
        return dc.replace(case, options=dc.replace(case.options, plans=plans))

    return apply
