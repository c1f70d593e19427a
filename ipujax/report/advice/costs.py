"""Finds the largest costs in time of a call, and what would reduce each.

Each rule is about one cause, adds up the cycles that it takes from all IPUs, and names a remedy
that is not in force yet, with a prediction where there is a formula for it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ipujax.ground import count_with_noun, format_ranges
from ipujax.report.advice import remedies
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Cost
from ipujax.report.advice.tally import Total

_MOST = 3
_LEAST_SHARE = 0.005  # of the IPU-cycles; less is not worth a line
_REPLICAS = "sums and gathers of replicas"


class _Cause(NamedTuple):
    """A cost whose remedy is not computed yet, as some remedies need another model."""

    title: str
    cycles: int
    detail: str
    remedy: Callable[[Facts], str]
    steps: Total | None = None
    ipu: int | None = None

    def to_cost(self, facts: Facts) -> Cost:
        """Returns the cost with its share of the call and its remedy."""
        return Cost(
            title=self.title,
            share=self.cycles / facts.whole,
            cycles=self.cycles,
            detail=self.detail,
            remedy=self.remedy(facts),
            origin=self.steps.origin if self.steps else "",
            ipu=self.ipu,
            name=self.steps.name if self.steps else "",
        )


def rank_costs(facts: Facts) -> tuple[Cost, ...]:
    """Returns the biggest costs, the largest first."""
    rules = (
        *(
            _find_bubble_cost,
            _find_mixed_direction_cost,
            _find_imbalance_cost,
            _find_unused_ipu_cost,
            _find_ipu_waiting_cost,
            _find_exchange_costs,
            _find_sync_costs,
            _find_inter_ipu_costs,
        ),
        *(_find_host_io_costs, _find_remote_memory_costs, _find_compute_costs),
    )
    least_cycles = max(_LEAST_SHARE * facts.whole, 1)
    causes = [cause for rule in rules for cause in rule(facts) if cause.cycles >= least_cycles]
    largest_causes = sorted(causes, key=lambda cause: -cause.cycles)[:_MOST]
    return tuple(cause.to_cost(facts) for cause in largest_causes)


def _find_bubble_cost(facts: Facts) -> Iterator[_Cause]:
    pipeline, waiting = facts.profile.pipeline, facts.waiting
    if pipeline is None or waiting.schedule is None:
        return
    ipus = len(waiting.work)
    tasks_per_tick = round(
        waiting.schedule.num_tasks / (1 - pipeline.bubble_fraction) / ipus / pipeline.ticks
    )
    lacking = f"fewer than {tasks_per_tick} tasks" if tasks_per_tick > 1 else "no task"
    detail = f"IPUs wait in ticks of the pipeline in which they have {lacking}"
    yield _Cause("the pipeline's bubble", waiting.bubble, detail, remedies.remedy_for_bubble)


def _find_mixed_direction_cost(facts: Facts) -> Iterator[_Cause]:
    """Finds the cost of ticks in which some IPUs go forward while others go backward."""
    if facts.waiting.schedule is None:
        return
    detail = (
        "a tick is as long as its slowest task: IPUs that go forward in it wait for those "
        "that go backward, even where all stages are equal"
    )
    title = "forward and backward share a tick"
    yield _Cause(title, facts.waiting.sharing, detail, remedies.remedy_for_mixed_directions)


def _find_imbalance_cost(facts: Facts) -> Iterator[_Cause]:
    """Finds the cost of unequal stages, as a tick is as long as its slowest task."""
    work, schedule = facts.waiting.work, facts.waiting.schedule
    if len(work) < 2 or schedule is None:
        return
    slowest = max(work, key=lambda ipu: work[ipu])
    mean = sum(work.values()) / len(work)
    stages = remedies.stages_on_ipu(schedule, slowest)
    plural_stages = f"the {len(stages)} stages of IPU {slowest} take"
    slowest_stages = plural_stages if len(stages) > 1 else f"stage {stages[0]} takes"
    detail = (
        f"{slowest_stages} {work[slowest]:,} cycles a micro-batch, queues not counted, "
        f"{remedies.format_ratio_to_mean(work[slowest] / max(mean, 1))} the mean, and every tick "
        "waits for its slowest"
    )
    remedy = functools.partial(remedies.remedy_for_imbalance, schedule=schedule)
    ipu = None if any(len(group) > 1 for group in schedule.ipus) else slowest
    yield _Cause("stages of unequal length", facts.waiting.imbalance, detail, remedy, ipu=ipu)


def _find_ipu_waiting_cost(facts: Facts) -> Iterator[_Cause]:
    cycles = facts.waiting.elsewhere - facts.cycles_waiting_for_io_tiles
    if facts.profile.num_ipus < 2 or cycles <= 0:
        return
    is_pipelined = facts.waiting.schedule is not None
    location = "outside of the pipeline's tasks, " if is_pipelined else ""
    detail = f"{location}IPUs wait while others work"
    yield _Cause("waiting for other IPUs", cycles, detail, remedies.remedy_for_waiting_ipus)


def _find_unused_ipu_cost(facts: Facts) -> Iterator[_Cause]:
    cycles, ipus = facts.waiting.unused, facts.waiting.unused_ipus
    if not ipus:
        return
    single_ipu = ipus[0] if len(ipus) == 1 else None
    subject = f"IPUs {format_ranges(ipus)} have" if single_ipu is None else f"IPU {single_ipu} has"
    detail = f"{subject} no work in the whole call"
    yield _Cause(
        "IPUs without work", cycles, detail, remedies.remedy_for_unused_ipus, ipu=single_ipu
    )


def _find_exchange_costs(facts: Facts) -> Iterator[_Cause]:
    for total in facts.total_of_kind("exchange"):
        detail = (
            f"{count_with_noun(total.steps, 'exchange')} of {total.average:,.0f} cycles on "
            f"average; {total.largest_share:.0%} for {_operation_label(facts, total)}"
        )
        remedy = functools.partial(remedies.remedy_for_exchange, steps=total)
        yield _Cause("exchange among tiles", total.cycles, detail, remedy, total)


def _find_sync_costs(facts: Facts) -> Iterator[_Cause]:
    for total in facts.total_of_kind("sync"):
        compute_per_sync = sum(compute.cycles for compute in facts.totals_of_kind("compute")) / max(
            total.steps, 1
        )
        detail = (
            f"{count_with_noun(total.steps, 'sync')} of {total.average:,.0f} cycles on average, "
            f"with {compute_per_sync:,.0f} of compute between two of them"
        )
        yield _Cause("sync", total.cycles, detail, remedies.remedy_for_sync)


def _find_inter_ipu_costs(facts: Facts) -> Iterator[_Cause]:
    routes: dict[str, list[Total]] = {}
    for total in facts.totals_of_kind("inter_ipu"):
        routes.setdefault(_classify_inter_ipu_transfer(total.name), []).append(total)
    for title, totals in routes.items():
        total = Total.sum_totals(totals)
        largest_part = (
            f", {total.largest_share:.0%} of their time for {_operation_label(facts, total)}"
        )
        detail = (
            f"{count_with_noun(total.steps, 'transfer')}{largest_part if len(totals) > 1 else ''}"
        )
        remedy = (
            remedies.remedy_for_replica_collectives
            if title == _REPLICAS
            else remedies.remedy_for_copies
        )
        yield _Cause(title, total.cycles, detail, remedy, total)


def _classify_inter_ipu_transfer(name: str) -> str:
    """Returns the kind of transfer that a step between IPUs belongs to."""
    if name == "pipeline transfers":
        return "copies between stages"
    is_copy = name.startswith("copy ") or name == "ipu_superstep"
    return "copies between IPUs" if is_copy else _REPLICAS


def _find_host_io_costs(facts: Facts) -> Iterator[_Cause]:
    overlaps_io, waiting_cycles = facts.options.overlaps_io, facts.waiting.host
    for total in facts.total_of_kind("host"):
        cycles = facts.cycles_waiting_for_io_tiles if overlaps_io else total.cycles + waiting_cycles
        overlap_text = ", beside compute where that takes as long" if overlaps_io else ""
        waiting_text = (
            f"; in ticks of the pipeline other IPUs wait {waiting_cycles:,} cycles for it"
        )
        detail = (
            f"queues and copies from and to the host take {total.cycles:,} cycles of all IPUs, "
            f"{total.largest_share:.0%} of them {_operation_label(facts, total)}"
            f"{overlap_text}{waiting_text if waiting_cycles else ''}"
        )
        remedy = functools.partial(remedies.remedy_for_host_io, cycles=cycles)
        yield _Cause("host I/O", cycles, detail, remedy, total)


def _find_remote_memory_costs(facts: Facts) -> Iterator[_Cause]:
    for total in facts.total_of_kind("remote"):
        detail = f"{total.steps:,} loads and stores of what is offloaded"
        total_without_line = total._replace(origin="")
        yield _Cause(
            "streaming memory",
            total.cycles,
            detail,
            remedies.remedy_for_remote_memory,
            total_without_line,
        )


def _find_compute_costs(facts: Facts) -> Iterator[_Cause]:
    for total in facts.totals_of_kind("compute")[:_MOST]:
        details: list[str] = []
        for operation in facts.operations_of_steps(total)[:1]:
            details.append(f"most of it {operation.label} ({operation.name})")
            if total.name in remedies.PRODUCTS and operation.flop_utilisation is not None:
                details.append(f"at {operation.flop_utilisation:.1%} of the IPU's peak FLOP/s")
            if operation.source == "default":
                details.append("by the general formula of ten cycles an element")
        detail = ", ".join(details) or count_with_noun(total.steps, "step")
        remedy = functools.partial(remedies.remedy_for_compute, steps=total)
        yield _Cause(
            f"compute of {_operation_label(facts, total)}",
            total.cycles,
            detail,
            remedy,
            total,
        )


def _operation_label(facts: Facts, total: Total) -> str:
    """Returns the label of the steps of one name and line; without extents if these differ."""
    labels = list(dict.fromkeys(operation.label for operation in facts.operations_of_steps(total)))
    if len(labels) > 1:
        return re.split(r" \d", labels[0])[0]
    return labels[0] if labels else total.name
