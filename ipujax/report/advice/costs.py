"""Where the time of a call goes, and what would help: rules over what the machine model found.

Each rule is about one cause, adds up the cycles that it takes from all IPUs, and names a remedy
that is not in force yet, with the number that comes of it where there is a formula.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ipujax.report.advice import remedies
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Cost
from ipujax.report.advice.tally import Total
from ipujax.report.words import counted, ranges

_MOST = 3
_LEAST_SHARE = 0.005  # of the IPU-cycles; less is not worth a line
_REPLICAS = "sums and gathers of replicas"


class _Cause(NamedTuple):
    """A cost whose remedy nobody has looked for yet: some need another model."""

    title: str
    cycles: int
    detail: str
    remedy: Callable[[Facts], str]
    steps: Total | None = None
    ipu: int | None = None

    def cost(self, facts: Facts) -> Cost:
        """With its share and what would help."""
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


def costs(facts: Facts) -> tuple[Cost, ...]:
    """The biggest costs, the largest first."""
    rules = (
        *(_bubble, _sharing, _imbalance, _unused, _elsewhere, _exchange, _sync, _between_ipus),
        *(_host, _remote, _compute),
    )
    least = max(_LEAST_SHARE * facts.whole, 1)
    causes = [cause for rule in rules for cause in rule(facts) if cause.cycles >= least]
    most = sorted(causes, key=lambda cause: -cause.cycles)[:_MOST]
    return tuple(cause.cost(facts) for cause in most)


def _bubble(facts: Facts) -> Iterator[_Cause]:
    lines, waiting = facts.profile.pipeline, facts.waiting
    if lines is None or waiting.schedule is None:
        return
    ipus = len(waiting.work)
    tasks = round(waiting.schedule.num_tasks / (1 - lines.bubble_fraction) / ipus / lines.ticks)
    room = f" with room for {tasks} tasks each" if tasks > 1 else ""
    detail = (
        f"an IPU has no task in {lines.bubble_fraction:.1%} of the grid of {ipus} IPUs and "
        f"{lines.ticks:,} ticks{room}; by their length that is "
        f"{waiting.bubble / max(waiting.pipeline, 1):.1%} of the pipeline's time, and the pipeline "
        f"takes {waiting.pipeline / max(facts.whole, 1):.1%} of the call"
    )
    yield _Cause("the pipeline's bubble", waiting.bubble, detail, remedies.about_bubble)


def _sharing(facts: Facts) -> Iterator[_Cause]:
    """In a tick, some IPUs go forward and others backward, which takes longer."""
    if facts.waiting.schedule is None:
        return
    detail = (
        "a tick is as long as its slowest task: IPUs that go forward in it wait for those "
        "that go backward, even where all stages are equal"
    )
    title = "forward and backward share a tick"
    yield _Cause(title, facts.waiting.sharing, detail, remedies.about_sharing)


def _imbalance(facts: Facts) -> Iterator[_Cause]:
    """Ticks are as long as their slowest task."""
    work, schedule = facts.waiting.work, facts.waiting.schedule
    if len(work) < 2 or schedule is None:
        return
    slowest = max(work, key=lambda ipu: work[ipu])
    mean = sum(work.values()) / len(work)
    stages = remedies.stages_of(schedule, slowest)
    several = f"the {len(stages)} stages of IPU {slowest} take"
    who = several if len(stages) > 1 else f"stage {stages[0]} takes"
    detail = (
        f"{who} {work[slowest]:,} cycles a micro-batch, queues not counted, "
        f"{remedies.times(work[slowest] / max(mean, 1))} the mean, and every tick waits for its "
        "slowest"
    )
    remedy = functools.partial(remedies.about_imbalance, schedule=schedule)
    ipu = None if any(len(group) > 1 for group in schedule.ipus) else slowest
    yield _Cause("stages of unequal length", facts.waiting.imbalance, detail, remedy, ipu=ipu)


def _elsewhere(facts: Facts) -> Iterator[_Cause]:
    cycles = facts.waiting.elsewhere - facts.exposed_io
    if facts.profile.num_ipus < 2 or cycles <= 0:
        return
    pipelined = facts.waiting.schedule is not None
    where = "outside of the pipeline's tasks, " if pipelined else ""
    detail = f"{where}IPUs wait while others work"
    yield _Cause("waiting for other IPUs", cycles, detail, remedies.about_waiting)


def _unused(facts: Facts) -> Iterator[_Cause]:
    cycles, ipus = facts.waiting.unused, facts.waiting.unused_ipus
    if not ipus:
        return
    alone = ipus[0] if len(ipus) == 1 else None
    named = f"IPUs {ranges(ipus)} have" if alone is None else f"IPU {alone} has"
    detail = f"{named} no work in the whole call"
    yield _Cause("IPUs without work", cycles, detail, remedies.about_unused, ipu=alone)


def _exchange(facts: Facts) -> Iterator[_Cause]:
    for total in facts.total("exchange"):
        detail = (
            f"{counted(total.steps, 'exchange')} of {total.average:,.0f} cycles on average; "
            f"{total.share:.0%} for {_called(facts, total)}"
        )
        remedy = functools.partial(remedies.about_exchange, steps=total)
        yield _Cause("exchange among tiles", total.cycles, detail, remedy, total)


def _sync(facts: Facts) -> Iterator[_Cause]:
    for total in facts.total("sync"):
        work = sum(each.cycles for each in facts.of_kind("compute")) / max(total.steps, 1)
        detail = (
            f"{counted(total.steps, 'sync')} of {total.average:,.0f} cycles on average, with "
            f"{work:,.0f} of compute between two of them"
        )
        yield _Cause("sync", total.cycles, detail, remedies.about_sync)


def _between_ipus(facts: Facts) -> Iterator[_Cause]:
    routes: dict[str, list[Total]] = {}
    for total in facts.of_kind("inter_ipu"):
        routes.setdefault(_route(total.name), []).append(total)
    for title, parts in routes.items():
        total = Total.of(parts)
        most = f", {total.share:.0%} of their time for {_called(facts, total)}"
        detail = f"{counted(total.steps, 'transfer')}{most if len(parts) > 1 else ''}"
        remedy = remedies.about_replicas if title == _REPLICAS else remedies.about_copies
        yield _Cause(title, total.cycles, detail, remedy, total)


def _route(name: str) -> str:
    """What kind of transfer a step between IPUs belongs to."""
    if name == "pipeline transfers":
        return "copies between stages"
    return "copies between IPUs" if name.startswith("copy ") else _REPLICAS


def _host(facts: Facts) -> Iterator[_Cause]:
    overlaps, waits = facts.options.overlaps_io, facts.waiting.host
    for total in facts.total("host"):
        cycles = facts.exposed_io if overlaps else total.cycles + waits
        beside = ", beside compute where that takes as long" if overlaps else ""
        others = f"; in ticks of the pipeline other IPUs wait {waits:,} cycles for it"
        detail = (
            f"queues and copies from and to the host take {total.cycles:,} cycles of all IPUs, "
            f"{total.share:.0%} of them {_called(facts, total)}{beside}{others if waits else ''}"
        )
        remedy = functools.partial(remedies.about_host, cycles=cycles)
        yield _Cause("host I/O", cycles, detail, remedy, total)


def _remote(facts: Facts) -> Iterator[_Cause]:
    for total in facts.total("remote"):
        detail = f"{total.steps:,} loads and stores of what is offloaded"
        nowhere = total._replace(origin="")
        yield _Cause("streaming memory", total.cycles, detail, remedies.about_remote, nowhere)


def _compute(facts: Facts) -> Iterator[_Cause]:
    for total in facts.of_kind("compute")[:_MOST]:
        parts: list[str] = []
        for operation in facts.operations(total)[:1]:
            parts.append(f"most of it {operation.label} ({operation.name})")
            if total.name in remedies.PRODUCTS and operation.flop_utilisation is not None:
                parts.append(f"at {operation.flop_utilisation:.1%} of the IPU's peak FLOP/s")
            if operation.source == "default":
                parts.append("by the general formula of ten cycles an element")
        detail = ", ".join(parts) or counted(total.steps, "step")
        remedy = functools.partial(remedies.about_compute, steps=total)
        yield _Cause(f"compute of {_called(facts, total)}", total.cycles, detail, remedy, total)


def _called(facts: Facts, total: Total) -> str:
    """What people call the steps of one name and line; without extents if these differ."""
    labels = list(dict.fromkeys(operation.label for operation in facts.operations(total)))
    if len(labels) > 1:
        return re.split(r" \d", labels[0])[0]
    return labels[0] if labels else total.name
