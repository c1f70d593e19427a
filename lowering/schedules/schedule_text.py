"""Schedules as text that can be stored, compared line by line, written by hand and read again.

A header line, then a line for each tick with the tasks in the order in which they are dispatched;
`-` is an empty tick:

    schedule sequential: stages=2 micro_batches=1 training=yes ipus=0/1 ticks=4
    0F0
    1F0
    1B0
    0B0

`ipus` has an entry for each stage, with commas between the IPUs of one stage. Further copies of the
stages follow as `copies=1/0 pattern=0,1`: `|` is between copies, and micro-batches are in the
copies of the pattern, which repeats; `segments=2` makes two micro-batches one sequence, and
`needs=2F:0F;0B:1B,2B` says what tasks wait for on other stages. `ticks` may be left out; with it, a
text without its end is an error. Blank lines do not count, nor do comments,
from a `#` at the beginning of a line or after a space.
"""

from __future__ import annotations

import re

from lowering.schedules.needs_table import needs_from_text, needs_to_text
from lowering.schedules.schedule import Schedule
from lowering.schedules.schedule_errors import ScheduleError, check_instance
from lowering.schedules.task import Groups, Task
from lowering.schedules.ticks import Tick, fold_repeated_ticks

_HEADER = re.compile(
    r"schedule (?P<name>\S.*): stages=(?P<stages>\d{1,18}) "
    r"micro_batches=(?P<micro_batches>\d{1,18}) "
    r"training=(?P<training>yes|no) "
    r"ipus=(?P<ipus>\d{1,18}(?:[,/]\d{1,18})*)"
    r"(?: copies=(?P<copies>\d{1,18}(?:[,/|]\d{1,18})*) pattern=(?P<pattern>\d+(?:,\d+)*))?"
    r"(?: segments=(?P<segments>\d{1,18}))?"
    r"(?: needs=(?P<needs>[\dFB:;,]+))?"
    r"(?: ticks=(?P<ticks>\d{1,18}))?"
)
_COMMENT = re.compile(r"(^|\s)#.*")
_EMPTY = "-"


def to_text(schedule: Schedule) -> str:
    """Returns the schedule as text, from which `from_text` makes an equal one."""
    check_instance(schedule, Schedule, "the argument of `to_text`")
    lines = [
        f"schedule {schedule.name}: stages={schedule.stages} "
        f"micro_batches={schedule.micro_batches} training={'yes' if schedule.training else 'no'} "
        f"ipus={_placing_text(schedule.ipus)}{_copies_text(schedule)} ticks={len(schedule.ticks)}"
    ]
    lines += [" ".join(map(str, tick)) or _EMPTY for tick in schedule.ticks]
    return "\n".join(lines) + "\n"


def from_text(text: str, *, source: str = "") -> Schedule:
    """Reads the schedule of a text in the form of this module's docstring.

    Only the form is checked; `simulate` checks whether a pipeline can follow the schedule.

    Args:
      text: the text.
      source: the file or place that it comes from, for messages.

    Raises:
      ScheduleError: a line that is not understood, or fewer or more ticks than announced.
    """
    check_instance(text, str, "the text of a schedule")
    lines = [
        (number, line)
        for number, raw in enumerate(text.splitlines(), 1)
        if (line := _COMMENT.sub("", raw).strip())
    ]
    header = _HEADER.fullmatch(lines[0][1]) if lines else None
    if header is None:
        raise ScheduleError(
            f"the text of a schedule begins with {lines[0][1]!r}" if lines else "an empty text",
            where=_location_in_text(source, lines[0][0] if lines else 1),
            fix="begin with: schedule NAME: stages=2 micro_batches=4 training=yes ipus=0/1",
        )
    ticks = fold_repeated_ticks([_read_tick(line, number, source) for number, line in lines[1:]])
    if header["ticks"] is not None and int(header["ticks"]) != len(ticks):
        raise ScheduleError(
            f"{len(ticks)} ticks in a text that announces {header['ticks']}",
            where=_location_in_text(source, lines[-1][0]),
            fix="restore the lines that are missing; after a change by hand, correct `ticks=` or "
            "leave it out",
        )
    try:
        return Schedule(
            name=header["name"],
            stages=int(header["stages"]),
            micro_batches=int(header["micro_batches"]),
            training=header["training"] == "yes",
            ipus=_read_placing(header["ipus"]),
            ticks=ticks,
            copies=_read_copies(header["ipus"], header["copies"]),
            copy_pattern=tuple(map(int, (header["pattern"] or "0").split(","))),
            segments=int(header["segments"] or 1),
            needs_table=needs_from_text(header["needs"]) if header["needs"] else (),
        )
    except ScheduleError as error:
        location = _location_in_text(source, lines[0][0])
        raise ScheduleError(error.summary, where=location, fix=error.fix) from None


def _placing_text(placing: Groups) -> str:
    return "/".join(",".join(map(str, group)) for group in placing)


def _copies_text(schedule: Schedule) -> str:
    """Returns the entries for further copies, segments and needs; "" where there are none."""
    text = ""
    if len(schedule.copies) > 1:
        pattern = ",".join(map(str, schedule.copy_pattern))
        text = f" copies={'|'.join(map(_placing_text, schedule.copies[1:]))} pattern={pattern}"
    if schedule.segments > 1:
        text += f" segments={schedule.segments}"
    return f"{text} needs={needs_to_text(schedule.needs_table)}" if schedule.needs_table else text


def _read_placing(text: str) -> Groups:
    return tuple(tuple(map(int, group.split(","))) for group in text.split("/"))


def _read_copies(first: str, other_copies: str | None) -> tuple[Groups, ...]:
    return tuple(map(_read_placing, [first, *(other_copies.split("|") if other_copies else [])]))


def _read_tick(line: str, number: int, source: str) -> Tick:
    if line == _EMPTY:
        return ()
    try:
        return tuple(map(Task.parse, line.split()))
    except ScheduleError as error:
        raise ScheduleError(
            error.summary,
            where=_location_in_text(source, number),
            fix=f"{error.fix}; an empty tick is `-`",
        ) from None


def _location_in_text(source: str, line: int) -> str:
    return f"{source}:{line}" if source else f"line {line} of the text"
