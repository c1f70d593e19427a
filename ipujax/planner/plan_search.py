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

# Shares of the time budget:
_LONG_SEARCH = 0.05  # a search is long where the first of each kind alone take so much
_FIRST_MOVES = 0.03  # for moves of segments in the cuts of a candidate, in a long search
_THRIFTY_CUTS = 0.3  # when rough cuts are no longer sought where stages recompute activations
_ROUGH_CUTS = 0.8  # when rough cuts are no longer sought anywhere
_GOOD_CUTS = 0.9  # when good cuts are no longer sought, and the most promising come first

_FIRST_TURN_SECONDS = 0.5  # of searching a candidate in full, before it is another's turn
_LAST_MOVES_SECONDS = 4.0  # of moving segments in a candidate's cuts, while no cut fits
_SLOW = 2.0  # times the least lower bound: a best cut that takes longer is slow for lack of memory
_FAR = 1.3  # times a candidate's lower bound: what its best cut takes beyond that tells little
_LEAST_RISE = 0.02  # of the way to the limit, that a lower bound should rise in a turn
_TURNS_WITHOUT_MOVES = 10  # between moves of segments, where the best cut is slow
_MOST_IMPROVED = 4  # candidates, the most promising ones, whose segments are moved in a turn


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
      offload: whether activations that wait for the backward pass may, or must, go to host memory.
        Where `costs` have no `host_bytes_per_second`, they may not.
      replicas: the numbers of replicas to choose from; each takes its share of the micro-batches.
      memory: bytes of each IPU: one number, or one for each; None for no limit.
      budget_seconds: how long to search. The best plan that is found by then is returned, and its
        `proven` tells whether it is known to be the best of all.
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
    given_cuts = read_given_cuts(consider, arguments)
    return find_plan(dict.fromkeys(arguments.micro_batches, costs), arguments, given_cuts)


def find_plan(
    costs: Mapping[int, Costs], arguments: SearchArguments, given_cuts: Sequence[GivenCut] = ()
) -> Plan:
    """Finds the fastest plan; see `search`.

    Args:
      costs: the costs of the model's segments, for each number of micro-batches.
      arguments: what may be chosen.
      given_cuts: cuts to compare with.

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
        list_alternatives(costs_of_count, dc.replace(arguments, micro_batches=[count]))
        for count, costs_of_count in costs.items()
    )
    candidates = [*map(Candidate, alternatives)]
    for cut in given_cuts:
        alternative = cut.build_alternative(costs[cut.total_micro_batches], arguments)
        if all(c.alternative.choices != alternative.choices for c in candidates):
            candidates.append(Candidate(alternative))
        candidates.append(Candidate(alternative, cut.cut_points))
    return _Search(candidates, arguments).find_plan()


def _check_backward_passes(costs: Iterable[Costs], arguments: SearchArguments) -> None:
    """Refuses schedules that all split the backward pass, where the costs do not.

    Raises:
      PlanError: they do.
    """
    if arguments.names is None or any(c.weight is not None for c in costs):
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
    """The candidates of one search, and the best of them.

    A candidate is an alternative with its best known cut and bounds on all its cuts. `_examined`
    are those with a rough cut and a closer bound, `_unexamined` those for which there was no time
    yet. A candidate in neither list has been passed over: it has no such schedule, or its bound is
    above the seconds of the best cut.
    """

    def __init__(self, candidates: Iterable[Candidate], arguments: SearchArguments):
        self._is_out_of_time, self._budget = arguments.is_out_of_time, arguments.budget_seconds
        self._examined: list[Candidate] = []
        self._unexamined = dict.fromkeys(sorted(candidates, key=_precede))

    def find_plan(self) -> Plan:
        """Finds the fastest plan, or raises an error with the one that nearly fits.

        Where the user interrupts it, it returns the best plan that is known by then.
        """
        try:
            with show_progress("plan", len(self._unexamined)) as progress:
                self._find_rough_cuts(progress)
                self._find_good_cuts(self._examined)
                self._find_fastest_cuts()
                if math.isinf(self._fastest):  # an answer is worth more than the time
                    self._seek_any_cut()
                if math.isinf(self._fastest):
                    self._examine([*self._unexamined], progress, math.inf)
        except KeyboardInterrupt:
            if not any(candidate.best.cut for candidate in self._examined):
                raise
        chosen = min(self._examined, key=_rank)
        if chosen.best.cut is None:
            self._raise_nothing_fits()
        proven = chosen.given_cut_points is None and not chosen.may_be_faster(chosen.best.seconds)
        return self._build_plan(chosen, chosen.best.cut, proven=proven)

    def _find_rough_cuts(self, progress: ProgressLine) -> None:
        """Finds some cut for each candidate that may be the best, or is the first of its kind.

        The first of each kind are examined first. Where none of them fits in memory, or all are
        slow, those that keep least in memory come next.

        Raises:
          PlanError: there is no schedule with such numbers.
        """
        candidates = [*self._unexamined]
        first_of_kind = {candidate.kind: candidate for candidate in reversed(candidates)}
        self._examine([c for c in candidates if first_of_kind[c.kind] is c], progress)
        if math.isfinite(self._fastest):
            self._improve_most_promising()
        least_bound = min((c.lower_bound for c in self._unexamined), default=math.inf)
        if self._fastest > _SLOW * least_bound:
            thrifty = [c for c in self._unexamined if c.alternative.stage_costs.recompute]
            thrifty.sort(key=lambda candidate: not candidate.alternative.offload)
            self._examine(thrifty, progress, _THRIFTY_CUTS)
            self._improve_most_promising()
        self._raise_least_bound(progress)
        self._examine([*self._unexamined], progress)
        if self._examined:
            return
        raise check.value_error(
            "no schedule can have these numbers of stages, micro-batches and replicas",
            "give other numbers of micro-batches: grouped needs a multiple of twice the stages in "
            "training; replicas must divide both them and the IPUs. Schedules with several stages "
            "on an IPU need two IPUs, and two segments for each",
        )

    def _examine(
        self,
        candidates: Sequence[Candidate],
        progress: ProgressLine,
        budget_share: float = _ROUGH_CUTS,
    ) -> None:
        """Finds rough cuts of candidates that may be the best, until a share of the time is spent.

        That share is no more than `_ROUGH_CUTS` where a cut is known to fit. Cuts that a user
        names are always examined.
        """
        examined_kinds = {candidate.kind for candidate in self._examined}
        for candidate in candidates:
            has_cut = math.isfinite(self._fastest)
            budget_limit = min(budget_share, _ROUGH_CUTS) if has_cut else budget_share
            may_skip = bool(self._examined) and candidate.given_cut_points is None
            if may_skip and self._is_out_of_time(budget_limit):
                return
            progress.show_step(candidate.alternative.name)
            limit = self._fastest if candidate.kind in examined_kinds else math.inf
            may_be_chosen = candidate.lower_bound < limit or candidate.kind not in examined_kinds
            if may_be_chosen and candidate.alternative.timed.schedule is not None:
                candidate.find_rough_cut(limit, self._is_out_of_time)
                examined_kinds.add(candidate.kind)
                self._examined.append(candidate)
            del self._unexamined[candidate]

    def _improve_most_promising(self) -> None:
        """Finds good cuts of what may be the best, so that most others need no close look."""
        self._find_good_cuts(self._list_most_promising())
        if self._is_out_of_time(_LONG_SEARCH):
            self._move_segments(_FIRST_MOVES * self._budget)

    def _list_most_promising(self) -> list[Candidate]:
        """Lists the few most promising candidates, without any that are far from the first."""
        best = sorted(self._examined, key=_promise)[:_MOST_IMPROVED]
        return [c for c in best if _promise(c)[0] <= _FAR * _promise(best[0])[0]]

    def _move_segments(self, seconds: float) -> None:
        """Moves segments in the cuts of the most promising candidates, for some seconds each."""
        for candidate in self._list_most_promising():
            if candidate.may_be_faster(self._fastest):
                candidate.move_segments(seconds, self._is_out_of_time)

    def _seek_any_cut(self) -> None:
        """Moves segments in cuts that do not fit, though time is over, until a cut fits."""
        for candidate in self._list_most_promising():
            if math.isinf(self._fastest):
                candidate.move_segments(min(_LAST_MOVES_SECONDS, self._budget), lambda: False)

    def _raise_least_bound(self, progress: ProgressLine) -> None:
        """Raises the least of all lower bounds, which is the plan's, until most time is spent.

        The candidate that has it is examined, then given a good cut, and then searched in full, in
        turns that become longer. After a turn in which its bound hardly rises, it waits for the
        others. Where that bound is far from the best cut, a share of the time goes to better cuts.
        """
        turn_seconds: dict[Candidate, float] = {}
        stuck: set[Candidate] = set()
        for turn in itertools.count(1):
            if not self._unexamined or self._is_out_of_time(_ROUGH_CUTS):
                return
            limit = self._fastest
            examined = [c for c in self._examined if c.may_be_faster(limit) and c not in stuck]
            candidates = [*examined, *itertools.islice(self._unexamined, 1)]
            candidate = min(candidates, key=lambda c: c.unsearched_bound)
            is_slow = limit > _SLOW * candidate.unsearched_bound
            is_time_for_moves = is_slow and turn % _TURNS_WITHOUT_MOVES == 0
            if is_time_for_moves and self._is_out_of_time(_LONG_SEARCH):
                self._move_segments(_FIRST_TURN_SECONDS)
            if candidate in self._unexamined:
                self._examine([candidate], progress)
            elif candidate not in turn_seconds:
                candidate.find_good_cut(limit, self._is_out_of_time)
                turn_seconds[candidate] = _FIRST_TURN_SECONDS
            else:
                if not self._search(candidate, turn_seconds[candidate]):
                    stuck.add(candidate)
                turn_seconds[candidate] *= 2

    def _search(self, candidate: Candidate, seconds: float) -> bool:
        """Searches a candidate in full for a turn; returns whether its lower bound rises much."""
        limit, bound_before = self._fastest, candidate.unsearched_bound
        candidate.search_parts(limit, seconds, self._is_out_of_time)
        return candidate.unsearched_bound - bound_before >= _LEAST_RISE * (limit - bound_before)

    def _find_good_cuts(self, candidates: Sequence[Candidate]) -> None:
        """Finds a good cut for each of some candidates that may be faster than the best one."""
        for candidate in sorted(candidates, key=lambda c: c.best.seconds):
            if candidate.may_be_faster(self._fastest) and not self._is_out_of_time(_GOOD_CUTS):
                candidate.find_good_cut(self._fastest, self._is_out_of_time)

    def _find_fastest_cuts(self) -> None:
        """Finds the fastest cut of each candidate that may be faster than the best one.

        They take turns, which become longer: a good cut of one leaves less to search of the others.
        The most promising ones have as much time again to move segments; those whose bound has
        hardly risen miss a turn.
        """
        seconds, contenders, stuck = _FIRST_TURN_SECONDS, self._examined, list[Candidate]()
        while contenders and not self._is_out_of_time():
            contenders = sorted(contenders, key=_promise)
            for candidate in contenders[:_MOST_IMPROVED]:
                if candidate.may_be_faster(self._fastest):
                    candidate.move_segments(seconds, self._is_out_of_time)
            rising = [c for c in contenders if c not in stuck] or contenders
            stuck = []
            for candidate in sorted(rising, key=lambda c: c.unsearched_bound):
                may_be_faster = candidate.may_be_faster(self._fastest)
                if may_be_faster and not self._search(candidate, seconds):
                    stuck.append(candidate)
            contenders = [c for c in contenders if c.may_be_faster(self._fastest)]
            seconds *= 2

    @property
    def _fastest(self) -> float:
        """The seconds of the best cut that is known; inf without one."""
        return min((candidate.best.seconds for candidate in self._examined), default=math.inf)

    def _raise_nothing_fits(self) -> NoReturn:
        nearest = min(self._examined, key=lambda c: c.excess_bytes)
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
        simulation = _schedules.simulate(
            cast(_schedules.Schedule, alternative.timed.schedule),
            {phase: rows[:, 0].tolist() for phase, rows in times.tasks.items()},
            transfer=times.delays[:, 0].tolist(),
        )
        seconds = simulation.makespan + float(alternative.update_seconds(cuts)[0])
        peak = alternative.peak_bytes(cuts)[0]
        bounds = [candidate.unsearched_bound for candidate in self._examined]
        lower_bound = min([*bounds, *(candidate.lower_bound for candidate in self._unexamined)])
        return Plan(
            stages=_build_stages(alternative, cut),
            schedule=alternative.name,
            micro_batches=alternative.micro_batches,
            recompute=alternative.stage_costs.recompute,
            offload=alternative.offload,
            replicas=alternative.replicas,
            seconds=seconds,
            bubble=1 - simulation.utilisation,
            peak_bytes=tuple(map(float, peak)),
            fits=bool((peak <= alternative.memory).all()),
            considered=self._list_considered(candidate),
            lower_bound=min(seconds, lower_bound) if math.isfinite(lower_bound) else seconds,
            proven=proven,
        )

    def _list_considered(self, chosen: Candidate) -> tuple[Considered, ...]:
        best_of_kind: dict[Kind, Candidate] = {}
        for candidate in self._examined:
            earlier = best_of_kind.get(candidate.kind)
            if earlier is None or candidate.best.seconds < earlier.best.seconds:
                best_of_kind[candidate.kind] = candidate
        best_of_kind[chosen.kind] = chosen
        rows = [
            Considered(
                schedule=kind[0],
                micro_batches=kind[1],
                recompute=kind[2],
                offload=kind[3],
                stages=candidate.alternative.stages,
                seconds=candidate.best.seconds if candidate.best.cut else None,
                cut_points=candidate.cut_points,
                fullest_bytes=candidate.fullest_bytes,
                why=_explain_loss(candidate, chosen),
            )
            for kind, candidate in best_of_kind.items()
        ]
        return tuple(sorted(rows, key=lambda row: math.inf if row.seconds is None else row.seconds))


def _precede(candidate: Candidate) -> tuple[bool, float, int]:
    """Returns a key that sorts candidates into the order in which they are examined.

    Given cuts come first: there is always time for them. Of those that may be equally fast, those
    of few stages are bounded soonest.
    """
    lower_bound = float(f"{candidate.lower_bound:.9g}")
    return candidate.given_cut_points is None, lower_bound, candidate.alternative.stages


def _rank(candidate: Candidate) -> tuple[float, float, bool]:
    """Returns a key that sorts candidates by seconds, then by memory, given cuts last."""
    return candidate.best.seconds, candidate.fullest_bytes, candidate.given_cut_points is not None


def _promise(candidate: Candidate) -> tuple[float, float]:
    """Returns a key that sorts candidates by how fast they may become; good cuts are not needed.

    Where no cut is known to fit, what the nearest lacks of memory is in the way of a fast one.
    """
    bound = candidate.unsearched_bound
    return min(candidate.best.seconds, (_FAR + candidate.memory_shortage) * bound), bound


def _explain_loss(candidate: Candidate, chosen: Candidate) -> str:
    reason = _compare(candidate, chosen)
    return reason if candidate.given_cut_points is None else f"given: {reason}"


def _compare(candidate: Candidate, chosen: Candidate) -> str:
    if candidate is chosen:
        return "chosen"
    seconds, best = candidate.best.seconds, chosen.best.seconds
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
