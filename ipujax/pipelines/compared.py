"""How the numbers of a pipeline differ from those of the unpipelined step, in a table and words."""

from __future__ import annotations

import dataclasses as dc
import itertools
import textwrap
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ipujax.errors import PipelineError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod
from ipujax.host.tables import table
from ipujax.pipelines.values import check
from lowering import lists

Pair = tuple[str, ArrayLike, ArrayLike]
"""What it is, as the pipeline has it, as the reference has it."""

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
    """One array, pipelined and not.

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
        """Whether the difference passes; one that is no number does not."""
        return self.difference <= self.allowed

    @property
    def excess(self) -> float:
        """The difference in units of what passes."""
        if not np.isfinite(self.difference):
            return float("inf")
        return self.difference / self.allowed if self.allowed else self.difference * float("inf")

    @property
    def kind(self) -> str:
        """What the name begins with."""
        return next(kind for kind in KINDS if self.name.startswith(kind))

    @property
    def only_scaled(self) -> bool:
        """Whether the two differ by a factor and nothing else."""
        tolerance = self.allowed * max(1.0, abs(self.scale))
        return not self.ok and self.scale != 0 and self.scaled_difference <= tolerance


@check.guard
@lists()
@dc.dataclass(frozen=True)
class PipelineCheck:
    """What `check_pipeline` found; `print` it.

    Attributes:
      rows: one for each array and schedule.
      micro_batches: of one weight update.
      replicas: copies of the pipeline.
      reduction: how the gradients of micro-batches became one.
      rtol: as given.
      atol: as given.
    """

    rows: tuple[Difference, ...]
    micro_batches: int
    replicas: int
    reduction: GradientAccumulationReductionMethod
    rtol: float
    atol: float

    @property
    def ok(self) -> bool:
        """Whether all differences pass."""
        return all(row.ok for row in self.rows)

    @property
    def worst(self) -> Difference:
        """The row with the largest difference, measured by what passes."""
        return max(self.rows, key=lambda row: (row.excess, row.relative))

    @property
    def findings(self) -> list[str]:
        """What differs, in sentences; none if all is well."""
        groups = itertools.groupby(self.rows, key=lambda row: row.schedule)
        by_schedule = {schedule: self._findings(list(rows)) for schedule, rows in groups}
        said = list(by_schedule.values()) or [[]]
        if all(texts == said[0] for texts in said):
            return said[0]
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
        return "\n".join([head, *self._table(), *notes])

    def _table(self) -> list[str]:
        shown = self._shown()
        cells = [("", "schedule", "what", "difference", "relative", "times", "")]
        for row in shown:
            mark, verdict = ">" if row is self.worst else "", "" if row.ok else "DIFFERS"
            numbers = f"{row.difference:.1e}", f"{row.relative:.1e}", f"{row.scale:.6g}"
            cells.append((mark, row.schedule, row.name, *numbers, verdict))
        lines = table(cells, texts=(0, 1, 2, 6))
        left_out = len(self.rows) - len(shown)
        return [*lines, f"   ... and {left_out} more that agree"] if left_out else lines

    def _shown(self) -> Sequence[Difference]:
        if len(self.rows) <= MAX_ROWS:
            return self.rows
        worst: dict[tuple[str, str], Difference] = {}
        for row in self.rows:
            kept = worst.setdefault((row.schedule, row.kind), row)
            if row.excess > kept.excess:
                worst[row.schedule, row.kind] = row
        return [row for row in self.rows if not row.ok or row is worst[row.schedule, row.kind]]

    # --- in words ---------------------------------------------------------------------------------

    def _findings(self, rows: Sequence[Difference]) -> list[str]:
        findings: list[str] = []
        for kind in KINDS:
            of_kind = [row for row in rows if row.kind == kind and not np.isnan(row.scale)]
            wrong = [row for row in of_kind if not row.ok]
            scaled = [row for row in wrong if row.only_scaled]
            # Arrays of zeros agree at any scale.
            telling = [row for row in of_kind if row.scale or not row.ok]
            for factor, group in _by_factor(scaled):
                every = len(group) == len(telling) and len(group) > 1
                who = f"all {_plural(kind)}" if every else _listed(group)
                times = f"{'are' if len(group) > 1 else 'is'} {factor:.6g} times the reference's"
                findings.append(f"{who} {times}{self._meaning(kind, factor)}")
            rest = [row for row in wrong if row not in scaled]
            if rest:
                verb = "differ" if len(rest) > 1 else "differs"
                findings.append(f"{_listed(rest)} {verb}, not just by a factor")
        odd = [row for row in rows if not np.isfinite(row.difference)]
        if odd:
            findings.append(
                f"only one of the two has numbers that are not finite in {_listed(odd)}"
            )
        return findings

    def _meaning(self, kind: str, factor: float) -> str:
        """What a factor looks like."""
        count, replicas = self.micro_batches, self.replicas
        sums = self.reduction is GradientAccumulationReductionMethod.SUM
        if count > 1 and (_is(factor, count) or _is(factor, 1 / count)):
            what = f": {count} is the number of micro-batches"
            if sums != _is(factor, count) or not kind.startswith("gradient"):
                return what
            does = f"averages {count} of them, where the reference adds them up"
            instead = "SUM would add them up"
            if sums:
                does = f"adds {count} of them up, where the reference averages"
                instead = "MEAN would average"
            return (
                f"{what}. The pipeline's reduction_method={self.reduction.name} {does}; "
                f"reduction_method={instead}"
            )
        if replicas > 1 and (_is(factor, replicas) or _is(factor, 1 / replicas)):
            return f": {replicas} is the number of replicas, over which one side averages"
        if _is(factor, -1):
            return ": the sign is the other one"
        if count > 1 and replicas > 1 and _is(factor, count * replicas):
            return f": {factor:.6g} is the number of micro-batches times that of replicas"
        return ""


def _is(factor: float, other: float) -> bool:
    return abs(factor - other) <= 1e-3 * abs(other)


def _by_factor(rows: Iterable[Difference]) -> list[tuple[float, list[Difference]]]:
    """Rows with nearly the same scale together."""
    groups: list[tuple[float, list[Difference]]] = []
    for row in rows:
        group = next((rows for factor, rows in groups if _is(row.scale, factor)), None)
        if group is None:
            groups.append((row.scale, [row]))
        else:
            group.append(row)
    return groups


def _listed(rows: Sequence[Difference]) -> str:
    names = [row.name for row in rows]
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _plural(kind: str) -> str:
    plurals = {
        "loss": "losses",
        "updated": "updated variables",
        "optimizer state": kind,
        "state": kind,
    }
    return plurals.get(kind, kind.replace("gradient", "gradients").replace("output", "outputs"))


def schedule_name(schedule: object) -> str:
    """What to call a schedule, however it was given."""
    if schedule is None:
        return "default"
    inner = getattr(schedule, "func", schedule)  # functools.partial
    return str(getattr(inner, "name", None) or getattr(inner, "__name__", type(inner).__name__))


def compare(schedule: str, pairs: Iterable[Pair], rtol: float, atol: float) -> list[Difference]:
    """The differences of pairs of arrays.

    Raises:
      PipelineError: two of different shapes.
    """
    return [_difference(schedule, *pair, rtol, atol) for pair in pairs]


def _without_key_types(array: ArrayLike) -> ArrayLike:
    """The numbers of typed random keys; other arrays as they are."""
    is_key = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_key else array


def _difference(
    schedule: str, name: str, mine: ArrayLike, theirs: ArrayLike, rtol: float, atol: float
) -> Difference:
    mine, theirs = _without_key_types(mine), _without_key_types(theirs)
    wide = complex if np.iscomplexobj(mine) or np.iscomplexobj(theirs) else float
    a, b = np.asarray(mine).astype(wide), np.asarray(theirs).astype(wide)
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
        left = float(np.abs(a - scale * b).max(initial=0.0))
    if not np.isfinite(distance).all():
        difference = float("inf")
    return Difference(
        schedule=schedule,
        name=name,
        difference=difference,
        relative=difference / largest if largest else (float("inf") if difference else 0.0),
        scale=scale,
        scaled_difference=left,
        allowed=atol + rtol * largest if np.isfinite(largest) else atol,
    )
