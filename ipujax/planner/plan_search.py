"""The fastest plan of a model whose segments' costs are known."""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from ipujax.ground import PlanError, ProgressLine, api_boundary, show_progress
from ipujax.planner.alternative import Alternative, list_alternatives
from ipujax.planner.candidate import Candidate, Kind
from ipujax.planner.costs import Costs
from ipujax.planner.given_cuts import GivenCut, read_given_cuts
from ipujax.planner.plan import Considered, Plan, PlannedStage, StageSeconds
from ipujax.planner.plan_checks import check
from ipujax.planner.search_arguments import SearchArguments, read_search_arguments
from lowering import schedules as _schedules

_OF_A_LONG_SEARCH = 0.05  # of the budget, which the first of each kind need there
_FIRST_MOVES = 0.03  # of the budget, in which the segments of one of them are moved
_LAST_MOVES = 4.0  # seconds for one of them, where no cut has been found to fit
_OF_THRIFTY_CUTS = 0.3  # of the budget, in which those that need little memory are looked at
_OF_ROUGH_CUTS = 0.8  # of the budget, in which rough cuts are found
_OF_GOOD_CUTS = 0.9  # of the budget, after which those that nearly are the best come first
_FIRST_TURN = 0.5  # seconds in which the fastest cut of an alternative is sought before the next
_SLOW = 2.0  # times the least bound, a cut is slow for lack of memory
_FAR = 1.3  # times the bound of an alternative, its best cut that is known tells little
_LITTLE = 0.02  # of what a bound lacks, by which it should rise in a turn
_TURNS_WITHOUT_MOVES = 10  # of raising the least bound, where the best cut is far from it
_MOST_IMPROVED = 4  # alternatives, the best ones, whose segments are moved in a turn


@check.guard
@api_boundary
def search(
    costs: Costs,
    *,
    ipus: int,
    micro_batches: int | Sequence[int],
    schedules: Sequence[str] | None = None,
    recompute: Sequence[bool] = (False, True),
    offload: Sequence[bool] = (False, True),
    replicas: Sequence[int] = (1,),
    memory: float | Sequence[float] | None = None,
    budget_seconds: float = 60.0,
    consider: Sequence[Mapping[str, Any]] = (),
) -> Plan:
    """Plans a pipeline from numbers alone.

    For each schedule, number of stages and micro-batches, and each choice of the options, the cut
    is exact: whatever a bound does not exclude is timed. A plan may use fewer IPUs than there are.

    Args:
      costs: the costs of the model's segments.
      ipus: how many IPUs there are, of all replicas together.
      micro_batches: the number of micro-batches of an update, or several to choose from. Each costs
        what `costs` says, however many there are.
      schedules: the registered names of the schedules to choose from; None for all.
      recompute: whether stages may, or must, compute activations again.
      offload: whether what waits for the backward pass may, or must, go to host memory. Where
        `costs` have no `host_bytes_per_second`, it may not.
      replicas: the numbers of replicas to choose from; each takes its share of the micro-batches.
      memory: bytes of each IPU: one number, or one for each; None for no limit.
      budget_seconds: how long to search. What is found by then is returned, and `proven` tells
        whether it is known to be the best.
      consider: cuts of your own to compare with, each as the arguments with which `value_and_grad`
        would run it: `stages` (a list of cut points), `schedule`, `micro_batches`, `recompute`,
        `offload`, `device_mapping`; and `replicas`. They are rows of `considered`, and no plan is
        slower than one of them that fits; other cuts for the same IPUs are searched too.

    Raises:
      PlanError: (a `ValueError`) wrong arguments; no schedule that has such numbers; or no plan
        that fits in memory, with the nearest.
    """
    check.require_instance(costs, Costs, "costs", "a Costs")
    arguments = read_search_arguments(
        ipus=ipus,
        micro_batches=micro_batches,
        schedules=schedules,
        recompute=recompute,
        offload=offload,
        replicas=replicas,
        memory=memory,
        budget_seconds=budget_seconds,
    )
    given = read_given_cuts(consider, arguments)
    return find_plan(dict.fromkeys(arguments.micro_batches, costs), arguments, given)


def find_plan(
    costs: Mapping[int, Costs], arguments: SearchArguments, given: Sequence[GivenCut] = ()
) -> Plan:
    """Finds the fastest plan; see `search`.

    Args:
      costs: of the model's segments, for each number of micro-batches.
      arguments: what may be chosen.
      given: cuts to compare with.

    Raises:
      PlanError: offloading is asked for, and there is no host memory; or schedules that split the
        backward pass, and the costs do not.
    """
    if False not in arguments.offload and not any(c.host_bytes_per_second for c in costs.values()):
        raise check.value_error(
            "offload=True, and these costs have no host memory",
            "give `Costs` the host_bytes_per_second, or leave out `offload`",
        )
    _check_backward_passes(costs.values(), arguments)
    alternatives = itertools.chain.from_iterable(
        list_alternatives(of_count, dc.replace(arguments, micro_batches=[count]))
        for count, of_count in costs.items()
    )
    candidates = [*map(Candidate, alternatives)]
    for cut in given:
        alternative = cut.build_alternative(costs[cut.total_micro_batches], arguments)
        if all(one.alternative.choices != alternative.choices for one in candidates):
            candidates.append(Candidate(alternative))
        candidates.append(Candidate(alternative, cut.cut_points))
    return _Search(candidates, arguments).find_plan()


def _check_backward_passes(costs: Iterable[Costs], arguments: SearchArguments) -> None:
    """Refuses schedules that all split the backward pass, where the costs do not.

    Raises:
      PlanError: they do.
    """
    if arguments.names is None or any(of_count.weight is not None for of_count in costs):
        return
    splitting = [s.name for s in _schedules.list_schedules() if s.splits_backward]
    if all(name in splitting for name in arguments.names):
        raise check.value_error(
            f"{arguments.names[0]} splits the backward pass, and the costs do not say what the "
            "gradients of weights take",
            "give `Costs` their seconds, `weight`, and leave them out of `backward`; or name a "
            "schedule that does not split it, such as one_f_one_b",
        )


class _Search:
    """The alternatives of one search, and the best of them.

    Those that were passed over are slower than one that is known; those that nobody has come to,
    for lack of time, are `_unseen`.
    """

    def __init__(self, candidates: Iterable[Candidate], arguments: SearchArguments):
        self._is_past, self._budget = arguments.is_out_of_time, arguments.budget_seconds
        self._known: list[Candidate] = []
        self._unseen = dict.fromkeys(sorted(candidates, key=_precede))

    def find_plan(self) -> Plan:
        """Finds the fastest plan, or raises an error with the one that nearly fits.

        Where the user interrupts it, the best plan that is known by then is given.
        """
        try:
            with show_progress("plan", len(self._unseen)) as progress:
                self._find_rough_cuts(progress)
                self._find_good_cuts(self._known)
                self._find_fastest_cuts()
                if math.isinf(self._fastest):  # an answer is worth more than the time
                    self._seek_any_cut()
                if math.isinf(self._fastest):
                    self._look_at([*self._unseen], progress, math.inf)
        except KeyboardInterrupt:
            if not any(candidate.found.cut for candidate in self._known):
                raise
        best = min(self._known, key=_rank)
        if best.found.cut is None:
            self._raise_nothing_fits()
        is_proven = best.given is None and not best.may_be_faster(best.found.seconds)
        return self._build_plan(best, best.found.cut, proven=is_proven)

    def _find_rough_cuts(self, progress: ProgressLine) -> None:
        """Finds some cut for each alternative that may be the best, or is the first of its kind.

        Where none of the latter fits in memory, or is fast, those that keep least there come next.

        Raises:
          PlanError: there is no schedule with such numbers.
        """
        candidates = [*self._unseen]
        first_of_kind = {candidate.kind: candidate for candidate in reversed(candidates)}
        self._look_at([one for one in candidates if first_of_kind[one.kind] is one], progress)
        if math.isfinite(self._fastest):
            self._improve_most_promising()
        if self._fastest > _SLOW * min((one.least for one in self._unseen), default=math.inf):
            thrifty = [one for one in self._unseen if one.alternative.stage_costs.recompute]
            thrifty.sort(key=lambda candidate: not candidate.alternative.offload)
            self._look_at(thrifty, progress, _OF_THRIFTY_CUTS)
            self._improve_most_promising()
        self._raise_least_bound(progress)
        self._look_at([*self._unseen], progress)
        if self._known:
            return
        raise check.value_error(
            "no schedule can have these numbers of stages, micro-batches and replicas",
            "give other numbers of micro-batches: grouped needs a multiple of twice the stages in "
            "training; replicas must divide both them and the IPUs. Schedules with several stages "
            "on an IPU need two IPUs, and two segments for each",
        )

    def _look_at(
        self, candidates: Sequence[Candidate], progress: ProgressLine, share: float = _OF_ROUGH_CUTS
    ) -> None:
        """Finds rough cuts of those that may be the best, until a share of the budget is spent.

        That is not more than `_OF_ROUGH_CUTS` where a cut is known.
        """
        seen = {candidate.kind for candidate in self._known}
        for candidate in candidates:
            most = share if math.isinf(self._fastest) else min(share, _OF_ROUGH_CUTS)
            if self._known and self._is_past(most) and candidate.given is None:
                return
            progress.show_step(candidate.alternative.name)
            is_needed = candidate.least < self._fastest or candidate.kind not in seen
            if is_needed and candidate.alternative.timed.schedule is not None:
                limit = self._fastest if candidate.kind in seen else math.inf
                candidate.find_rough_cut(limit, self._is_past)
                seen.add(candidate.kind)
                self._known.append(candidate)
            del self._unseen[candidate]

    def _improve_most_promising(self) -> None:
        """Finds good cuts of what may be the best, so that most others need no close look."""
        self._find_good_cuts(self._list_most_promising())
        if self._is_past(_OF_A_LONG_SEARCH):
            self._move_segments(_FIRST_MOVES * self._budget)

    def _list_most_promising(self) -> list[Candidate]:
        """Lists those that may be the best, but for such as are far from the first of them."""
        best = sorted(self._known, key=_promise)[:_MOST_IMPROVED]
        return [one for one in best if _promise(one)[0] <= _FAR * _promise(best[0])[0]]

    def _move_segments(self, seconds: float) -> None:
        """Moves segments in the cuts of those that may be the best, for some seconds each."""
        for candidate in self._list_most_promising():
            if candidate.may_be_faster(self._fastest):
                candidate.move_segments(seconds, self._is_past)

    def _seek_any_cut(self) -> None:
        """Moves segments in cuts that do not fit, though time is over, until one is found to."""
        for candidate in self._list_most_promising():
            if math.isinf(self._fastest):
                candidate.move_segments(min(_LAST_MOVES, self._budget), lambda: False)

    def _raise_least_bound(self, progress: ProgressLine) -> None:
        """Raises the least of all bounds, which is the plan's, until most of the time is spent.

        Whatever has it is looked at, then given a good cut, and then searched in full, in turns
        that become longer. After one in which its bound hardly rises, it waits for the others.
        Where it is far from the best cut, a share of the time goes to better cuts.
        """
        turns: dict[Candidate, float] = {}
        stuck: set[Candidate] = set()
        for turn in itertools.count(1):
            if not self._unseen or self._is_past(_OF_ROUGH_CUTS):
                return
            limit = self._fastest
            known = [one for one in self._known if one.may_be_faster(limit) and one not in stuck]
            candidates = [*known, *itertools.islice(self._unseen, 1)]
            candidate = min(candidates, key=lambda one: one.least_of_rest)
            is_far = limit > _SLOW * candidate.least_of_rest and self._is_past(_OF_A_LONG_SEARCH)
            if is_far and turn % _TURNS_WITHOUT_MOVES == 0:
                self._move_segments(_FIRST_TURN)
            if candidate in self._unseen:
                self._look_at([candidate], progress)
            elif candidate not in turns:
                candidate.find_good_cut(limit, self._is_past)
                turns[candidate] = _FIRST_TURN
            else:
                if not self._search(candidate, turns[candidate]):
                    stuck.add(candidate)
                turns[candidate] *= 2

    def _search(self, candidate: Candidate, seconds: float) -> bool:
        """Searches an alternative in full for a turn; returns whether its bound rises much."""
        limit, before = self._fastest, candidate.least_of_rest
        candidate.search_parts(limit, seconds, self._is_past)
        return candidate.least_of_rest - before >= _LITTLE * (limit - before)

    def _find_good_cuts(self, candidates: Sequence[Candidate]) -> None:
        """Finds a good cut for each of some alternatives that may be faster than the best one."""
        for candidate in sorted(candidates, key=lambda one: one.found.seconds):
            if candidate.may_be_faster(self._fastest) and not self._is_past(_OF_GOOD_CUTS):
                candidate.find_good_cut(self._fastest, self._is_past)

    def _find_fastest_cuts(self) -> None:
        """Finds the fastest cut of each alternative that may be faster than the best one.

        They take turns, which become longer: a good cut of one leaves less to search of the others.
        Those that are nearly the best have as much time again to move segments; those whose bound
        has hardly risen miss a turn.
        """
        seconds, turns, stuck = _FIRST_TURN, self._known, list[Candidate]()
        while turns and not self._is_past():
            turns = sorted(turns, key=_promise)
            for candidate in turns[:_MOST_IMPROVED]:
                if candidate.may_be_faster(self._fastest):
                    candidate.move_segments(seconds, self._is_past)
            others = [one for one in turns if one not in stuck] or turns
            stuck = []
            for candidate in sorted(others, key=lambda one: one.least_of_rest):
                may_be_faster = candidate.may_be_faster(self._fastest)
                if may_be_faster and not self._search(candidate, seconds):
                    stuck.append(candidate)
            seconds, turns = 2 * seconds, [t for t in turns if t.may_be_faster(self._fastest)]

    @property
    def _fastest(self) -> float:
        """The seconds of the best cut that is known; inf without one."""
        return min((candidate.found.seconds for candidate in self._known), default=math.inf)

    def _raise_nothing_fits(self) -> NoReturn:
        nearest = min(self._known, key=lambda one: one.excess_bytes)
        cut = tuple(map(int, nearest.smallest_cut[0]))
        lacks = nearest.excess_bytes
        raise PlanError(
            f"no plan fits in memory: the nearest lacks {lacks:,.0f} bytes on an IPU",
            fix="use more IPUs, smaller micro-batches, recomputation, or more memory; the error's "
            "`nearest` has that plan",
            nearest=self._build_plan(nearest, cut, proven=False),
            lacks=lacks,
        )

    def _build_plan(self, candidate: Candidate, cut: Sequence[int], *, proven: bool) -> Plan:
        alternative = candidate.alternative
        cuts = np.array([cut])
        times = alternative.stage_times(cuts)
        run = _schedules.simulate(
            cast(_schedules.Schedule, alternative.timed.schedule),
            {phase: rows[:, 0].tolist() for phase, rows in times.tasks.items()},
            transfer=times.delays[:, 0].tolist(),
        )
        seconds = run.makespan + float(alternative.update_seconds(cuts)[0])
        peak = alternative.peak_bytes(cuts)[0]
        rest = min(one.least_of_rest for one in self._known)
        least = min([rest, *(one.least for one in self._unseen)])
        return Plan(
            stages=_build_stages(alternative, cut),
            schedule=alternative.name,
            micro_batches=alternative.micro_batches,
            recompute=alternative.stage_costs.recompute,
            offload=alternative.offload,
            replicas=alternative.replicas,
            seconds=seconds,
            bubble=1 - run.utilisation,
            peak_bytes=tuple(map(float, peak)),
            fits=bool((peak <= alternative.memory).all()),
            considered=self._list_considered(candidate),
            lower_bound=min(seconds, least) if math.isfinite(least) else seconds,
            proven=proven,
        )

    def _list_considered(self, chosen: Candidate) -> tuple[Considered, ...]:
        best_of_kind: dict[Kind, Candidate] = {}
        for candidate in self._known:
            known = best_of_kind.get(candidate.kind)
            if known is None or candidate.found.seconds < known.found.seconds:
                best_of_kind[candidate.kind] = candidate
        best_of_kind[chosen.kind] = chosen
        rows = [
            Considered(
                schedule=kind[0],
                micro_batches=kind[1],
                recompute=kind[2],
                offload=kind[3],
                stages=candidate.alternative.stages,
                seconds=candidate.found.seconds if candidate.found.cut else None,
                cut_points=candidate.cut_points,
                fullest_bytes=candidate.fullest_bytes,
                why=_explain_loss(candidate, chosen),
            )
            for kind, candidate in best_of_kind.items()
        ]
        return tuple(sorted(rows, key=lambda row: math.inf if row.seconds is None else row.seconds))


def _precede(candidate: Candidate) -> tuple[bool, float, int]:
    """Returns what tells the order in which candidates are looked at.

    Given cuts come first: there is always time for them. Of those that may be equally fast, those
    of few stages are bounded soonest.
    """
    least = float(f"{candidate.least:.9g}")
    return candidate.given is None, least, candidate.alternative.stages


def _rank(candidate: Candidate) -> tuple[float, float, bool]:
    """Returns what tells candidates' order: seconds, memory where these are equal, and the rest."""
    return candidate.found.seconds, candidate.fullest_bytes, candidate.given is not None


def _promise(candidate: Candidate) -> tuple[float, float]:
    """Returns what tells which candidates may be nearly the best, though no good cut is known.

    Where none is known to fit, what the best one lacks of memory is in the way of a fast one.
    """
    least = candidate.least_of_rest
    return min(candidate.found.seconds, (_FAR + candidate.lacking) * least), least


def _explain_loss(candidate: Candidate, chosen: Candidate) -> str:
    reason = _compare(candidate, chosen)
    return reason if candidate.given is None else f"given: {reason}"


def _compare(candidate: Candidate, chosen: Candidate) -> str:
    if candidate is chosen:
        return "chosen"
    seconds, best = candidate.found.seconds, chosen.found.seconds
    if math.isinf(seconds):
        return f"does not fit: lacks {candidate.excess_bytes:,.0f} bytes on an IPU"
    if seconds <= best:
        return "as fast"
    return f"{seconds / best - 1:.1%} slower" if best else "slower"


def _build_stages(alternative: Alternative, cut: Sequence[int]) -> tuple[PlannedStage, ...]:
    starts, ends = np.array(cut[:-1]), np.array(cut[1:])
    costs = alternative.stage_costs
    backward = costs.backward(starts, ends) + costs.weight(starts, ends)
    rows = zip(
        zip(starts.tolist(), ends.tolist(), strict=True),
        alternative.device_mapping,
        map(StageSeconds, costs.forward(starts, ends).tolist(), backward.tolist()),
        costs.parameter_bytes(starts, ends).tolist(),
        costs.activation_bytes(starts, ends).tolist(),
        costs.boundary_bytes[starts].tolist(),
        strict=True,
    )
    return tuple(
        PlannedStage(
            segments=segments,
            ipu=ipu,
            seconds=seconds,
            parameter_bytes=parameters,
            activation_bytes=activations,
            transfer_bytes=passing,
        )
        for segments, ipu, seconds, parameters, activations, passing in rows
    )
