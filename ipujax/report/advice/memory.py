"""What would help a program that does not fit, each change modelled before it is offered.

What cannot be modelled without the user's own functions, such as a smaller batch, is not offered.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ipujax.report.advice import products
from ipujax.report.advice.change import Case, Source
from ipujax.report.advice.changes import changes
from ipujax.report.advice.evidence import gather
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Advice, need_bytes
from ipujax.report.advice.trials import Trial, Trials, trials
from ipujax.report.words import counted, size
from lowering import machine

_LEAST_SHARE = 0.05  # of the peak; less than that is not worth a line


def advice(facts: Facts, source: Source | None) -> tuple[Advice, ...]:
    """What would help: what is enough first, then the largest effect.

    Args:
      facts: what was modelled, and what came of it.
      source: what the program was lowered from; without, only the model's options are tried.
    """
    profile = facts.profile
    evidence = gather(facts)
    worst = evidence[0]
    least = _LEAST_SHARE * worst.peak_bytes
    case = Case(facts.program, source, facts.options)
    further = functools.partial(products.changes, case)
    found = trials(case, profile, changes(case, profile, worst, least), further)
    alone = _of_each_change([trial for trial in found.done if len(trial.changes) == 1])
    several = _worthwhile([trial for trial in found.done if len(trial.changes) > 1], alone)
    entries = [_modelled(profile, trial) for trial in (*several, *alone)]
    entries = [entry for entry in entries if entry.about_bytes > 0]
    entries.sort(key=lambda entry: (not entry.enough, -entry.about_bytes))
    if not any(entry.enough for entry in entries):
        entries.append(Advice("not_enough", _best(profile, found), 0))
    if found.untried:
        names = "; ".join(change.short for change in found.untried)
        entries.append(Advice("untried", f"not tried, to make no more models: {names}", 0))
    return tuple(entries)


def _of_each_change(alone: Sequence[Trial]) -> list[Trial]:
    """Of the forms of one change the mildest that is enough, or the one that takes away most."""
    forms: dict[tuple[str, str], Trial] = {}
    for trial in alone:
        key = trial.changes[0].rule, trial.changes[0].line
        best = forms.setdefault(key, trial)
        fullest, least = (int(t.profile.memory.tile_peak_bytes.max()) for t in (trial, best))
        if not best.profile.memory.fits and fullest < least:
            forms[key] = trial
    return list(forms.values())


def _worthwhile(several: Sequence[Trial], alone: Sequence[Trial]) -> list[Trial]:
    """Combinations that fit, without those of which one change alone would do; else the last."""
    enough = [trial for trial in alone if trial.profile.memory.fits]
    fitting = [trial for trial in several if trial.profile.memory.fits]
    found = [t for t in fitting if not any(one.costs_no_more(t) for one in enough)]
    return found if fitting or enough else list(several[-1:])


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
