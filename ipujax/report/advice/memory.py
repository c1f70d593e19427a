"""Advice for a program that does not fit: changes to it, each modelled before it is offered.

Changes that need the user's own functions to be modelled, such as a smaller batch, are not offered.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ipujax.ground import count_with_noun, format_bytes
from ipujax.report.advice import product_advice
from ipujax.report.advice.evidence import gather_memory_evidence
from ipujax.report.advice.facts import Facts
from ipujax.report.advice.findings import Advice, bytes_to_free
from ipujax.report.advice.memory_changes import list_memory_changes
from ipujax.report.advice.trials import Trial, Trials, try_changes
from lowering import machine

_LEAST_SHARE = 0.05  # of the peak; less than that is not worth a line


def advise_on_memory(facts: Facts) -> tuple[Advice, ...]:
    """Returns changes that reduce memory: those that make the program fit, then by effect.

    Where nobody knows what the program was lowered from, only the model's options are tried.
    """
    profile = facts.profile
    evidence = gather_memory_evidence(facts)
    worst = evidence[0]
    least_bytes = _LEAST_SHARE * worst.peak_bytes
    case = facts.case
    list_further_changes = functools.partial(product_advice.list_product_changes, case)
    trial_results = try_changes(
        case, profile, list_memory_changes(case, profile, worst, least_bytes), list_further_changes
    )
    single_trials = _best_trial_of_each_change(
        [trial for trial in trial_results.done if len(trial.changes) == 1]
    )
    combinations = _select_useful_combinations(
        [trial for trial in trial_results.done if len(trial.changes) > 1], single_trials
    )
    entries = [_advice_of_trial(profile, trial) for trial in (*combinations, *single_trials)]
    entries = [entry for entry in entries if entry.about_bytes > 0]
    entries.sort(key=lambda entry: (not entry.enough, -entry.about_bytes))
    if not any(entry.enough for entry in entries):
        entries.append(Advice("not_enough", _describe_best_trial(profile, trial_results), 0))
    if trial_results.untried:
        names = "; ".join(change.short for change in trial_results.untried)
        entries.append(Advice("untried", f"not tried, as the budget is spent: {names}", 0))
    return tuple(entries)


def _best_trial_of_each_change(single_trials: Sequence[Trial]) -> list[Trial]:
    """Returns for each change its mildest form that fits, or else the most effective one."""
    best_trials: dict[tuple[str, str], Trial] = {}
    for trial in single_trials:
        key = trial.changes[0].rule, trial.changes[0].line
        best = best_trials.setdefault(key, trial)
        fullest_bytes, best_fullest_bytes = (
            int(t.profile.memory.tile_peak_bytes.max()) for t in (trial, best)
        )
        if not best.profile.memory.fits and fullest_bytes < best_fullest_bytes:
            best_trials[key] = trial
    return list(best_trials.values())


def _select_useful_combinations(
    combinations: Sequence[Trial], single_trials: Sequence[Trial]
) -> list[Trial]:
    """Returns combinations that fit where no single change of theirs does; else the last one."""
    fitting_singles = [trial for trial in single_trials if trial.profile.memory.fits]
    fitting_combinations = [trial for trial in combinations if trial.profile.memory.fits]
    useful_trials = [
        t
        for t in fitting_combinations
        if not any(single_trial.costs_no_more_than(t) for single_trial in fitting_singles)
    ]
    return useful_trials if fitting_combinations or fitting_singles else list(combinations[-1:])


def _describe_best_trial(profile: machine.Profile, trials: Trials) -> str:
    """Describes the most effective trial where none makes the program fit."""
    summary = f"nothing that was modelled ({count_with_noun(trials.models, 'model')}) is enough"
    if not trials.done:
        return f"{summary}, or helps at all"
    best = min(trials.done, key=lambda trial: sum(bytes_to_free(trial.profile.memory)))
    fullest = int(best.profile.memory.tile_peak_bytes.max())
    names = " + ".join(change.short for change in best.changes)
    share_text = f"{fullest / profile.memory.limit:.0%} of what there is"
    return (
        f"{summary}; the best is {names}, which leaves {fullest:,} bytes on the fullest tile "
        f"({share_text})"
    )


def _advice_of_trial(profile: machine.Profile, trial: Trial) -> Advice:
    """Returns the advice that reports the modelled effect of a trial."""
    memory_before, memory_after = profile.memory, trial.profile.memory
    ipu, _ = memory_before.worst
    fullest_bytes = int(memory_after.tile_peak_bytes.max())
    if trial.profile.num_ipus == profile.num_ipus:
        saved_bytes = int(memory_before.peak_bytes[ipu] - memory_after.peak_bytes[ipu])
    else:
        saved_bytes = int(memory_before.peak_bytes.max() - memory_after.peak_bytes.max())
    several = len(trial.changes) > 1
    instruction = " + ".join(c.short for c in trial.changes) if several else trial.changes[0].text
    lacks = [
        f"{format_bytes(need)} off IPU {n}"
        for n, need in enumerate(bytes_to_free(memory_after))
        if need
    ]
    outcome = "fits" if memory_after.fits else f"still needs {', '.join(lacks[:3]) or 'less code'}"
    text = (
        f"{instruction}: {outcome}, fullest tile {int(memory_before.tile_peak_bytes.max()):,} -> "
        f"{fullest_bytes:,} bytes ({fullest_bytes / memory_after.limit:.0%} of what there is), for "
        f"{_describe_cycle_change(profile, trial.profile)}"
    )
    if several:  # a change that cuts the model again needs its full text
        text += "".join(f"; {c.short}: {c.text}" for c in trial.changes if c.first)
    rule = "combination" if several else trial.changes[0].rule
    return Advice(rule, text, max(saved_bytes, 0), memory_after.fits, fullest_bytes)


def _describe_cycle_change(profile_before: machine.Profile, profile_after: machine.Profile) -> str:
    """Describes a change of cycles: per micro-batch where the number of micro-batches changes."""
    micro_batches_before, micro_batches_after = (
        0 if p.pipeline is None else p.pipeline.micro_batches
        for p in (profile_before, profile_after)
    )
    has_same_count = micro_batches_before == micro_batches_after
    slowdown = (
        profile_after.cycles
        / max(profile_before.cycles, 1)
        * (1 if has_same_count else micro_batches_before / micro_batches_after)
    )
    # Rounded to two digits, this ratio would read as 1.
    cycle_ratio = "about as many" if abs(slowdown - 1) < 0.05 else f"{slowdown:.2g} x the"
    return f"{cycle_ratio} cycles" + ("" if has_same_count else " per micro-batch")
