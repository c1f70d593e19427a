"""Where the time of a call goes, and what would help: rules over what the machine model found.

Each rule is about one cause, adds up the cycles that it takes from all IPUs, and names a remedy
that is not in force yet, with the number that comes of it where there is a formula.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ipujax._report import remedies
from ipujax._report.facts import Facts
from ipujax._report.findings import Cost
from ipujax._report.tally import Amount, Kind
from ipujax._report.text import counted
from lowering import ir, machine

_MOST = 3
_LEAST_SHARE = 0.005  # of the IPU-cycles; less is not worth a line
_STAGES, _REPLICAS = "pipeline transfers", "between replicas"


def costs(
    program: ir.Program, profile: machine.Profile, options: machine.ModelOptions
) -> tuple[Cost, ...]:
    """The biggest costs, the largest first.

    Args:
      program: what was modelled.
      profile: what came of it.
      options: what it was modelled with.
    """
    facts = Facts(program, profile, options)
    rules = (
        _bubble(facts),
        _imbalance(facts),
        _elsewhere(facts),
        _exchange(facts),
        _sync(facts),
        _between_ipus(facts),
        _host(facts),
        _remote(facts),
        _compute(facts),
    )
    worth = [cost for rule in rules for cost in rule if cost.share >= _LEAST_SHARE]
    return tuple(sorted(worth, key=lambda cost: -cost.cycles)[:_MOST])


def _cost(
    facts: Facts,
    title: str,
    cycles: int,
    detail: str,
    remedy: str,
    origin: str = "",
    ipu: int | None = None,
) -> Cost:
    return Cost(
        title=title,
        share=cycles / facts.whole if facts.whole else 0.0,
        cycles=cycles,
        detail=detail,
        remedy=remedy,
        origin=origin,
        ipu=ipu,
    )


def _bubble(facts: Facts) -> Iterator[Cost]:
    lines, waiting = facts.profile.pipeline, facts.waiting
    if lines is None or waiting.schedule is None:
        return
    detail = (
        f"in {lines.bubble_fraction:.1%} of the grid of IPUs and {lines.ticks:,} ticks, an "
        "IPU has no task"
    )
    remedy = remedies.about_bubble(lines, waiting.schedule)
    yield _cost(facts, "the pipeline's bubble", waiting.bubble, detail, remedy)


def _imbalance(facts: Facts) -> Iterator[Cost]:
    """Ticks are as long as their slowest task."""
    stages = facts.waiting.stage_cycles
    schedule = facts.waiting.schedule
    if len(stages) < 2 or schedule is None:
        return
    slowest, fastest = int(np.argmax(stages)), int(np.argmin(stages))
    mean = sum(stages) / len(stages)
    detail = (
        f"stage {slowest} takes {stages[slowest]:,} cycles a micro-batch, "
        f"{stages[slowest] / max(mean, 1):.2g} x the mean, and every tick waits for its slowest"
    )
    ipus = schedule.ipus[slowest]
    yield _cost(
        facts,
        "stages of unequal length",
        facts.waiting.imbalance,
        detail,
        remedies.about_imbalance(stages, slowest, fastest),
        ipu=ipus[0] if len(ipus) == 1 else None,
    )


def _elsewhere(facts: Facts) -> Iterator[Cost]:
    cycles = facts.waiting.elsewhere - facts.exposed_io
    if facts.profile.num_ipus < 2 or cycles <= 0:
        return
    pipelined = facts.waiting.schedule is not None
    where = "outside of the pipeline's tasks, " if pipelined else ""
    detail = f"{where}IPUs wait while others work"
    yield _cost(facts, "waiting for other IPUs", cycles, detail, remedies.about_waiting(facts))


def _exchange(facts: Facts) -> Iterator[Cost]:
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
    remedy = remedies.about_exchange(facts, name, origin, whole / max(steps, 1))
    yield _cost(facts, "exchange among tiles", whole, detail, remedy, origin)


def _sync(facts: Facts) -> Iterator[Cost]:
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
    yield _cost(facts, "sync", whole, detail, remedies.about_sync(facts))


def _between_ipus(facts: Facts) -> Iterator[Cost]:
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
        if route == _REPLICAS:
            title, remedy = "sums and gathers of replicas", remedies.about_replicas(facts, steps)
        elif route == _STAGES:
            title, remedy = "copies between stages", remedies.about_copies(facts)
        else:
            title, remedy = "copies between IPUs", remedies.about_copies(facts)
        yield _cost(facts, title, cycles, detail, remedy, origin)


def _route(name: str) -> str:
    """What kind of transfer a step between IPUs belongs to."""
    if name == _STAGES:
        return _STAGES
    return "copy" if name.startswith("copy ") else _REPLICAS


def _host(facts: Facts) -> Iterator[Cost]:
    own = facts.of_kind("host")
    if not own:
        return
    (_, name, _), most = own[0]
    busy = sum(amount.cycles for _, amount in own)
    cycles = facts.exposed_io if facts.options.overlaps_io else busy
    beside = ", beside compute where that takes as long" if facts.options.overlaps_io else ""
    detail = (
        f"queues and copies from and to the host take {busy:,} cycles, "
        f"{most.cycles / max(busy, 1):.0%} of them {name}{beside}"
    )
    yield _cost(facts, "host I/O", cycles, detail, remedies.about_host(facts, cycles))


def _remote(facts: Facts) -> Iterator[Cost]:
    own = facts.of_kind("remote")
    if not own:
        return
    cycles = sum(amount.cycles for _, amount in own)
    steps = sum(amount.steps for _, amount in own)
    detail = f"{steps:,} loads and stores of what is offloaded"
    yield _cost(facts, "streaming memory", cycles, detail, remedies.about_remote(facts))


def _compute(facts: Facts) -> Iterator[Cost]:
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
        remedy = remedies.about_compute(facts, name, origin, operation)
        yield _cost(facts, f"compute of {name}", amount.cycles, detail, remedy, origin)
