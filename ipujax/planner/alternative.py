"""An alternative is a way to run a model as a pipeline, but for the cut; and the list of them all.

It is a schedule, the IPU of each stage, and the numbers of micro-batches and replicas; and whether
stages recompute activations, and offload to host memory those that wait for the backward pass.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
from collections.abc import Iterator

import numpy as np

from ipujax.planner.costs import Costs
from ipujax.planner.moments import Moments, list_moments
from ipujax.planner.search_arguments import SearchArguments
from ipujax.planner.stage_costs import Cuts, StageCosts
from ipujax.planner.task_times import (
    COLUMNS,
    CONSTANT,
    PARAMETERS,
    RECOMPUTED,
    STASH,
    UPDATE,
    StageTimes,
    TaskTimes,
    sum_by_ipu,
)
from lowering import InternalError, schedules

ROUNDING = 1e-12
"""Numbers that differ by no larger share are equal."""

EXCESS = 1e-9
"""A share of an IPU's memory that may be a rounding error."""

_MOST_STAGES_PER_IPU = 8  # each doubling halves the rest of the bubble, and doubles transfers


@dc.dataclass(frozen=True, eq=False)
class TimedSchedule:
    """A schedule that is built when it is asked for; several alternatives share it.

    Attributes:
      registered: the schedule, as the registry lists it by name.
      device_mapping: the IPU of each stage of a replica, from 0 on.
      micro_batches: the micro-batches of a replica in an update.
      other_names: the names of the other schedules to choose from, as `spell_schedule_name` returns
        them; one that is built under such a name is left to them.
    """

    registered: schedules.RegisteredSchedule
    device_mapping: tuple[int, ...]
    micro_batches: int
    other_names: frozenset[str] = frozenset()

    @functools.cached_property
    def schedule(self) -> schedules.Schedule | None:
        """The schedule; None if it cannot have these numbers, or another name stands for it.

        With some numbers `zero_bubble_h1` is `zero_bubble`, for instance. It is None, too, for a
        schedule with copies of stages or parts of sequences, which the costs here do not know.
        """
        stages = len(self.device_mapping)
        try:
            built = self.registered.build(stages, self.micro_batches, ipus=self.device_mapping)
        except schedules.ScheduleError:
            return None
        is_other = schedules.spell_schedule_name(built.name) in self.other_names
        return built if built.is_plain and not is_other else None

    @functools.cached_property
    def moments(self) -> tuple[Moments, ...]:
        """The moments when each IPU may be fullest."""
        return tuple(map(list_moments, self._order_tasks_by_ipu()))

    @functools.cached_property
    def in_flight(self) -> tuple[int, ...]:
        """The most micro-batches that wait in each stage."""
        most_waiting = [0] * len(self.device_mapping)
        for moments in self.moments:
            for stage, counts in zip(moments.stages, moments.waiting.T, strict=True):
                most_waiting[stage] = int(counts.max())
        return tuple(most_waiting)

    @property
    def shares_ipus(self) -> bool:
        """True where an IPU has several stages."""
        return len(set(self.device_mapping)) < len(self.device_mapping)

    def _order_tasks_by_ipu(self) -> list[list[tuple[int, schedules.Phase]]]:
        """Returns the stage and phase of each IPU's tasks, in the order in which they run."""
        orders: list[list[tuple[int, schedules.Phase]]]
        orders = [[] for _ in range(max(self.device_mapping) + 1)]
        for tick in self.schedule.ticks if self.schedule is not None else ():
            for stage, phase, _ in tick:
                orders[self.device_mapping[stage]].append((stage, phase))
        return orders

    @functools.cached_property
    def task_times(self) -> TaskTimes:
        """The tasks of the schedule, ready to be timed."""
        if self.schedule is None:
            raise InternalError(f"no {self.registered.name} has such numbers to be timed")
        return TaskTimes(self.schedule)


@dc.dataclass(frozen=True, eq=False)
class Alternative:
    """A schedule of some stages, with all choices made but where the model is cut.

    Attributes:
      timed: the schedule, with its numbers of stages and micro-batches.
      stage_costs: the costs of stages.
      offload: whether activations that wait for the backward pass go to host memory.
      replicas: how many replicas of the pipeline there are.
      memory: float64 [ipus]: the bytes of each IPU that has stages; inf for no limit.
    """

    timed: TimedSchedule
    stage_costs: StageCosts
    offload: bool
    replicas: int
    memory: np.ndarray

    @property
    def name(self) -> str:
        """The registered name of the schedule."""
        return self.timed.registered.name

    @property
    def choices(self) -> tuple[object, ...]:
        """All that is chosen but the cut."""
        return (
            self.name,
            self.device_mapping,
            self.micro_batches,
            self.stage_costs.recompute,
            self.offload,
            self.replicas,
        )

    @property
    def micro_batches(self) -> int:
        """The micro-batches of an update, over all replicas."""
        return self.timed.micro_batches * self.replicas

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.timed.device_mapping)

    @property
    def device_mapping(self) -> tuple[int, ...]:
        """The IPU of each stage."""
        return self.timed.device_mapping

    @functools.cached_property
    def num_ipus(self) -> int:
        """The IPUs of one replica."""
        return max(self.device_mapping) + 1

    @functools.cached_property
    def offloads(self) -> np.ndarray:
        """The stages that send waiting activations to host memory, bool [stages].

        One in which no micro-batch ever waits while another is at work has no need to.
        """
        return np.array([self.offload and count > 1 for count in self.timed.in_flight], bool)

    @functools.cached_property
    def moments(self) -> tuple[Moments, ...]:
        """The moments when each IPU may be fullest, with these choices.

        `waiting` leaves out micro-batches whose activations are in host memory, and `working` is 0
        where stages recompute nothing.
        """
        moments_of_ipus = [
            dc.replace(
                moments,
                waiting=np.where(
                    self.offloads[list(moments.stages)], moments.working, moments.waiting
                ),
                working=moments.working * self.stage_costs.recompute,
            )
            for moments in self.timed.moments
        ]
        return tuple(moments.keep_fullest() for moments in moments_of_ipus)

    @functools.cached_property
    def resident(self) -> np.ndarray:
        """The most micro-batches of each stage with activations on its IPU, int64 [stages]."""
        return np.where(self.offloads, 1, self.timed.in_flight)

    def stage_times(self, cuts: Cuts) -> StageTimes:
        """Returns the times of all stages of some cuts."""
        starts, ends = cuts[:, :-1].T, cuts[:, 1:].T
        costs = self.stage_costs
        storing = np.zeros(starts.shape)
        if self.offload:
            storing = self.offloads[:, None] * costs.offload_seconds(starts, ends)
        tasks = {
            schedules.Phase.FORWARD: costs.forward(starts, ends) + storing,
            schedules.Phase.BACKWARD: costs.backward(starts, ends) + storing,
            schedules.Phase.WEIGHTS: costs.weight(starts, ends),
        }
        delays = costs.boundary_seconds[starts[1:]]
        return StageTimes(tasks, delays, costs.update(starts, ends))

    def time_rows(self, cuts: Cuts) -> np.ndarray:
        """Returns a row for each cut of what its stages take, float64 [cuts, stages, COLUMNS]."""
        times, costs = self.stage_times(cuts), self.stage_costs
        starts, ends = cuts[:, :-1].T, cuts[:, 1:].T
        delays = np.concatenate([np.zeros((1, len(cuts))), times.delays])
        rows = [*times.tasks.values(), times.updates, delays, costs.parameter_bytes(starts, ends)]
        rows += [costs.stash_bytes(starts, ends), costs.recomputation_bytes(starts, ends)]
        return np.array([*rows, np.ones_like(delays)]).transpose(2, 1, 0)

    @functools.cached_property
    def tied_seconds(self) -> float:
        """The seconds of passing tied parameters that are on two IPUs with every cut.

        Each stage has a segment, so the first stages cannot have the last segments, nor the last
        stages the first ones: this tells which stages may have both segments of tied parameters.
        """
        costs, stages = self.stage_costs.costs, np.arange(self.stages)
        ipus, behind = np.array(self.device_mapping), len(self.stage_costs.costs) - self.stages
        shares_ipu = (ipus == ipus[:, None]) & (stages >= stages[:, None])
        seconds = 0.0
        for first, last, bytes_ in costs.tied_bytes:
            is_far = stages - stages[:, None] > last - first
            has_first, has_last = (
                (stages <= segment) & (stages >= segment - behind) for segment in (first, last)
            )
            if not (shares_ipu & ~is_far & has_first[:, None] & has_last).any():
                seconds = max(seconds, bytes_ / costs.bytes_per_second)
        return seconds

    @functools.cached_property
    def parameter_sums(self) -> np.ndarray:
        """The bytes of parameters of the segments before each one, float64 [segments + 1].

        A stage that needs more than any IPU has for its own parameters never has both segments of
        tied ones: then the one with the last of them has a copy.
        """
        sums = self.stage_costs.prefixes["parameters"].copy()
        sums_without_copies = self.stage_costs.prefixes["parameters"]
        for first, last, bytes_ in self.stage_costs.costs.tied_bytes:
            bytes_of_both = sums_without_copies[last + 1] - sums_without_copies[first]
            if bytes_of_both > self.memory.max() * (1 + EXCESS):
                sums[last + 1 :] += bytes_
        return sums

    @functools.cached_property
    def memory_paths(self) -> tuple[np.ndarray, ...]:
        """The limits of memory as paths, for each IPU that has a limit and several stages.

        float64 [moments, stages, COLUMNS] each. A path adds up to the share of the IPU's memory
        that its stages need at a moment, less one: so it must not be above 0.
        """
        paths_of_ipus: list[np.ndarray] = []
        for moments, memory in zip(self.moments, self.memory, strict=True):
            if len(moments.stages) > 1 and np.isfinite(memory):
                paths = np.zeros((len(moments.waiting), self.stages, COLUMNS))
                stages = list(moments.stages)
                paths[:, stages, PARAMETERS] = 1 / memory
                paths[:, stages, STASH] = moments.waiting / memory
                paths[:, stages, RECOMPUTED] = moments.working / memory
                paths[:, 0, CONSTANT] = -1.0
                paths_of_ipus.append(paths)
        return tuple(paths_of_ipus)

    def find_longest_path(self, row: np.ndarray) -> np.ndarray:
        """Finds the longest path of an update, if its stages take a row, float64 [stages, COLUMNS].

        See `TaskTimes.find_longest_path`; here the longest update of an IPU's weights counts too.
        """
        path = self.timed.task_times.find_longest_path(row)
        updates = sum_by_ipu(row[:, UPDATE : UPDATE + 1], self.device_mapping)
        if updates.max() < self.tied_seconds:
            path[0, CONSTANT] = self.tied_seconds
        else:
            path[:, UPDATE] = np.array(self.device_mapping) == updates.argmax()
        return path

    def list_straight_paths(self) -> list[np.ndarray]:
        """Lists a path through each IPU and its update: see `TaskTimes.find_straight_path`."""
        paths: list[np.ndarray] = []
        for ipu in range(self.num_ipus):
            path = self.timed.task_times.find_straight_path(ipu)
            if self.tied_seconds:
                path[0, CONSTANT] = self.tied_seconds
            else:
                path[:, UPDATE] = np.array(self.device_mapping) == ipu
            paths.append(path)
        return paths

    def seconds(self, cuts: Cuts) -> np.ndarray:
        """Computes the seconds of an update for each cut, float64 [cuts]."""
        times = self.stage_times(cuts)
        makespans = self.timed.task_times.compute_makespans(times)
        return makespans + self.update_seconds(cuts)

    def update_seconds(self, cuts: Cuts) -> np.ndarray:
        """Computes the longest update of an IPU, with what passes between IPUs, float64 [cuts]."""
        starts, ends = cuts[:, :-1].T, cuts[:, 1:].T
        updates = sum_by_ipu(self.stage_costs.update(starts, ends), self.device_mapping)
        costs, ipus = self.stage_costs.costs, np.array(self.device_mapping)
        for first, last, bytes_ in costs.tied_bytes:
            ipus_of_tied = ipus[(ends <= first).sum(axis=0)], ipus[(ends <= last).sum(axis=0)]
            seconds = (ipus_of_tied[0] != ipus_of_tied[1]) * bytes_ / costs.bytes_per_second
            for ipus_of_cuts in ipus_of_tied:
                updates[ipus_of_cuts, np.arange(len(cuts))] += seconds
        return updates.max(axis=0)

    def peak_bytes(self, cuts: Cuts) -> np.ndarray:
        """Computes the bytes that each IPU needs, float64 [cuts, ipus]."""
        starts, ends = cuts[:, :-1].T, cuts[:, 1:].T
        costs = self.stage_costs
        bytes_of_ipus = sum_by_ipu(costs.parameter_bytes(starts, ends), self.device_mapping)
        stash, recomputed = costs.stash_bytes(starts, ends), costs.recomputation_bytes(starts, ends)
        work_space = costs.workspace_bytes(starts, ends)
        for ipu, moments in enumerate(self.moments):
            stages = list(moments.stages)
            bytes_at_moments = (
                moments.waiting @ stash[stages] + moments.working @ recomputed[stages]
            )
            bytes_of_ipus[ipu] += bytes_at_moments.max(axis=0) + work_space[stages].max(axis=0)
        return bytes_of_ipus.T

    def fits_in_memory(self, cuts: Cuts) -> np.ndarray:
        """Tells for each cut whether all its IPUs have enough memory, bool [cuts]."""
        return self.memory_shortage(cuts) == 0

    def memory_shortage(self, cuts: Cuts) -> np.ndarray:
        """Computes the shares of its memory that each IPU lacks, summed; float64 [cuts]."""
        excess = self.peak_bytes(cuts) / self.memory - 1
        return np.where(excess > ROUNDING, excess, 0.0).sum(axis=1)


def list_alternatives(costs: Costs, arguments: SearchArguments) -> Iterator[Alternative]:
    """Lists all alternatives for a model on some IPUs, those included that no schedule has.

    Where costs do not tell the gradients of weights apart, schedules that split the backward pass
    are left out. Offloading takes time: it is left out where memory has no limit, and activations
    may wait on the IPU.

    Args:
      costs: the costs of the model's segments.
      arguments: what may be chosen.
    """
    names = arguments.names
    plain = [s for s in schedules.list_schedules() if s.is_plain]
    plain = [s for s in plain if names is None or s.name in names]
    if costs.weight is None:
        plain = [s for s in plain if not s.splits_backward]
    spelled_names = frozenset(schedules.spell_schedule_name(s.name) for s in plain)
    stage_costs = {
        (recompute, splits): StageCosts(costs, recompute, splits)
        for recompute in arguments.recompute
        for splits in (False, True)
    }
    has_host_memory = costs.host_bytes_per_second > 0
    offload_choices = [choice for choice in arguments.offload if not choice or has_host_memory]
    if False in offload_choices and np.isinf(arguments.memory).all():
        offload_choices = [False]
    for replicas, micro_batches in itertools.product(arguments.replicas, arguments.micro_batches):
        if micro_batches % replicas or replicas > arguments.ipus:
            continue
        most_ipus = min(arguments.ipus // replicas, len(costs))
        for registered, ipus in itertools.product(plain, range(1, most_ipus + 1)):
            for mapping in _list_device_mappings(registered, ipus, len(costs)):
                other_names = spelled_names - {schedules.spell_schedule_name(registered.name)}
                timed = TimedSchedule(registered, mapping, micro_batches // replicas, other_names)
                for recompute, offload in itertools.product(arguments.recompute, offload_choices):
                    yield Alternative(
                        timed=timed,
                        stage_costs=stage_costs[recompute, registered.splits_backward],
                        offload=offload,
                        replicas=replicas,
                        memory=arguments.memory[:ipus],
                    )


def _list_device_mappings(
    registered: schedules.RegisteredSchedule, ipus: int, segments: int
) -> Iterator[tuple[int, ...]]:
    """Lists the IPUs of the stages for each number of stages that an IPU may have."""
    if registered.folds_stages:
        if 1 < ipus <= segments // 2:
            yield (*range(ipus), *reversed(range(ipus)))
    elif not registered.deals_out_stages:
        yield tuple(range(ipus))
    elif ipus > 1:
        most = min(_MOST_STAGES_PER_IPU, segments // ipus)
        for count in range(2, most + 1):
            yield tuple(stage % ipus for stage in range(ipus * count))
