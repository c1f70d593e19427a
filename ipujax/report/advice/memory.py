"""What would help a program that does not fit: what was modelled first, then what could not be.

Of what cannot be modelled without the user's own functions, such as a smaller batch, rules over the
numbers say how much it can take off the IPU with the fullest tile at most.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from ipujax.report.advice import products
from ipujax.report.advice.changes import Case, Source, changes
from ipujax.report.advice.evidence import DATA, Evidence, gather
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Advice, need_bytes
from ipujax.report.advice.trials import Trial, Trials, trials
from ipujax.report.advice.waiting import waiting
from ipujax.report.words import counted, size
from lowering import machine

_LEAST_SHARE = 0.05  # of the peak; less than that is not worth a line
_MOST_IPUS = 64
_CODE = ("vertex_code", "vertex_state", "control_code", "exchange_code")


def advice(facts: Facts, source: Source | None) -> tuple[Advice, ...]:
    """What would help: what is enough first, then the largest effect.

    Args:
      facts: what was modelled, and what came of it.
      source: what the program was lowered from; without, only the model's options are tried.
    """
    profile = facts.profile
    evidence = gather(facts)
    worst = evidence[0]
    if int(profile.memory.tile_peak_bytes.max()) <= profile.memory.limit:
        return tuple(_about_code(worst))  # only the instructions are too many
    least = _LEAST_SHARE * worst.peak_bytes
    case = Case(facts.program, source, facts.options)
    further = functools.partial(products.changes, case)
    found = trials(case, profile, changes(case, profile, worst, least), further)
    several = [trial for trial in found.done if len(trial.changes) > 1][-1:]
    alone = [trial for trial in found.done if len(trial.changes) == 1]
    if any(trial.profile.memory.fits for trial in alone):
        several = []  # of them, all but one would be for nothing
    entries = [_modelled(profile, trial) for trial in (*several, *alone)]
    entries = [entry for entry in entries if entry.about_bytes > 0]
    rules = {entry.rule for entry in entries}
    guessed = [*_about_data(worst), *_about_code(worst), *_about_ipus(facts, worst)]
    entries += [e for e in guessed if e.about_bytes >= least and e.rule not in rules]
    entries.sort(key=lambda entry: (not entry.enough, -entry.about_bytes))
    if not any(entry.enough for entry in entries):
        entries.append(Advice("not_enough", _best(profile, found), 0))
    if found.untried:
        names = "; ".join(change.short for change in found.untried)
        entries.append(Advice("untried", f"not tried, to make no more models: {names}", 0))
    return tuple(entries)


def _best(profile: machine.Profile, found: Trials) -> str:
    """How far what was modelled comes where that is not far enough."""
    what = f"nothing that was modelled ({counted(found.models, 'model')}) is enough"
    if not found.done:
        return f"{what}, or helps at all"
    best = min(found.done, key=lambda trial: sum(need_bytes(trial.profile.memory)))
    fullest = int(best.profile.memory.tile_peak_bytes.max())
    names = " + ".join(change.short for change in best.changes)
    share = f"{fullest / profile.memory.limit:.0%} of what there is"
    return (
        f"{what}; the best is {names}, which leaves {fullest:,} bytes on the fullest tile ({share})"
    )


def _modelled(profile: machine.Profile, trial: Trial) -> Advice:
    """What came of a trial."""
    before, after = profile.memory, trial.profile.memory
    ipu, _ = before.worst
    fullest = int(after.tile_peak_bytes.max())
    if trial.profile.num_ipus == profile.num_ipus:
        spared = int(before.peak_bytes[ipu] - after.peak_bytes[ipu])
    else:
        spared = int(before.peak_bytes.max() - after.peak_bytes.max())
    several = len(trial.changes) > 1
    what = " + ".join(c.short for c in trial.changes) if several else trial.changes[0].text
    lacks = [f"{size(need)} off IPU {n}" for n, need in enumerate(need_bytes(after)) if need]
    left = "fits" if after.fits else f"still needs {', '.join(lacks[:3]) or 'less code'}"
    text = (
        f"{what}: {left}, fullest tile {int(before.tile_peak_bytes.max()):,} -> {fullest:,} bytes "
        f"({fullest / after.limit:.0%} of what there is), for {_price(profile, trial.profile)}"
    )
    if several:  # what cuts the model again takes more words than there
        text += "".join(f"; {c.short}: {c.text}" for c in trial.changes if c.first)
    rule = "combination" if several else trial.changes[0].rule
    return Advice(rule, text, max(spared, 0), after.fits, fullest)


def _price(before: machine.Profile, after: machine.Profile) -> str:
    """What a change costs in time: for each micro-batch, where their number changes."""
    old, new = (0 if p.pipeline is None else p.pipeline.micro_batches for p in (before, after))
    same = old == new
    slower = after.cycles / max(before.cycles, 1) * (1 if same else old / new)
    # Two digits do not tell it from one.
    price = "about as many" if abs(slower - 1) < 0.05 else f"{slower:.2g} x the"
    return f"{price} cycles" + ("" if same else " per micro-batch")


def _about_data(evidence: Evidence) -> Iterator[Advice]:
    """What the user's own functions would have to do."""
    kept = min(evidence.kept_bytes, evidence.working_bytes)
    text = "recompute activations instead of keeping them: jax.checkpoint around each layer"
    yield Advice("checkpoint_layers", _guessed(text), kept)
    batches = "micro-batches and more of them" if evidence.pipelined else "batches"
    text = f"smaller {batches}: activations shrink with them; they use the units less"
    shrinking = min(evidence.held["fifos"] + evidence.working_bytes, evidence.room_bytes)
    yield Advice("smaller_batches", _guessed(text), shrinking)
    single = int(evidence.single_share * sum(evidence.held[name] for name in DATA))
    text = "half precision (float16) for arguments that are float32, and what is made of them"
    yield Advice("half_precision", _guessed(text), single // 2)


def _about_code(evidence: Evidence) -> Iterator[Advice]:
    text = "fewer different operations: scan over equal layers, or functional_ops.outlined_function"
    yield Advice("less_code", _guessed(text), sum(evidence.held[name] for name in _CODE))


def _guessed(text: str) -> str:
    return f"{text} (at most, not modelled)"


def _about_ipus(facts: Facts, evidence: Evidence) -> Iterator[Advice]:
    profile, memory = facts.profile, facts.profile.memory
    capacity = memory.limit * profile.target.tiles_per_ipu
    needs = need_bytes(memory)
    fullest: list[int] = memory.tile_peak_bytes.max(axis=1).tolist()
    room = [capacity - bytes_ * profile.target.tiles_per_ipu for bytes_ in fullest]
    if sum(needs) <= sum(free for free in room if free > 0):
        text = f"{_moving(facts, needs, room)} (not modelled)"
        yield Advice("move_work", text, evidence.need_bytes)
        return
    if evidence.peak_bytes <= capacity:
        return
    # Data is shared out; work space and code come with the operations of each IPU.
    data = sum(memory.by_category[name] for name in DATA)
    stays = evidence.peak_bytes - sum(evidence.held[name] for name in DATA)
    sizes = (2**i for i in range(1, _MOST_IPUS.bit_length()))
    enough = (n for n in sizes if n > profile.num_ipus and data / n + stays <= capacity)
    ipus = next(enough, None)
    if ipus is not None:
        how = "more pipeline stages" if evidence.pipelined else "ipu_shard, or a pipeline"
        text = f"split the model over about {ipus} IPUs, not modelled ({how})"
        yield Advice("more_ipus", text, evidence.peak_bytes - stays - data // ipus)
    elif evidence.held["temporaries"] > capacity:
        step = _worst_step(profile.liveness[evidence.ipu])
        text = f"smaller operands: work space of {step} fills an IPU, however many there are"
        yield Advice("smaller_operands", text, evidence.held["temporaries"])


def _moving(facts: Facts, needs: Sequence[int], room: Sequence[int]) -> str:
    """From where to where: to the IPUs that have least to do, as long as there is room."""
    waits = waiting(facts.index, facts.profile)
    free = (ipu for ipu, bytes_ in enumerate(room) if bytes_ > 0)
    taking: list[int] = []
    for ipu in sorted(free, key=lambda ipu: (waits.work.get(ipu, 0), -room[ipu])):
        if sum(room[taker] for taker in taking) < sum(needs):
            taking.append(ipu)
    sources = [f"IPU {ipu} ({size(need)} too many)" for ipu, need in enumerate(needs) if need]
    targets = [f"IPU {ipu} (room for {size(room[ipu])})" for ipu in taking]
    if waits.schedule is None:
        what, how = "work", "change the ipu_shard of some parts"
    else:
        shared = waits.schedule.stages > len(waits.work)
        what = "layers"
        how = "change the stages" + " or their device_mapping" * shared
    return f"move {what} from {' and '.join(sources)} to {' and '.join(targets)}: {how}"


def _worst_step(liveness: machine.Liveness) -> str:
    """The step that needs most, with the user's line."""
    line = liveness.origins[liveness.worst]
    return liveness.names[liveness.worst] + (f" ({line})" if line else "")
