"""The differences between a pipeline and the unpipelined step, as a table and in words."""

from __future__ import annotations

import dataclasses as dc
import itertools
import textwrap
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.ground import PipelineError, format_columns
from ipujax.optimizers import GradientAccumulationReductionMethod
from ipujax.pipelines import check
from lowering import limit_dir_to

Pair = tuple[str, ArrayLike, ArrayLike]
"""The name of an array, its value in the pipeline, and its value in the reference."""

MAX_ROWS = 24  # of a table; above, what agrees is cut down to the worst of each kind
KINDS = (
    "gradient over replicas",
    "gradient",
    "updated",
    "optimizer state",
    "state",
    "loss",
    "output",
)


@check.guard
@dc.dataclass(frozen=True)
class Difference:
    """The difference between a pipelined array and its reference.

    Attributes:
      schedule: the name of the schedule.
      name: what it is, such as `gradient ['dense']['w']`.
      difference: the largest absolute difference of two numbers.
      relative: the same as a part of the reference's largest number.
      scale: the factor by which the reference must be multiplied to come closest to the pipeline.
      scaled_difference: the largest absolute difference that is left then.
      allowed: the largest difference that passes.
    """

    schedule: str
    name: str
    difference: float
    relative: float
    scale: float
    scaled_difference: float
    allowed: float

    @property
    def ok(self) -> bool:
        """True if the difference passes; NaN does not."""
        return self.difference <= self.allowed

    @property
    def excess(self) -> float:
        """The difference in units of what passes."""
        if not np.isfinite(self.difference):
            return float("inf")
        return self.difference / self.allowed if self.allowed else self.difference * float("inf")

    @property
    def kind(self) -> str:
        """The kind of the array, with which its name begins."""
        return next(kind for kind in KINDS if self.name.startswith(kind))

    @property
    def only_scaled(self) -> bool:
        """True if the two arrays differ by a constant factor only."""
        tolerance = self.allowed * max(1.0, abs(self.scale))
        return not self.ok and self.scale != 0 and self.scaled_difference <= tolerance


@check.guard
@limit_dir_to()
@dc.dataclass(frozen=True)
class PipelineCheck:
    """The result of `check_pipeline`; `print` it.

    Attributes:
      rows: one for each array and schedule.
      micro_batches: the number of micro-batches in one weight update.
      replicas: copies of the pipeline.
      reduction: the way in which the gradients of micro-batches were combined.
      rtol: the relative tolerance of the check.
      atol: the absolute tolerance of the check.
    """

    rows: tuple[Difference, ...]
    micro_batches: int
    replicas: int
    reduction: GradientAccumulationReductionMethod
    rtol: float
    atol: float

    @property
    def ok(self) -> bool:
        """True if all differences pass."""
        return all(row.ok for row in self.rows)

    @property
    def worst(self) -> Difference:
        """The row with the largest difference, measured by what passes."""
        return max(self.rows, key=lambda row: (row.excess, row.relative))

    @property
    def findings(self) -> list[str]:
        """The sentences that explain the differences; none if all arrays agree."""
        groups = itertools.groupby(self.rows, key=lambda row: row.schedule)
        by_schedule = {schedule: self._explain_differences(list(rows)) for schedule, rows in groups}
        texts_by_schedule = list(by_schedule.values()) or [[]]
        if all(texts == texts_by_schedule[0] for texts in texts_by_schedule):
            return texts_by_schedule[0]
        return [f"{name}: {text}" for name, texts in by_schedule.items() for text in texts]

    def raise_if_different(self) -> None:
        """Raises unless `ok`.

        Raises:
          PipelineError: (a `ValueError`) its message is the table, with the findings.
        """
        if not self.ok:
            raise PipelineError(str(self))

    def __str__(self) -> str:
        of = f"{self.micro_batches} micro-batches"
        if self.replicas > 1:
            of += f" on each of {self.replicas} replicas"
        agree = sum(row.ok for row in self.rows)
        verdict = f"all {agree} arrays agree" if self.ok else f"{agree} of {len(self.rows)} agree"
        head = f"pipeline against the unpipelined step, {of}: {verdict}"
        notes = [
            textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="    ")
            for text in self.findings
        ]
        return "\n".join([head, *self._table_lines(), *notes])

    def _table_lines(self) -> list[str]:
        selected_rows = self._select_rows()
        cells = [("", "schedule", "what", "difference", "relative", "times", "")]
        for row in selected_rows:
            mark, verdict = ">" if row is self.worst else "", "" if row.ok else "DIFFERS"
            numbers = f"{row.difference:.1e}", f"{row.relative:.1e}", f"{row.scale:.6g}"
            cells.append((mark, row.schedule, row.name, *numbers, verdict))
        lines = format_columns(cells, left_columns=(0, 1, 2, 6))
        left_out = len(self.rows) - len(selected_rows)
        return [*lines, f"   ... and {left_out} more that agree"] if left_out else lines

    def _select_rows(self) -> Sequence[Difference]:
        if len(self.rows) <= MAX_ROWS:
            return self.rows
        worst: dict[tuple[str, str], Difference] = {}
        for row in self.rows:
            worst_row = worst.setdefault((row.schedule, row.kind), row)
            if row.excess > worst_row.excess:
                worst[row.schedule, row.kind] = row
        return [row for row in self.rows if not row.ok or row is worst[row.schedule, row.kind]]

    # --- in words ---------------------------------------------------------------------------------

    def _explain_differences(self, rows: Sequence[Difference]) -> list[str]:
        findings: list[str] = []
        for kind in KINDS:
            of_kind = [row for row in rows if row.kind == kind and not np.isnan(row.scale)]
            wrong = [row for row in of_kind if not row.ok]
            scaled = [row for row in wrong if row.only_scaled]
            # Arrays of zeros agree at any scale.
            telling = [row for row in of_kind if row.scale or not row.ok]
            for factor, group in _group_by_factor(scaled):
                every = len(group) == len(telling) and len(group) > 1
                subject = f"all {_plural_of_kind(kind)}" if every else _join_row_names(group)
                times = f"{'are' if len(group) > 1 else 'is'} {factor:.6g} times the reference's"
                findings.append(f"{subject} {times}{self._explain_factor(kind, factor)}")
            unscaled = [row for row in wrong if row not in scaled]
            if unscaled:
                verb = "differ" if len(unscaled) > 1 else "differs"
                findings.append(f"{_join_row_names(unscaled)} {verb}, not just by a factor")
        odd = [row for row in rows if not np.isfinite(row.difference)]
        if odd:
            findings.append(
                f"only one of the two has numbers that are not finite in {_join_row_names(odd)}"
            )
        return findings

    def _explain_factor(self, kind: str, factor: float) -> str:
        """Explains a factor between pipeline and reference, if it looks like a familiar one."""
        count, replicas = self.micro_batches, self.replicas
        sums = self.reduction is GradientAccumulationReductionMethod.SUM
        if count > 1 and (_is_nearly(factor, count) or _is_nearly(factor, 1 / count)):
            explanation = f": {count} is the number of micro-batches"
            if sums != _is_nearly(factor, count) or not kind.startswith("gradient"):
                return explanation
            does = f"averages {count} of them, where the reference adds them up"
            instead = "SUM would add them up"
            if sums:
                does = f"adds {count} of them up, where the reference averages"
                instead = "MEAN would average"
            return (
                f"{explanation}. The pipeline's reduction_method={self.reduction.name} {does}; "
                f"reduction_method={instead}"
            )
        if replicas > 1 and (_is_nearly(factor, replicas) or _is_nearly(factor, 1 / replicas)):
            return f": {replicas} is the number of replicas, over which one side averages"
        if _is_nearly(factor, -1):
            return ": the sign is the other one"
        if count > 1 and replicas > 1 and _is_nearly(factor, count * replicas):
            return f": {factor:.6g} is the number of micro-batches times that of replicas"
        return ""


def _is_nearly(factor: float, expected: float) -> bool:
    return abs(factor - expected) <= 1e-3 * abs(expected)


def _group_by_factor(rows: Iterable[Difference]) -> list[tuple[float, list[Difference]]]:
    """Groups rows of nearly the same scale."""
    groups: list[tuple[float, list[Difference]]] = []
    for row in rows:
        group = next((rows for factor, rows in groups if _is_nearly(row.scale, factor)), None)
        if group is None:
            groups.append((row.scale, [row]))
        else:
            group.append(row)
    return groups


def _join_row_names(rows: Sequence[Difference]) -> str:
    names = [row.name for row in rows]
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _plural_of_kind(kind: str) -> str:
    plurals = {
        "loss": "losses",
        "updated": "updated variables",
        "optimizer state": kind,
        "state": kind,
    }
    return plurals.get(kind, kind.replace("gradient", "gradients").replace("output", "outputs"))


def schedule_name(schedule: object) -> str:
    """Returns the name of a schedule given as a function, an object, a name or None."""
    if schedule is None:
        return "default"
    if isinstance(schedule, str):
        return schedule
    wrapped_schedule = getattr(schedule, "func", schedule)  # functools.partial
    return str(
        getattr(wrapped_schedule, "name", None)
        or getattr(wrapped_schedule, "__name__", type(wrapped_schedule).__name__)
    )


def compare_pairs(
    schedule: str, pairs: Iterable[Pair], rtol: float, atol: float
) -> list[Difference]:
    """Computes the differences of pairs of arrays.

    Raises:
      PipelineError: two of different shapes.
    """
    return [_measure_difference(schedule, *pair, rtol, atol) for pair in pairs]


def _without_key_types(array: ArrayLike) -> ArrayLike:
    """Returns the numbers of typed random keys; other arrays as they are."""
    is_key = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_key else array


def _measure_difference(
    schedule: str,
    name: str,
    pipeline_array: ArrayLike,
    reference_array: ArrayLike,
    rtol: float,
    atol: float,
) -> Difference:
    pipeline_array, reference_array = (
        _without_key_types(pipeline_array),
        _without_key_types(reference_array),
    )
    wide = complex if np.iscomplexobj(pipeline_array) or np.iscomplexobj(reference_array) else float
    a, b = np.asarray(pipeline_array).astype(wide), np.asarray(reference_array).astype(wide)
    if a.shape != b.shape:
        raise PipelineError(
            f"{name} has the shape {list(a.shape)} in the pipeline and {list(b.shape)} in the "
            "reference",
            fix="let the reference return what the last stage does, of one micro-batch",
        )
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    a, b = np.where(same & ~np.isfinite(a), 0, a), np.where(same & ~np.isfinite(b), 0, b)
    with np.errstate(all="ignore"):
        distance = np.abs(a - b)
        largest = float(np.abs(b).max(initial=0.0))
        difference = float(distance.max(initial=0.0))
        norm = float(np.sum(np.abs(b) ** 2))
        scale = float(np.real(np.sum(a * np.conj(b)))) / norm if norm else float(not a.any())
        scaled_difference = float(np.abs(a - scale * b).max(initial=0.0))
    if not np.isfinite(distance).all():
        difference = float("inf")
    return Difference(
        schedule=schedule,
        name=name,
        difference=difference,
        relative=difference / largest if largest else (float("inf") if difference else 0.0),
        scale=scale,
        scaled_difference=scaled_difference,
        allowed=atol + rtol * largest if np.isfinite(largest) else atol,
    )
