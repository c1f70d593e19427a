"""The segments of a traced function, at whose ends it may be cut, and what they cost."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ipujax.pipelines.function_segments import Step, segment_function
from ipujax.pipelines.measured_costs import Window, list_windows, measure_pieces
from ipujax.pipelines.micro_batch_arguments import Role
from ipujax.pipelines.piece_costs import TARGET, Piece, PieceCosts, model_pieces
from ipujax.pipelines.segment_parameters import bytes_of_parameters
from ipujax.pipelines.single_argument_checks import check
from ipujax.pipelines.traced_function import TracedFunction
from ipujax.planner import Costs
from lowering import call_path, jaxpr, machine, pipelines


@dc.dataclass(frozen=True)
class Segment:
    """A part of a function that is in one stage as a whole.

    Attributes:
      first: the user's line that it begins with, as `model.py:17 (forward)`; "" if there is none.
        A line of an installed package only if no other called it.
      last: the line that it ends with.
      scope: the named scope that it begins in, or "".
      parameter_bytes: bytes of the parameters and constants that it is the first to read, and of
        the sums of gradients.
      bytes_after: bytes that pass to later segments, of one micro-batch.
    """

    first: str
    last: str
    scope: str
    parameter_bytes: float
    bytes_after: float


@dc.dataclass(frozen=True, eq=False)
class SegmentedFunction:
    """A traced function with its segments.

    Attributes:
      traced: the function as it was traced.
      function: the same without calls of jitted functions, which is cut.
      segments: the segments, in the order of the data.
    """

    traced: TracedFunction
    function: TracedFunction
    segments: tuple[Segment, ...]
    _parts: tuple[tuple[Step, ...], ...]
    _tied: tuple[tuple[int, int, float], ...]

    def compute_costs(self, *, are_measured: bool, differentiates: bool = True) -> Costs:
        """Computes the costs of the segments; equal pieces once.

        Args:
          are_measured: whether JAX's first device runs the pieces; otherwise the machine model of
            an IPU tells.
          differentiates: whether there is a backward pass.

        Raises:
          PipelineError: (a `ValueError`) equations that have no gradients, with their lines.
        """
        pieces = {piece.key: piece for part in self._parts for piece, _ in self._list_pieces(part)}
        distinct = [*pieces.values()]
        if are_measured:
            windows = [*self._list_windows([*pieces])]
            costs = measure_pieces(distinct, windows, differentiates)
        else:
            costs = model_pieces(distinct, differentiates)
        costs_of_key = dict(zip(pieces, costs, strict=True))
        rows = [self._add_pieces(part, costs_of_key) for part in self._parts]
        kept_bytes = [self._list_kept_bytes(part, costs_of_key) for part in self._parts]
        links = TARGET.links
        return Costs(
            forward=[row.forward for row in rows],
            backward=[row.backward for row in rows],
            weight=[row.weight for row in rows],
            parameter_bytes=[segment.parameter_bytes for segment in self.segments],
            activation_bytes=[row.activation_bytes for row in rows],
            workspace_bytes=[row.workspace_bytes for row in rows],
            cut_bytes=[segment.bytes_after for segment in self.segments[:-1]],
            bytes_per_second=math.inf
            if are_measured
            else links.bytes_per_second * min(links.to_neighbour, links.along),
            host_bytes_per_second=0.0 if are_measured else TARGET.remote_bytes_per_second,
            latency=0.0 if are_measured else machine.INTER_IPU_CYCLES / TARGET.clock_hz,
            shared_bytes=_list_shared_bytes(kept_bytes),
            tied_bytes=self._tied,
        )

    def take_stage(self, first: int, end: int) -> Piece:
        """Returns some segments, that have no iterations of a scan, as one function."""
        return self._cut_out([step.eqn for part in self._parts[first:end] for step in part])

    def _list_pieces(self, part: Sequence[Step]) -> Iterator[tuple[Piece, float]]:
        """Lists what is costed as a whole, and the part of it that a segment runs."""
        plain = [step.eqn for step in part if step.iteration is None]
        if plain:
            yield self._cut_out(plain), 1.0
        iterations = [step.eqn for step in part if step.iteration is not None]
        for _, group in itertools.groupby(iterations, key=id):
            eqns = [*group]
            yield self._cut_out(eqns[:1]), len(eqns) / eqns[0].params["length"]

    def _list_windows(self, keys: Sequence[Any]) -> Iterator[Window]:
        """Lists segments in a row to time as one; none of the iterations of a scan.

        Args:
          keys: those of the distinct pieces.
        """
        number_of_key = {key: number for number, key in enumerate(keys)}
        parts = [
            number_of_key[self._cut_out([step.eqn for step in part]).key]
            if all(step.iteration is None for step in part)
            else None
            for part in self._parts
        ]
        for first, end in list_windows(parts):
            numbers = tuple(number for number in parts[first:end] if number is not None)
            yield Window(numbers, functools.partial(self.take_stage, first, end))

    def _add_pieces(
        self, part: Sequence[Step], costs_of_key: Mapping[Any, PieceCosts]
    ) -> PieceCosts:
        total = PieceCosts(0.0, 0.0, 0.0, 0.0, 0.0)
        for piece, times in self._list_pieces(part):
            cost = costs_of_key[piece.key]
            total = PieceCosts(
                total.forward + cost.forward * times,
                total.backward + cost.backward * times,
                total.weight + cost.weight * times,
                total.activation_bytes + cost.activation_bytes * times,
                max(total.workspace_bytes, cost.workspace_bytes),
            )
        return total

    def _list_kept_bytes(
        self, part: Sequence[Step], costs_of_key: Mapping[Any, PieceCosts]
    ) -> dict[jaxpr.Var, float]:
        """Returns the variables that a segment keeps for its backward pass, with their bytes.

        Those alone that others may keep too, and none of the iterations of a scan.
        """
        eqns = [step.eqn for step in part if step.iteration is None]
        if not eqns:
            return {}
        reads, results = self._list_ends(eqns)
        ends = [*reads, *results]
        return {ends[i]: size for i, size in costs_of_key[self._cut_out(eqns).key].kept}

    def _cut_out(self, eqns: Sequence[jaxpr.JaxprEqn]) -> Piece:
        """Returns equations as a function."""
        body = self.function.closed.jaxpr
        reads, results = self._list_ends(eqns)
        is_parameter = tuple(v not in self._changing for v in reads)
        closed = pipelines.jaxpr_of_equations(body, reads, results, eqns)
        return Piece(closed, is_parameter, join_lines(_line_of(eqns[0]), _line_of(eqns[-1])))

    def _list_ends(self, eqns: Sequence[jaxpr.JaxprEqn]) -> tuple[list[jaxpr.Var], list[jaxpr.Var]]:
        """Returns what equations read from outside, and what they make that others read."""
        inside = {id(eqn) for eqn in eqns}
        outputs = dict.fromkeys(v for eqn in eqns for v in eqn.outvars if not jaxpr.is_dropped(v))
        results = [v for v in outputs if not inside.issuperset(self._readers.get(v, ()))]
        return [*pipelines.variables_read_from_outside(eqns, [])], results

    @functools.cached_property
    def _changing(self) -> set[jaxpr.Var]:
        """The variables that are not the same for all micro-batches."""
        leaves = self.function.leaves_by_variable()
        elements = [v for v, leaf in leaves.items() if leaf.role in (Role.SPLIT, Role.FOLDED)]
        eqns = self.function.closed.jaxpr.eqns
        return {*elements, *pipelines.variables_depending_on(eqns, elements)}

    @functools.cached_property
    def _readers(self) -> Mapping[jaxpr.Var, Sequence[int]]:
        """The `id`s of the equations that read each variable, and of the function for a result."""
        body = self.function.closed.jaxpr
        readers: dict[jaxpr.Var, list[int]] = {}
        for reader, atoms in [*((eqn, eqn.invars) for eqn in body.eqns), (body, body.outvars)]:
            for variable in pipelines.unique_variables(atoms):
                readers.setdefault(variable, []).append(id(reader))
        return readers


def join_lines(first: str, last: str) -> str:
    """Returns where something is that begins and ends with these lines."""
    return first if first == last else f"{first} to {last}"


def _line_of(eqn: jaxpr.JaxprEqn) -> str:
    """Returns the user's line behind an equation, not one of an installed package; or ""."""
    return next(iter(call_path(eqn)[::-1]), "")


def _list_shared_bytes(
    kept_bytes: Sequence[dict[jaxpr.Var, float]],
) -> list[tuple[int, int, float]]:
    """Lists what segments keep that an earlier one keeps too, as `Costs.shared_bytes`."""
    last_with: dict[jaxpr.Var, int] = {}
    shared: dict[tuple[int, int], float] = {}
    for number, sizes in enumerate(kept_bytes):
        for variable, size in sizes.items():
            if variable in last_with:
                pair = last_with[variable], number
                shared[pair] = shared.get(pair, 0.0) + size
            last_with[variable] = number
    return [(*pair, size) for pair, size in shared.items()]


def cut_into_segments(function: TracedFunction) -> SegmentedFunction:
    """Cuts a traced function into segments between its products.

    Raises:
      PipelineError: (a `ValueError`) a function without a product.
    """
    cut, steps, starts = segment_function(function)
    if not steps:
        raise check.value_error(
            f"`{function.name}` has nothing to cut: no product of the micro-batch with parameters",
            "pass the parameters as the arguments that argnums names, and the batch in others",
        )
    return build_segments(function, cut, steps, starts)


def build_segments(
    traced: TracedFunction, function: TracedFunction, steps: Sequence[Step], starts: Sequence[int]
) -> SegmentedFunction:
    """Builds the segments of a function from its steps.

    Args:
      traced: the function as it was traced.
      function: the same without calls of jitted functions.
      steps: its steps.
      starts: the steps at which segments begin.
    """
    ends = (*starts[1:], len(steps))
    parts = tuple(tuple(steps[a:b]) for a, b in zip(starts, ends, strict=True))
    sizes, tied = bytes_of_parameters(function, parts)
    segments = tuple(
        Segment(
            first=_line_of(part[0].eqn),
            last=_line_of(part[-1].eqn),
            scope=str(part[0].eqn.source_info.name_stack),
            parameter_bytes=size,
            bytes_after=float(part[-1].bytes_after),
        )
        for part, size in zip(parts, sizes, strict=True)
    )
    return SegmentedFunction(traced, function, segments, parts, tied)
