"""Marks a function without marks with stages of about as many cycles each.

The function is cut between its products and its lookups in tables of parameters, where the fewest
bytes pass. A `lax.scan` over stacked layers is cut between its iterations: it becomes one scan per
stage, over a slice of the layers.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.pipelines.micro_batch_arguments import Role
from ipujax.pipelines.single_argument_checks import check
from ipujax.pipelines.traced_function import TracedFunction
from lowering import jaxpr, machine, pipelines, size_in_bytes, structure_key


@dc.dataclass(frozen=True, eq=False)
class Step:
    """An equation, or one iteration of a scan over layers, that belongs to a stage as a whole.

    Attributes:
      eqn: the equation.
      iteration: the number of the iteration; None for an equation that is not cut.
      bytes_after: the bytes that pass to later steps if the function is cut after it.
      is_product: whether it is a product, or a lookup in a table of parameters.
      may_end: whether a segment may end with it.
    """

    eqn: jaxpr.JaxprEqn
    iteration: int | None
    bytes_after: int
    is_product: bool
    may_end: bool = True


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
    stage_of_step = np.searchsorted(starts, np.arange(len(steps)), side="right") - 1
    stages_of_eqn: dict[int, list[int]] = {}
    for step, stage in zip(steps, stage_of_step, strict=True):
        stages_of_eqn.setdefault(id(step.eqn), []).append(int(stage))
    closed = pipelines.write_stage_marks(function.closed, stages_of_eqn)
    return dc.replace(function, closed=closed), len(segments)


# --- steps and segments ---------------------------------------------------------------------------


def segment_function(function: TracedFunction) -> tuple[TracedFunction, list[Step], list[int]]:
    """Returns a function without calls of jitted ones, its steps, and where segments begin."""
    function = inline_calls(function)
    steps = list_steps(function, equations_of_stages(function))
    return function, steps, list_segments(steps)


def inline_calls(function: TracedFunction) -> TracedFunction:
    """Returns a function without calls of jitted ones."""
    return dc.replace(function, closed=pipelines.inline_jitted_calls(function.closed))


def equations_of_stages(function: TracedFunction) -> list[jaxpr.JaxprEqn]:
    """Lists what can be in a stage: equations that depend on parameters and the micro-batch."""
    with_parameters, with_elements = _variables_with_parameters_and_elements(function)
    return [
        eqn
        for eqn in function.closed.jaxpr.eqns
        if not with_parameters.isdisjoint(eqn.outvars)
        and (with_elements is None or not with_elements.isdisjoint(eqn.outvars))
    ]


def _variables_with_parameters_and_elements(
    function: TracedFunction,
) -> tuple[set[jaxpr.Var], set[jaxpr.Var] | None]:
    """Returns the variables that depend on parameters, and those on elements of the micro-batch.

    The second is None if no argument is split.
    """
    eqns, leaves = function.closed.jaxpr.eqns, function.leaves_by_variable()
    parameters = [v for v, a in leaves.items() if a.role in (Role.DIFFERENTIATED, Role.WHOLE)]
    elements = [v for v, a in leaves.items() if a.role in (Role.SPLIT, Role.FOLDED)]
    with_elements = pipelines.variables_depending_on(eqns, elements) if elements else None
    return pipelines.variables_depending_on(eqns, parameters), with_elements


def list_steps(function: TracedFunction, eqns: Sequence[jaxpr.JaxprEqn]) -> list[Step]:
    """Lists the steps of some equations of a function, with the bytes that pass behind each."""
    with_parameters, with_elements = _variables_with_parameters_and_elements(function)
    tables = with_parameters.difference(with_elements or ())
    passing = pipelines.bytes_between_equations(eqns)
    steps: list[Step] = []
    for number, eqn in enumerate(eqns):
        count = _number_of_layers(eqn)
        is_product = pipelines.has_product(eqn) or _looks_up(eqn, tables)
        if count is not None:
            sizes = _list_bytes_between_iterations(eqns, number)
            steps += [Step(eqn, i, size, is_product) for i, size in enumerate(sizes)]
        last = None if count is None else count - 1
        steps.append(Step(eqn, last, int(passing[number + 1]), is_product))
    return steps


def _looks_up(eqn: jaxpr.JaxprEqn, tables: set[jaxpr.Var]) -> bool:
    """Returns whether an equation takes rows of a table, as an embedding does."""
    return eqn.primitive.name == "gather" and eqn.invars[0] in tables


def _number_of_layers(eqn: jaxpr.JaxprEqn) -> int | None:
    """Returns the number of iterations of a scan over layers; None for any other equation."""
    if eqn.primitive.name != "scan" or eqn.params["length"] < 2 or eqn.effects:
        return None
    num_consts, num_carry = jaxpr.count_scan_constants_and_variables(eqn)
    has_layers = len(eqn.invars) > num_consts + num_carry
    return eqn.params["length"] if has_layers and pipelines.has_product(eqn) else None


def _list_bytes_between_iterations(eqns: Sequence[jaxpr.JaxprEqn], number: int) -> list[int]:
    """Lists the bytes that pass each boundary between iterations of a scan, `eqns[number]`.

    That is what it carries, and what equations before it compute that all iterations or equations
    behind it read; of computed slices those to come, and of stacked results those made by then.
    """
    scan = eqns[number]
    num_consts, num_carry = jaxpr.count_scan_constants_and_variables(scan)
    first_slices, length = num_consts + num_carry, int(scan.params["length"])
    computed_before = {v for eqn in eqns[:number] for v in eqn.outvars}
    later = {*pipelines.unique_variables([a for eqn in eqns[number + 1 :] for a in eqn.invars])}
    constants = pipelines.unique_variables(scan.invars[:num_consts])
    whole_values = computed_before & later.union(constants)
    slices = [
        v for v in pipelines.unique_variables(scan.invars[first_slices:]) if v in computed_before
    ]
    constant = sum(
        size_in_bytes(v.aval) for v in [*whole_values, *scan.invars[num_consts:first_slices]]
    )
    coming = sum(size_in_bytes(v.aval) for v in slices if v not in whole_values)
    stacked = sum(size_in_bytes(v.aval) for v in scan.outvars[num_carry:] if v in later)
    return [
        constant + (coming * (length - done) + stacked * done) // length
        for done in range(1, length)
    ]


def list_segments(steps: Sequence[Step]) -> list[int]:
    """Returns the steps at which segments begin, the first of which is 0.

    A segment ends between one product and the next, where the fewest bytes pass; of equal places
    it is the last, since a nonlinearity belongs to the product before it.
    """
    starts, cheapest, has_product = [0], None, False
    for number, step in enumerate(steps):
        if step.is_product:
            has_product = True
            if cheapest is not None:
                starts.append(cheapest + 1)
                cheapest = None
        if (
            has_product
            and step.may_end
            and (cheapest is None or step.bytes_after <= steps[cheapest].bytes_after)
        ):
            cheapest = number
    return starts


def _starts_of_stages(
    function: TracedFunction,
    steps: Sequence[Step],
    segments: Sequence[int],
    stages: int | Sequence[int],
) -> list[int]:
    """Returns the steps at which the stages begin."""
    count = stages if isinstance(stages, int) else len(stages) + 1
    if count > len(segments):
        raise check.value_error(
            f"`{function.name}` cannot be cut into {count} stages: it has {len(segments)} parts "
            "between its products (matrix products, convolutions, iterations over layers)",
            f"ask for at most {len(segments)} stages, or mark them with ipu.scopes.pipeline_stage",
        )
    if isinstance(stages, int):
        cycles = _cycles_of_segments(function.closed.jaxpr, steps, segments)
        starts = balance_with_equal_layers(cycles, _segments_of_layers(steps, segments), stages)
        return [segments[i] for i in starts]
    numbers = [0, *stages]
    if sorted(set(numbers)) != numbers or numbers[-1] >= len(segments):
        raise check.value_error(
            f"stages={list(stages)} are no cut points of `{function.name}`, whose segments are "
            f"0 to {len(segments) - 1}",
            "give the segments at which the stages after the first begin, in ascending order",
        )
    return [segments[i] for i in numbers]


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
        for before in range(parts - count + 1)
        if (
            starts := _balance_around_layers(costs, layers, count, (before, parts - count - before))
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


def _costliest(costs: Sequence[float], starts: Sequence[int]) -> float:
    ends = (*starts[1:], len(costs))
    return max(sum(costs[start:end]) for start, end in zip(starts, ends, strict=True))


def balance(costs: Sequence[float], parts: int) -> list[int]:
    """Returns where each of some consecutive parts begins, so that the costliest costs least.

    Args:
      costs: of the entries.
      parts: how many there are to be, at most as many as entries; none is empty.
    """
    total = np.concatenate([[0.0], np.cumsum(costs)])
    count = len(costs)
    worst = np.full(count + 1, np.inf)
    worst[0] = 0.0
    choices: list[np.ndarray] = []
    for part in range(parts):
        next_worst, choice = np.full(count + 1, np.inf), np.zeros(count + 1, int)
        for end in range(part + 1, count + 1):
            candidates = np.maximum(worst[:end], total[end] - total[:end])
            choice[end] = int(candidates.argmin())
            next_worst[end] = candidates[choice[end]]
        choices.append(choice)
        worst = next_worst
    starts: list[int] = []
    end = count
    for choice in reversed(choices):
        end = int(choice[end])
        starts.append(end)
    return starts[::-1]
