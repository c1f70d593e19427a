"""`ipu.compare`: one model on several chips and under several schedules, side by side."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ipujax.driver.compile_stages import Lowered
from ipujax.driver.compiler import CompiledFunction
from ipujax.driver.compiler import compile as _compile
from ipujax.ground import (
    Checks,
    ComparisonError,
    IPUError,
    Json,
    api_boundary,
    find_signature_mismatch,
    format_columns,
    format_duration,
    show_progress,
)
from ipujax.pipelines import PipelineSchedule, find_schedule, schedule_override
from ipujax.pipelines import schedules as _schedules
from ipujax.report import Bar, ProgramIndex, Report, draw_comparison
from ipujax.system import targets as _targets
from lowering import limit_dir_to

_check = Checks(ComparisonError, ComparisonError)


@_check.guard
@limit_dir_to()
@dc.dataclass(frozen=True, kw_only=True)
class Row:
    """The modelled figures of one schedule on one target; None for those that do not exist.

    Attributes:
      target: the chip's name, with its number of tiles where others have the same name.
      schedule: the schedule's name; "" for a program without a pipeline.
      fits: whether no tile needs more than it has.
      peak_tile_bytes: what the fullest tile holds.
      missing_bytes: what that tile lacks; 0 if the program fits.
      cycles: of one call.
      seconds: of one call.
      bubble_fraction: see `PipelineProfile`.
      utilisation: see `PipelineProfile`.
      throughput: elements per second, see `Report.throughput`.
      error: why there is no program for this combination; "" if there is.
      report: everything else.
    """

    target: str
    schedule: str
    fits: bool | None = None
    peak_tile_bytes: int | None = None
    missing_bytes: int | None = None
    cycles: int | None = None
    seconds: float | None = None
    bubble_fraction: float | None = None
    utilisation: float | None = None
    throughput: float | None = None
    error: str = ""
    report: Report | None = dc.field(default=None, repr=False, compare=False)


@_check.guard
@limit_dir_to()
@dc.dataclass(frozen=True)
class Comparison:
    """The result of `compare`: one row per schedule and target.

    Attributes:
      name: the program's.
      rows: by schedule, then by target, as they were asked for.
    """

    name: str
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Json]:
        """Returns the comparison as plain Python: `{"schema": 1, "name", "rows"}`."""
        names = [field.name for field in dc.fields(Row) if field.name != "report"]
        rows = [{name: getattr(row, name) for name in names} for row in self.rows]
        return {"schema": 1, "name": self.name, "rows": rows}

    def _repr_html_(self) -> str:
        """Returns a drawing for notebooks of the rows that can be drawn."""
        return draw_comparison(self.name, list(map(_row_bar, self.rows)))

    def __str__(self) -> str:
        """Returns the table as text."""
        header = ["target", "schedule", "fits", "fullest tile", "cycles", "time"]
        header += ["bubble", "utilisation", "elements a second"]
        text = format_columns([header, *map(_row_cells, self.rows)], left_columns=(0, 1))
        failed = (row for row in self.rows if row.error)
        errors = (f"{row.target}, {row.schedule or 'as written'}: {row.error}" for row in failed)
        return "\n".join([self.name, *text, *errors])


def _row_bar(row: Row) -> Bar:
    label = f"{row.target}, {row.schedule}" if row.schedule else row.target
    if row.report is None or row.peak_tile_bytes is None:
        return Bar(label, None, None)
    return Bar(label, row.seconds, row.peak_tile_bytes / row.report.memory.limit)


@_check.guard
@api_boundary
def compare(
    fn: Callable[..., object],
    args: Sequence[object] = (),
    *,
    targets: Iterable[str | _targets.Target] | None = None,
    schedules: Iterable[object] | None = None,
) -> Comparison:
    """Models a function on each chip under each schedule.

    Args:
      fn: a function, or what `ipu.compile` made of one.
      args: its arguments: arrays or `jax.ShapeDtypeStruct`.
      targets: chips or their names; None for all of `ipu.targets.names()`.
      schedules: for the pipelines that `fn` contains: names of `PipelineSchedule` or of functions
        of `ipujax.schedules`, or what `pipeline_schedule` takes; None for what the pipelines ask
        for themselves.

    Returns:
      A row for each schedule and target. A combination that cannot be lowered has its error in
      its row.

    Raises:
      TargetError: (a `ValueError`) a target that does not exist.
      ComparisonError: (a `ValueError`) what is no function, a schedule that does not exist,
        schedules for a function without a pipeline, args that fn does not take, or nothing to
        compare.
    """
    _check.require_function(fn, "fn", "give the function to model, or what ipu.compile made of one")
    _check.require_sequence(args, "args", "fn's arguments")
    _check_arguments(fn, args)
    chips = _check_targets(targets)
    labels = _distinct_labels(chips)
    chosen = _check_schedules(schedules)
    compiled = fn if isinstance(fn, CompiledFunction) else _compile(fn)
    rows: list[Row] = []
    with show_progress("compare", len(chips) * len(chosen)) as progress:
        for label, schedule in chosen:
            lowered = _lower_with_schedule(compiled, args, schedule)
            for name, chip in zip(labels, chips, strict=True):
                progress.show_step(f"{name} {label}")
                rows.append(_make_row(label, name, chip, lowered))
    return Comparison(compiled.program_name, tuple(rows))


def _check_arguments(fn: Callable[..., object], args: Sequence[object]) -> None:
    if refusal := find_signature_mismatch(fn, args, {}):
        signature, mismatch = refusal
        raise ComparisonError(
            f"args is a list or tuple of fn's arguments, and fn{signature} does not take these "
            f"{len(args)}: {mismatch}",
            fix="pass compare(fn, [params, x]) for fn(params, x), compare(fn, [params]) for "
            "fn(params)",
        )


def _distinct_labels(chips: Sequence[_targets.Target]) -> list[str]:
    """Returns the chips' names, with the number of tiles where several have the same name."""
    names = [chip.name for chip in chips]
    return [
        f"{chip.name} ({chip.tiles_per_ipu} tiles)" if names.count(chip.name) > 1 else chip.name
        for chip in chips
    ]


def _lower_with_schedule(
    compiled: CompiledFunction[..., Any], args: Sequence[object], schedule: object
) -> Lowered | IPUError:
    try:
        with schedule_override(schedule):
            lowered = compiled.lower(*args)
    except IPUError as error:
        return error
    except Exception as error:
        error.add_note(f"in ipu.compare, while tracing `{compiled.program_name}` with these args")
        raise
    if schedule is not None and not ProgramIndex(lowered.program).pipelines:
        raise ComparisonError(
            f"`{lowered.program.name}` contains no pipeline, so it has no schedule to compare",
            fix="leave out schedules, or give a function that calls pipelining_ops.pipeline",
        )
    return lowered


def _make_row(label: str, name: str, chip: _targets.Target, lowered: Lowered | IPUError) -> Row:
    if isinstance(lowered, IPUError):
        return Row(target=name, schedule=label, error=str(lowered))
    try:
        report = lowered.report(chip)
    except IPUError as error:
        return Row(target=name, schedule=label, error=str(error))
    pipeline = report.pipeline
    return Row(
        target=name,
        schedule=label or (pipeline.schedule if pipeline else ""),
        fits=report.memory.fits,
        peak_tile_bytes=int(report.memory.tile_peak_bytes.max()),
        missing_bytes=report.memory.missing_bytes,
        cycles=report.cycles,
        seconds=report.seconds,
        bubble_fraction=pipeline.bubble_fraction if pipeline else None,
        utilisation=pipeline.utilisation if pipeline else None,
        throughput=report.throughput,
        report=report,
    )


def _row_cells(row: Row) -> list[str]:
    if row.error:
        return [row.target, row.schedule, "error", *["-"] * 6]
    return [
        row.target,
        row.schedule or "-",
        "yes" if row.fits else "no",
        f"{row.peak_tile_bytes:,} B",
        f"{row.cycles:,}",
        "-" if row.seconds is None else format_duration(row.seconds),
        "-" if row.bubble_fraction is None else f"{row.bubble_fraction:.1%}",
        "-" if row.utilisation is None else f"{row.utilisation:.1%}",
        "-" if row.throughput is None else f"{row.throughput:,.1f}",
    ]


def _check_targets(targets: Iterable[str | _targets.Target] | None) -> list[_targets.Target]:
    if targets is None:
        return [_targets.named(name) for name in _targets.names()]
    if isinstance(targets, (str, _targets.Target)):
        targets = [targets]
    _check.require_iterable(targets, "targets", "chips, or their names")
    chips = [_targets.target_of(given_target) for given_target in targets]
    if not chips:
        raise ComparisonError("targets is empty", fix="leave it out for all chips")
    return chips


def _check_schedules(schedules: Iterable[object] | None) -> list[tuple[str, Any]]:
    """Returns pairs of a label and a schedule; the schedule None stands for the program's own."""
    if schedules is None:
        return [("", None)]
    if isinstance(schedules, (str, PipelineSchedule, _schedules.Schedule)) or callable(schedules):
        return [_parse_schedule(schedules)]
    _check.require_iterable(schedules, "schedules", "schedules, or their names")
    chosen = [_parse_schedule(given_schedule) for given_schedule in schedules]
    if not chosen:
        raise ComparisonError("schedules is empty", fix="leave it out for the program's own")
    return chosen


def _parse_schedule(schedule: object) -> tuple[str, Any]:
    chosen = find_schedule(schedule, "a schedule of compare", _check)
    if isinstance(schedule, str):
        return schedule, chosen
    if isinstance(chosen, (PipelineSchedule, _schedules.Schedule)):
        return chosen.name, chosen
    return getattr(chosen, "__name__", type(chosen).__name__), chosen
