"""The facts that costs and remedies rest on: a program, its index, its profile and the options."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Collection

import numpy as np

from ipujax.report.advice.alternatives import (
    Alternative,
    find_faster_schedule,
    model_schedule_with_more_micro_batches,
)
from ipujax.report.advice.change import Case, ModelMemory, Source
from ipujax.report.advice.index import ProgramIndex
from ipujax.report.advice.planned_cuts import BetterCut, describe_plan_call, find_better_cut
from ipujax.report.advice.tally import Total, tally_steps
from ipujax.report.advice.waiting import split_waiting_cycles
from lowering import HOST, ir, jaxpr, machine, schedules, trace

_ALL_REDUCES = ("psum", "psum_invariant", "pmax", "pmin")
_HOST_KIND = trace.KINDS.index("host")


class Facts:
    """The facts about a modelled program that rules ask for, each computed once.

    Attributes:
      program: the modelled program.
      index: the nodes and equations of the program.
      profile: its modelled profile.
      options: the model's options.
      memory: what models of the program found so far.
      source: what the program was lowered from; None where nobody knows.
      whole: the cycles of a call times the number of IPUs.
      waiting: why IPUs wait.
    """

    def __init__(
        self,
        index: ProgramIndex,
        profile: machine.Profile,
        options: machine.ModelOptions,
        memory: ModelMemory,
        source: Source | None = None,
    ):
        self.index, self.profile, self.options = index, profile, options
        self.program, self.source, self.memory = index.program, source, memory
        self.whole = profile.num_ipus * int(profile.cycles)
        self.waiting = split_waiting_cycles(index, profile, overlaps_io=options.overlaps_io)
        busy = trace.count_busy_cycles(profile.steps.trace, profile.num_ipus)
        self._host = busy[:, _HOST_KIND]
        self._rest = busy.sum(axis=1) - self._host
        self._tally = tally_steps(profile.steps.trace)

    @property
    def fits_in_memory(self) -> bool:
        """Returns whether there is enough memory; advice on speed waits until there is."""
        return self.profile.memory.fits

    @property
    def case(self) -> Case:
        """The program as it is, for models of it after changes."""
        return Case(self.program, self.source, self.options, memory=self.memory)

    def model_with_nodes(self, replace_node: Callable[[ir.Node], ir.Node]) -> machine.Profile:
        """Models the program again after replacing some of its nodes."""
        body = ir.rewrite_nodes(self.program.body, replace_node)
        return machine.model(
            dc.replace(self.program, body=body), self.options, known=self.memory.known
        )

    @property
    def cycles_waiting_for_io_tiles(self) -> int:
        """The cycles in which other tiles wait for the I/O tiles, on the IPU where these are most.

        Counts IPUs whose queues take longer than the rest of their work; 0 without overlap.
        """
        if not self.options.overlaps_io:
            return 0
        exposed_cycles = np.where(self._host > self._rest, self.profile.cycles - self._rest, 0)
        return int(exposed_cycles.clip(0).sum())

    @property
    def cycles_that_io_tiles_could_hide(self) -> int:
        """The largest number of cycles of all IPUs that queues take and other work could hide."""
        return int(np.minimum(self._host, self.profile.cycles - self._host).sum())

    def totals_of_kind(self, kind: str) -> list[Total]:
        """Returns the steps of a kind by name and line, most cycles first."""
        amounts = (item for item in self._tally.items() if item[0].kind == kind)
        totals = [
            Total(steps.name, steps.origin, *amount, amount.cycles) for steps, amount in amounts
        ]
        return sorted(totals, key=lambda total: -total.cycles)

    def total_of_kind(self, kind: str) -> list[Total]:
        """Returns all steps of a kind as one total; [] if there are none."""
        totals = self.totals_of_kind(kind)
        return [Total.sum_totals(totals)] if totals else []

    def operations_of_steps(self, steps: Total) -> list[machine.OperationTotal]:
        """Returns the operations with the name and line of some steps, most expensive first."""
        return [
            operation
            for operation in self.profile.operations
            if operation.origin == steps.origin
            and f"{operation.name} ".startswith(f"{steps.name} ")
        ]

    def dtypes_of_steps(self, steps: Total) -> set[str]:
        """Returns the dtypes that some steps' primitives at their line work on."""
        primitives = (part.partition(":")[0] for part in steps.name.split())
        operand_dtypes = (
            self.index.dtypes_by_primitive.get((primitive, steps.origin), ())
            for primitive in primitives
        )
        return set[str]().union(*operand_dtypes)

    @functools.cached_property
    def has_mostly_single_inputs(self) -> bool:
        """Returns whether the user passes in more bytes of float32 than of half precision.

        Where most inputs are halves, float32 is deliberate: sums, statistics, losses.
        """
        streamed_values = [
            value for node in self.index.nodes_of_kind(ir.StreamIn) for value in node.writes
        ]
        input_bytes = self.index.bytes_by_dtype([*self.program.inputs, *streamed_values])
        return input_bytes["float32"] > input_bytes["float16"] + input_bytes["bfloat16"]

    def could_compute_in_half(self, dtypes: Collection[str]) -> bool:
        """Returns whether one of the dtypes is float32 by the user's choice of inputs."""
        return "float32" in dtypes and self.has_mostly_single_inputs

    @property
    def mergeable_all_reduces(self) -> int:
        """The all-reduces that could be merged: the most of one IPU in one step of the program."""
        kernels = (node.kernel.jaxpr.jaxpr for node in self.index.nodes_of_kind(ir.Execute))
        return max(map(_count_mergeable_all_reduces, kernels), default=0)

    @property
    def _schedule_to_change(self) -> schedules.Schedule | None:
        """The schedule of the first pipeline, if the program would fit under another one too."""
        can_change = self.fits_in_memory and self.index.can_be_rescheduled
        return self.waiting.schedule if can_change else None

    @functools.cached_property
    def faster_schedule(self) -> Alternative | None:
        """The schedule that makes the program faster, if the model finds one that fits."""
        schedule = self._schedule_to_change
        return schedule and find_faster_schedule(self, schedule)

    @functools.cached_property
    def better_cut(self) -> BetterCut | None:
        """The cut that makes a pipeline of this schedule fastest, if that gains time and fits."""
        if self.source is None or not self.fits_in_memory:
            return None
        return find_better_cut(self.case, self.profile)

    @property
    def plan_call(self) -> str:
        """The call that plans the cut where `better_cut` cannot; "" where it can."""
        pipeline = self.profile.pipeline
        if pipeline is None or not self.fits_in_memory:
            return ""
        return describe_plan_call(self.case, pipeline.micro_batches)

    def model_more_micro_batches(self, times: int) -> Alternative | None:
        """Models more micro-batches of the same size; None unless that is faster and fits."""
        schedule = self._schedule_to_change
        return schedule and model_schedule_with_more_micro_batches(self, schedule, times)

    @property
    def copied_dtypes(self) -> set[str]:
        """The dtypes of the values copied from IPU to IPU."""
        copies = (
            node
            for node in self.index.nodes_of_kind(ir.Copy)
            if HOST not in (node.source, node.target)
        )
        return self.index.dtypes_of_values(value for node in copies for value in node.values)

    @property
    def queued_dtypes(self) -> set[str]:
        """The dtypes of the values that pass through queues."""
        infed_values = [
            value for node in self.index.nodes_of_kind(ir.StreamIn) for value in node.writes
        ]
        outfed_values = [
            value for node in self.index.nodes_of_kind(ir.StreamOut) for value in node.reads
        ]
        return self.index.dtypes_of_values(infed_values + outfed_values)

    @property
    def shards_storage(self) -> bool:
        """Returns whether each replica stores only its part of some values."""
        return any(node.storage.sharded for node in self.index.nodes_of_kind(ir.Load, ir.Store))

    @property
    def has_half_partials(self) -> bool:
        """Returns whether an option asks for products with partial sums in half precision."""
        plans = self.options.plans
        if "float16" in (plans.matmul_partials, plans.convolution_partials):
            return True
        task_options = (
            dict(pairs)
            for task in self.index.nodes_of_kind(ir.Task)
            for _, pairs in task.spec.options
        )
        return any(
            plan_options.get("partialsType") in ("half", "float16") for plan_options in task_options
        )


def _count_mergeable_all_reduces(body: jaxpr.Jaxpr) -> int:
    """Counts all-reduces of a body and its calls; those in inner loops cannot be merged."""
    own_all_reduces = sum(eqn.primitive.name in _ALL_REDUCES for eqn in body.eqns)
    calls = (call for eqn in body.eqns if (call := jaxpr.body_of_call(eqn)) is not None)
    return own_all_reduces + sum(_count_mergeable_all_reduces(call.jaxpr) for call in calls)
