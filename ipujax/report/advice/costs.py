"""Where the time of a call goes, and what would help: rules over what the machine model found.

Each rule is about one cause, adds up the cycles that it takes from all IPUs, and names a remedy
that is not in force yet, with the number that comes of it where there is a formula.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Iterator

from ipujax.report.advice import remedies
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Cost
from ipujax.report.advice.tally import Amount, Kind
from ipujax.report.words import counted, ranges

_MOST = 3
_LEAST_SHARE = 0.005  # of the IPU-cycles; less is not worth a line
_STAGES, _REPLICAS, _COPIES = "pipeline transfers", "between replicas", "copy"
_TITLES = {
    _STAGES: "copies between stages",
    _REPLICAS: "sums and gathers of replicas",
    _COPIES: "copies between IPUs",
}


def costs(facts: Facts) -> tuple[Cost, ...]:
    """The biggest costs, the largest first."""
    rules = (
        _bubble(facts),
        _sharing(facts),
        _imbalance(facts),
        _unused(facts),
        _elsewhere(facts),
        _exchange(facts),
        _sync(facts),
        _between_ipus(facts),
        _host(facts),
        _remote(facts),
        _compute(facts),
    )
    least = _LEAST_SHARE * facts.whole
    worth = [found for rule in rules for found in rule if found.cycles >= max(least, 1)]
    return tuple(found.cost(facts) for found in sorted(worth, key=lambda f: -f.cycles)[:_MOST])


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A cost whose remedy nobody has looked for yet: some need another model."""

    title: str
    cycles: int
    detail: str
    remedy: Callable[[], str]
    origin: str = ""
    ipu: int | None = None
    name: str = ""

    def cost(self, facts: Facts) -> Cost:
        return Cost(
            title=self.title,
            share=self.cycles / facts.whole,
            cycles=self.cycles,
            detail=self.detail,
            remedy=self.remedy(),
            origin=self.origin,
            ipu=self.ipu,
            name=self.name,
        )


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
    yield _Found(
        title="the pipeline's bubble",
        cycles=waiting.bubble,
        detail=detail,
        remedy=lambda: remedies.about_bubble(facts),
    )


def _sharing(facts: Facts) -> Iterator[_Found]:
    """In a tick, some IPUs go forward and others backward, which takes longer."""
    if facts.waiting.schedule is None:
        return
    yield _Found(
        title="forward and backward share a tick",
        cycles=facts.waiting.sharing,
        detail="a tick is as long as its slowest task: IPUs that go forward in it wait for those "
        "that go backward, even where all stages are equal",
        remedy=lambda: remedies.about_sharing(facts),
    )


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
    shared = any(len(group) > 1 for group in schedule.ipus)
    yield _Found(
        title="stages of unequal length",
        cycles=facts.waiting.imbalance,
        detail=detail,
        remedy=lambda: remedies.about_imbalance(work, schedule),
        ipu=None if shared else slowest,
    )


def _elsewhere(facts: Facts) -> Iterator[_Found]:
    cycles = facts.waiting.elsewhere - facts.exposed_io
    if facts.profile.num_ipus < 2 or cycles <= 0:
        return
    pipelined = facts.waiting.schedule is not None
    where = "outside of the pipeline's tasks, " if pipelined else ""
    yield _Found(
        title="waiting for other IPUs",
        cycles=cycles,
        detail=f"{where}IPUs wait while others work",
        remedy=lambda: remedies.about_waiting(facts),
    )


def _unused(facts: Facts) -> Iterator[_Found]:
    ipus = facts.waiting.unused_ipus
    if not ipus:
        return
    one = len(ipus) == 1
    named = f"IPU {ipus[0]} has" if one else f"IPUs {ranges(ipus)} have"
    yield _Found(
        title="IPUs without work",
        cycles=facts.waiting.unused,
        detail=f"{named} no work in the whole call",
        remedy=lambda: remedies.about_unused(facts, len(ipus)),
        ipu=ipus[0] if one else None,
    )


def _exchange(facts: Facts) -> Iterator[_Found]:
    own = facts.of_kind("exchange")
    if not own:
        return
    (_, name, origin), most = own[0]
    whole = sum(amount.cycles for _, amount in own)
    steps = sum(amount.steps for _, amount in own)
    detail = (
        f"{counted(steps, 'exchange')} of {whole / max(steps, 1):,.0f} cycles on average; "
        f"{most.cycles / max(whole, 1):.0%} for {name}"
    )
    yield _Found(
        title="exchange among tiles",
        cycles=whole,
        detail=detail,
        remedy=lambda: remedies.about_exchange(facts, name, origin, whole / max(steps, 1)),
        origin=origin,
        name=name,
    )


def _sync(facts: Facts) -> Iterator[_Found]:
    own = facts.of_kind("sync")
    if not own:
        return
    whole = sum(amount.cycles for _, amount in own)
    steps = sum(amount.steps for _, amount in own)
    work = facts.cycles_of("compute") / max(steps, 1)
    detail = (
        f"{counted(steps, 'sync')} of {whole / max(steps, 1):,.0f} cycles on average, with "
        f"{work:,.0f} of compute between two of them"
    )
    yield _Found(
        title="sync", cycles=whole, detail=detail, remedy=lambda: remedies.about_sync(facts)
    )


def _between_ipus(facts: Facts) -> Iterator[_Found]:
    own = facts.of_kind("inter_ipu")
    if not own:
        return
    groups: dict[str, list[tuple[Kind, Amount]]] = {}
    for kind, amount in own:
        groups.setdefault(_route(kind.name), []).append((kind, amount))
    for route, entries in groups.items():
        cycles = sum(amount.cycles for _, amount in entries)
        steps = sum(amount.steps for _, amount in entries)
        (_, name, origin), most = entries[0]
        share = most.cycles / max(cycles, 1)
        detail = f"{counted(steps, 'transfer')}, {share:.0%} of their time for {name}"
        about = remedies.about_replicas if route == _REPLICAS else remedies.about_copies
        yield _Found(
            title=_TITLES[route],
            cycles=cycles,
            detail=detail,
            remedy=functools.partial(about, facts),
            origin=origin,
            name=name,
        )


def _route(name: str) -> str:
    """What kind of transfer a step between IPUs belongs to."""
    if name == _STAGES:
        return _STAGES
    return _COPIES if name.startswith("copy ") else _REPLICAS


def _host(facts: Facts) -> Iterator[_Found]:
    own = facts.of_kind("host")
    if not own:
        return
    (_, name, origin), most = own[0]
    busy, waits = sum(amount.cycles for _, amount in own), facts.waiting.host
    cycles = facts.exposed_io if facts.options.overlaps_io else busy + waits
    beside = ", beside compute where that takes as long" if facts.options.overlaps_io else ""
    others = f"; in ticks of the pipeline other IPUs wait {waits:,} cycles for it" if waits else ""
    detail = (
        f"queues and copies from and to the host take {busy:,} cycles of all IPUs, "
        f"{most.cycles / max(busy, 1):.0%} of them {name}{beside}{others}"
    )
    yield _Found(
        title="host I/O",
        cycles=cycles,
        detail=detail,
        remedy=lambda: remedies.about_host(facts, cycles),
        origin=origin,
        name=name,
    )


def _remote(facts: Facts) -> Iterator[_Found]:
    own = facts.of_kind("remote")
    if not own:
        return
    cycles = sum(amount.cycles for _, amount in own)
    steps = sum(amount.steps for _, amount in own)
    yield _Found(
        title="streaming memory",
        cycles=cycles,
        detail=f"{steps:,} loads and stores of what is offloaded",
        remedy=lambda: remedies.about_remote(facts),
        name=own[0][0].name,
    )


def _compute(facts: Facts) -> Iterator[_Found]:
    for (_, name, origin), amount in facts.of_kind("compute")[:_MOST]:
        operation = facts.operation(name, origin)
        parts: list[str] = []
        if operation is not None:
            parts.append(f"most of it {operation.name}")
            if name in remedies.PRODUCTS and operation.flop_utilisation is not None:
                parts.append(f"at {operation.flop_utilisation:.1%} of the IPU's peak FLOP/s")
            if operation.source == "default":
                parts.append("by a default formula")
        detail = ", ".join(parts) or counted(amount.steps, "step")
        yield _Found(
            title=f"compute of {name}",
            cycles=amount.cycles,
            detail=detail,
            remedy=functools.partial(remedies.about_compute, facts, name, origin, operation),
            origin=origin,
            name=name,
        )
