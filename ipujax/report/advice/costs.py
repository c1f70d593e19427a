"""Where the time of a call goes, and what would help: rules over what the machine model found.

Each rule is about one cause, adds up the cycles that it takes from all IPUs, and names a remedy
that is not in force yet, with the number that comes of it where there is a formula.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterator
from typing import TypeAlias

from ipujax.report.advice import remedies
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Cost
from ipujax.report.advice.tally import Total
from ipujax.report.words import counted, ranges

_MOST = 3
_LEAST_SHARE = 0.005  # of the IPU-cycles; less is not worth a line
_STAGES, _REPLICAS, _COPIES = "pipeline transfers", "between replicas", "copy"
_TITLES = {
    _STAGES: "copies between stages",
    _REPLICAS: "sums and gathers of replicas",
    _COPIES: "copies between IPUs",
}
_Found: TypeAlias = tuple[Cost, Callable[[], str]]
"""A cost whose remedy nobody has looked for yet: some need another model."""


def costs(facts: Facts) -> tuple[Cost, ...]:
    """The biggest costs, the largest first."""
    rules = (
        *(_bubble, _sharing, _imbalance, _unused, _elsewhere, _exchange, _sync, _between_ipus),
        *(_host, _remote, _compute),
    )
    least = max(_LEAST_SHARE * facts.whole, 1)
    worth = [found for rule in rules for found in rule(facts) if found[0].cycles >= least]
    most = sorted(worth, key=lambda found: -found[0].cycles)[:_MOST]
    return tuple(
        dc.replace(cost, share=cost.cycles / facts.whole, remedy=remedy()) for cost, remedy in most
    )


def _cost(
    title: str, cycles: int, detail: str, steps: Total | None = None, ipu: int | None = None
) -> Cost:
    """One with its share to come; `steps` are those that it is about."""
    cost = Cost(title=title, share=0.0, cycles=cycles, detail=detail, remedy="", ipu=ipu)
    return dc.replace(cost, name=steps.name, origin=steps.origin) if steps else cost


def _bubble(facts: Facts) -> Iterator[_Found]:
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
    cost = _cost("the pipeline's bubble", waiting.bubble, detail)
    yield cost, lambda: remedies.about_bubble(facts)


def _sharing(facts: Facts) -> Iterator[_Found]:
    """In a tick, some IPUs go forward and others backward, which takes longer."""
    if facts.waiting.schedule is None:
        return
    cost = _cost(
        "forward and backward share a tick",
        facts.waiting.sharing,
        "a tick is as long as its slowest task: IPUs that go forward in it wait for those "
        "that go backward, even where all stages are equal",
    )
    yield cost, lambda: remedies.about_sharing(facts)


def _imbalance(facts: Facts) -> Iterator[_Found]:
    """Ticks are as long as their slowest task."""
    work, schedule = facts.waiting.work, facts.waiting.schedule
    if len(work) < 2 or schedule is None:
        return
    slowest = max(work, key=lambda ipu: work[ipu])
    mean = sum(work.values()) / len(work)
    detail = (
        f"{remedies.stages_of(schedule, slowest)} {work[slowest]:,} cycles a micro-batch, queues "
        f"not counted, {remedies.times(work[slowest] / max(mean, 1))} the mean, and every tick "
        "waits for its slowest"
    )
    title, cycles = "stages of unequal length", facts.waiting.imbalance
    shared = any(len(group) > 1 for group in schedule.ipus)
    cost = _cost(title, cycles, detail, ipu=None if shared else slowest)
    yield cost, lambda: remedies.about_imbalance(work, schedule)


def _elsewhere(facts: Facts) -> Iterator[_Found]:
    cycles = facts.waiting.elsewhere - facts.exposed_io
    if facts.profile.num_ipus < 2 or cycles <= 0:
        return
    pipelined = facts.waiting.schedule is not None
    where = "outside of the pipeline's tasks, " if pipelined else ""
    detail = f"{where}IPUs wait while others work"
    cost = _cost("waiting for other IPUs", cycles, detail)
    yield cost, lambda: remedies.about_waiting(facts)


def _unused(facts: Facts) -> Iterator[_Found]:
    ipus, cycles = facts.waiting.unused_ipus, facts.waiting.unused
    if not ipus:
        return
    one = len(ipus) == 1
    named = f"IPU {ipus[0]} has" if one else f"IPUs {ranges(ipus)} have"
    detail = f"{named} no work in the whole call"
    ipu = ipus[0] if one else None
    cost = _cost("IPUs without work", cycles, detail, ipu=ipu)
    yield cost, lambda: remedies.about_unused(facts, len(ipus))


def _exchange(facts: Facts) -> Iterator[_Found]:
    for own in facts.total("exchange"):
        detail = (
            f"{counted(own.steps, 'exchange')} of {own.average:,.0f} cycles on average; "
            f"{own.share:.0%} for {own.name}"
        )
        remedy = functools.partial(remedies.about_exchange, facts, own)
        yield (
            _cost("exchange among tiles", own.cycles, detail, own),
            remedy,
        )


def _sync(facts: Facts) -> Iterator[_Found]:
    for own in facts.total("sync"):
        work = sum(each.cycles for each in facts.of_kind("compute")) / max(own.steps, 1)
        detail = (
            f"{counted(own.steps, 'sync')} of {own.average:,.0f} cycles on average, with "
            f"{work:,.0f} of compute between two of them"
        )
        cost = _cost("sync", own.cycles, detail)
        yield cost, lambda: remedies.about_sync(facts)


def _between_ipus(facts: Facts) -> Iterator[_Found]:
    groups: dict[str, list[Total]] = {}
    for own in facts.of_kind("inter_ipu"):
        groups.setdefault(_route(own.name), []).append(own)
    for route, entries in groups.items():
        own = Total.of(entries)
        detail = f"{counted(own.steps, 'transfer')}, {own.share:.0%} of their time for {own.name}"
        about = remedies.about_replicas if route == _REPLICAS else remedies.about_copies
        cost = _cost(_TITLES[route], own.cycles, detail, own)
        yield cost, functools.partial(about, facts)


def _route(name: str) -> str:
    """What kind of transfer a step between IPUs belongs to."""
    if name == _STAGES:
        return _STAGES
    return _COPIES if name.startswith("copy ") else _REPLICAS


def _host(facts: Facts) -> Iterator[_Found]:
    overlaps, waits = facts.options.overlaps_io, facts.waiting.host
    for own in facts.total("host"):
        cycles = facts.exposed_io if overlaps else own.cycles + waits
        beside = ", beside compute where that takes as long" if overlaps else ""
        others = (
            f"; in ticks of the pipeline other IPUs wait {waits:,} cycles for it" if waits else ""
        )
        detail = (
            f"queues and copies from and to the host take {own.cycles:,} cycles of all IPUs, "
            f"{own.share:.0%} of them {own.name}{beside}{others}"
        )
        remedy = functools.partial(remedies.about_host, facts, cycles)
        yield _cost("host I/O", cycles, detail, own), remedy


def _remote(facts: Facts) -> Iterator[_Found]:
    for own in facts.total("remote"):
        detail = f"{own.steps:,} loads and stores of what is offloaded"
        cost = _cost("streaming memory", own.cycles, detail, own._replace(origin=""))
        yield cost, lambda: remedies.about_remote(facts)


def _compute(facts: Facts) -> Iterator[_Found]:
    for own in facts.of_kind("compute")[:_MOST]:
        operation = facts.operation(own.name, own.origin)
        parts: list[str] = []
        if operation is not None:
            parts.append(f"most of it {operation.name}")
            if own.name in remedies.PRODUCTS and operation.flop_utilisation is not None:
                parts.append(f"at {operation.flop_utilisation:.1%} of the IPU's peak FLOP/s")
            if operation.source == "default":
                parts.append("by a default formula")
        detail = ", ".join(parts) or counted(own.steps, "step")
        remedy = functools.partial(remedies.about_compute, facts, own.name, own.origin, operation)
        yield (
            _cost(f"compute of {own.name}", own.cycles, detail, own),
            remedy,
        )
