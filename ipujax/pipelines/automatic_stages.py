"""Marks a function without marks with stages of about as many cycles each.

The function is cut between its products and its lookups in tables of parameters, where the fewest
bytes pass. A `lax.scan` over stacked layers is cut between its iterations: it becomes one scan per
stage, over a slice of the layers. A parameter that several segments read, as the weights of a
recurrent layer, is kept in one stage where that costs little.
"""

from __future__ import annotations

import dataclasses as dc
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.pipelines.function_segments import Step, segment_function
from ipujax.pipelines.segment_parameters import bytes_of_parameters
from ipujax.pipelines.single_argument_checks import check
from ipujax.pipelines.traced_function import TracedFunction
from ipujax.system import get_logger
from lowering import jaxpr, machine, pipelines, structure_key


def mark_stages(
    function: TracedFunction, stages: int | Sequence[int]
) -> tuple[TracedFunction, int]:
    """Returns a function without marks, marked with stages, and how many segments it has.

    Args:
      function: the traced function.
      stages: their number; or the segments at which the stages after the first begin.

    Raises:
      PipelineError: (a `ValueError`) more stages than the function has segments.
    """
    function, steps, segments = segment_function(function)
    starts = _starts_of_stages(function, steps, segments, stages)
    _log_stages_without_parameters(function, steps, starts)
    stage_of_step = np.searchsorted(starts, np.arange(len(steps)), side="right") - 1
    stages_of_eqn: dict[int, list[int]] = {}
    for step, stage in zip(steps, stage_of_step, strict=True):
        stages_of_eqn.setdefault(id(step.eqn), []).append(int(stage))
    closed = pipelines.write_stage_marks(function.closed, stages_of_eqn)
    return dc.replace(function, closed=closed), len(segments)


def _starts_of_stages(
    function: TracedFunction,
    steps: Sequence[Step],
    segments: Sequence[int],
    stages: int | Sequence[int],
) -> list[int]:
    """Returns the steps at which the stages begin."""
    count = stages if isinstance(stages, int) else len(stages) + 1
    if count > len(segments):
        raise _too_few_segments_error(function, count, len(segments))
    if isinstance(stages, int):
        cycles = _cycles_of_segments(function.closed.jaxpr, steps, segments)
        if layers := _segments_of_layers(steps, segments):
            starts = balance_with_equal_layers(cycles, layers, stages)
        else:
            split = _bytes_of_split_parameters(function, steps, segments)
            starts = balance_with_whole_parameters(cycles, *split, stages)
        return [segments[i] for i in starts]
    numbers = [0, *stages]
    if sorted(set(numbers)) != numbers or numbers[-1] >= len(segments):
        raise check.value_error(
            f"stages={list(stages)} are no cut points of `{function.name}`, whose segments are "
            f"0 to {len(segments) - 1}",
            "give the segments at which the stages after the first begin, in ascending order",
        )
    return [segments[i] for i in numbers]


def _too_few_segments_error(function: TracedFunction, count: int, segments: int) -> Exception:
    """Returns an error that says how many stages a function can have, and what hides products."""
    fix = f"ask for at most {segments} stages, or mark them with ipu.scopes.pipeline_stage"
    checkpoint = next((e for e in function.closed.jaxpr.eqns if _hides_products(e)), None)
    if checkpoint is not None:
        fix = (
            "what jax.checkpoint is around is in one stage: put it around each layer instead "
            "(flax: nn.remat of the block), or leave it out and say recompute=True"
        )
    return check.value_error(
        f"`{function.name}` cannot be cut into {count} stages: it has {segments} "
        f"part{'s' * (segments != 1)} between its products (matrix products, convolutions, "
        "iterations over layers)",
        fix,
    )


def _log_stages_without_parameters(
    function: TracedFunction, steps: Sequence[Step], starts: Sequence[int]
) -> None:
    """Logs which stages read only parameters of stages before them, so that they keep no state."""
    ends = (*starts[1:], len(steps))
    parts = [steps[a:b] for a, b in zip(starts, ends, strict=True)]
    sizes, tied = bytes_of_parameters(function, parts)
    borrowers = sorted({last for _, last, _ in tied if not sizes[last]})
    if borrowers:
        get_logger().info(
            "`%s` is cut within a layer: all parameters of the stages %s are those of stages "
            "before them, whose IPUs keep them and send them with each micro-batch",
            function.name,
            ", ".join(map(str, borrowers)),
        )


_CHECKPOINTS = ("checkpoint", "remat2")


def _hides_products(eqn: jaxpr.JaxprEqn) -> bool:
    """Returns whether a call of `jax.checkpoint` has products between which a cut might be."""
    bodies = jaxpr.sub_jaxprs(eqn) if eqn.primitive.name in _CHECKPOINTS else ()
    return any(sum(map(pipelines.has_product, body.eqns)) > 1 for body in bodies)


# --- cycles ---------------------------------------------------------------------------------------


def _cycles_of_segments(
    body: jaxpr.Jaxpr, steps: Sequence[Step], segments: Sequence[int]
) -> list[float]:
    """Returns the modelled cycles of each segment's forward pass; equal ones are costed once."""
    cycles_of_key: dict[Any, int] = {}

    def cost_of(eqns: Sequence[jaxpr.JaxprEqn]) -> int:
        reads = pipelines.variables_read_from_outside(eqns, [])
        results = [v for eqn in eqns for v in eqn.outvars if not jaxpr.is_dropped(v)]
        closed = pipelines.jaxpr_of_equations(body, reads, results, eqns)
        key = structure_key(closed)
        if key not in cycles_of_key:
            cycles_of_key[key] = machine.estimate_function_cycles(closed)
        return cycles_of_key[key]

    ends = (*segments[1:], len(steps))
    costs: list[float] = []
    for start, end in zip(segments, ends, strict=True):
        part = steps[start:end]
        cost = float(cost_of([step.eqn for step in part if step.iteration is None]))
        for step in part:
            if step.iteration is not None:
                cost += cost_of([step.eqn]) / step.eqn.params["length"]
        costs.append(cost)
    return costs


def _segments_of_layers(steps: Sequence[Step], segments: Sequence[int]) -> range:
    """Returns the segments with the iterations of the only scan over layers; none if it is not."""
    scans = {id(step.eqn) for step in steps if step.iteration is not None}
    numbers = [n for n, step in enumerate(steps) if step.iteration is not None]
    if len(scans) != 1:
        return range(0)
    first, last = (
        int(np.searchsorted(segments, n, side="right")) for n in (numbers[0], numbers[-1])
    )
    return range(first - 1, last) if last - first + 1 == len(numbers) else range(0)


_COST_OF_EQUAL_LAYERS = 1.5  # how much costlier the costliest part may be, for arrays cut evenly


def balance_with_equal_layers(costs: Sequence[float], layers: range, parts: int) -> list[int]:
    """Returns where parts begin, each with equally many layers or none, if that costs little more.

    An array can be sharded evenly only: a parameter stacked over layers stays in one place where
    stages have different numbers of layers.

    Args:
      costs: of the segments.
      layers: the segments that are layers, which share their parameters.
      parts: how many parts there are to be.
    """
    freely = balance(costs, parts)
    candidates = [
        starts
        for count in range(2, parts + 1)
        if layers and len(layers) % count == 0
        for parts_before in range(parts - count + 1)
        if (
            starts := _balance_around_layers(
                costs, layers, count, (parts_before, parts - count - parts_before)
            )
        )
    ]
    best = min(candidates, key=lambda starts: _costliest(costs, starts), default=freely)
    limit = _COST_OF_EQUAL_LAYERS * _costliest(costs, freely)
    return best if _costliest(costs, best) <= limit else freely


def _balance_around_layers(
    costs: Sequence[float], layers: range, count: int, parts_around: tuple[int, int]
) -> list[int]:
    """Returns where parts begin, `count` of which share the layers; [] if there are too few.

    Args:
      costs: of the segments.
      layers: the segments that are layers.
      count: the parts that have layers.
      parts_around: the parts before and after them, which have none.
    """
    layers_of_part = len(layers) // count
    first_end, last_start = layers.start + layers_of_part, layers.stop - layers_of_part
    costs_before = [*costs[: layers.start], sum(costs[layers.start : first_end])]
    costs_behind = [sum(costs[last_start : layers.stop]), *costs[layers.stop :]]
    if len(costs_before) <= parts_around[0] or len(costs_behind) <= parts_around[1]:
        return []
    starts = balance(costs_before, parts_around[0] + 1)
    starts += range(first_end, last_start, layers_of_part)
    behind_layers = [layers.stop - 1 + n for n in balance(costs_behind, parts_around[1] + 1)[1:]]
    return [*starts, last_start, *behind_layers]


def _bytes_of_split_parameters(
    function: TracedFunction, steps: Sequence[Step], segments: Sequence[int]
) -> tuple[list[int], int]:
    """Returns, by segment, the bytes of parameters that a cut before it splits, and those of all.

    A cut splits parameters that segments before and behind it read.
    """
    ends = (*segments[1:], len(steps))
    parts = [steps[a:b] for a, b in zip(segments, ends, strict=True)]
    sizes, tied = bytes_of_parameters(function, parts)
    change = [0] * (len(segments) + 1)
    for first, last, size in tied:
        change[first + 1] += int(size)
        change[last + 1] -= int(size)
    return [*itertools.accumulate(change[:-1])], int(sum(sizes))


_COST_OF_WHOLE_PARAMETERS = 1.25  # how much costlier the costliest part may be to split none


def balance_with_whole_parameters(
    costs: Sequence[float], split: Sequence[int], all_bytes: int, parts: int
) -> list[int]:
    """Returns where parts begin, so that cuts split few parameters if that costs little more.

    A stage without parameters of its own waits for those of another, and holds no state. The
    costliest part may be costlier by as large a share as the parameters that are not split then.

    Args:
      costs: of the segments.
      split: the bytes of the parameters that a cut before each segment splits.
      all_bytes: the bytes of all parameters.
      parts: how many parts there are to be.
    """
    freely = balance(costs, parts)
    cheapest = _costliest(costs, freely)
    least_split = _split_least(costs, split, parts, _COST_OF_WHOLE_PARAMETERS * cheapest)
    saved = sum(split[start] for start in freely) - sum(split[start] for start in least_split)
    is_better = 0 < saved and _costliest(costs, least_split) <= (1 + saved / all_bytes) * cheapest
    return least_split if is_better else freely


def _split_least(
    costs: Sequence[float], split: Sequence[int], parts: int, limit: float
) -> list[int]:
    """Returns where parts begin that cost at most `limit` each, and split the least.

    Of those that split equally little, the costliest part costs least.
    """
    total = np.concatenate([[0.0], np.cumsum(costs)])
    count = len(costs)
    least, worst = (np.full(count + 1, np.inf) for _ in range(2))
    least[0] = worst[0] = 0.0
    choices: list[np.ndarray] = []
    for part in range(parts):
        next_least, next_worst = (np.full(count + 1, np.inf) for _ in range(2))
        choice = np.zeros(count + 1, int)
        for end in range(part + 1, count + 1):
            loads = total[end] - total[:end]
            splits = np.where(loads <= limit, least[:end] + split[:end], np.inf)
            worsts = np.where(splits <= splits.min(), np.maximum(worst[:end], loads), np.inf)
            choice[end] = int(worsts.argmin())
            next_least[end], next_worst[end] = splits.min(), worsts.min()
        choices.append(choice)
        least, worst = next_least, next_worst
    return _follow_choices(choices, count)


def _costliest(costs: Sequence[float], starts: Sequence[int]) -> float:
    ends = (*starts[1:], len(costs))
    return max(sum(costs[start:end]) for start, end in zip(starts, ends, strict=True))


def balance(costs: Sequence[float], parts: int) -> list[int]:
    """Returns where each of some consecutive parts begins, so that the costliest costs least.

    Args:
      costs: of the entries.
      parts: how many there are to be, at most as many as entries; none is empty.
    """
    return _split_least(costs, [0] * len(costs), parts, math.inf)


def _follow_choices(choices: Sequence[np.ndarray], count: int) -> list[int]:
    """Returns where parts begin, of the best beginning of each part by its end."""
    starts: list[int] = []
    end = count
    for choice in reversed(choices):
        end = int(choice[end])
        starts.append(end)
    return starts[::-1]
