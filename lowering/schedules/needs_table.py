"""Tables of what tasks wait for on other stages: pipelines that branch, for example.

Without a table a forward task waits for that of the stage before, and a backward task for that of
the stage after. What they wait for on their own stage is the same in all pipelines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from lowering.schedules.schedule_errors import ScheduleError, check_instance, repr_or_type
from lowering.schedules.task import Kind, Phase, inputs_on_stage

NeedsTable: TypeAlias = tuple[tuple[Kind, tuple[Kind, ...]], ...]
"""For kinds of tasks, in ascending order, the kinds on other stages that they wait for."""

_LABEL = re.compile(r"(\d{1,18})([FB])", re.ASCII)
_FIX = (
    'give for stages and phases, as "2F", what they wait for on other stages: F for F, and F or B '
    'for B, as in {"2F": ["0F", "1F"]}'
)


def read_needs(needs: Mapping[Any, Iterable[Any]] | None, stages: int) -> NeedsTable:
    """Reads a user's table, and completes it: gradients come back the way that results went.

    Args:
      needs: for labels such as "2F" the labels that such a task waits for, of the same
        micro-batch; tasks that are not there wait for the usual ones. Without an entry of its own
        a backward task waits for those of all stages whose forward task waits for its stage's.
      stages: the forward stages.

    Raises:
      ScheduleError: what is no table, or names stages that there are not.
    """
    if needs is None:
        return ()
    check_instance(needs, Mapping, "the argument `needs`")
    given_entries = {
        _read_label(label): tuple(
            sorted({_read_label(needed_label) for needed_label in _read_entry(needed_labels)})
        )
        for label, needed_labels in needs.items()
    }
    check_needs_table(tuple(sorted(given_entries.items())), stages)
    forward = {
        stage: given_entries.get((Phase.FORWARD, stage), usual_needs(Phase.FORWARD, stage, stages))
        for stage in range(stages)
    }
    table: dict[Kind, tuple[Kind, ...]] = {
        (Phase.BACKWARD, stage): tuple(
            (Phase.BACKWARD, reader)
            for reader, inputs in forward.items()
            if (Phase.FORWARD, stage) in inputs
        )
        for stage in range(stages)
    }
    table |= given_entries
    different = {
        kind: needed_kinds
        for kind, needed_kinds in table.items()
        if needed_kinds != usual_needs(*kind, stages)
    }
    return tuple(sorted(different.items()))


def inputs_of_task(phase: Phase, stage: int, stages: int) -> tuple[Kind, ...]:
    """Returns the kinds of tasks whose results one of F, B and W reads, without a table."""
    return (*inputs_on_stage(phase, stage), *usual_needs(phase, stage, stages))


def usual_needs(phase: Phase, stage: int, stages: int) -> tuple[Kind, ...]:
    """Returns the kinds of tasks on other stages that one of a kind waits for, without a table."""
    if phase == Phase.FORWARD and stage > 0:
        return ((Phase.FORWARD, stage - 1),)
    if phase == Phase.BACKWARD and stage < stages - 1:
        return ((Phase.BACKWARD, stage + 1),)
    return ()


def check_needs_table(table: Any, stages: int) -> None:
    """Raises if a table is not in its form, or does not fit the stages.

    Raises:
      ScheduleError: it names the entry.
    """
    try:
        entries = [(*kind, tuple(needed_kinds)) for kind, needed_kinds in table]
    except (TypeError, ValueError):
        raise ScheduleError(f"needs_table={repr_or_type(table)}", fix=_FIX) from None
    for phase, stage, needed_kinds in entries:
        allowed = {Phase.FORWARD: "F", Phase.BACKWARD: "FB"}.get(phase, "")
        label = _write_label((phase, stage))
        if not allowed or not 0 <= stage < stages:
            raise ScheduleError(f"needs of {label} with {stages} stages", fix=_FIX)
        for needed_phase, needed_stage in needed_kinds:
            if (
                needed_phase not in allowed
                or not 0 <= needed_stage < stages
                or needed_stage == stage
            ):
                raise ScheduleError(
                    f"{label} that waits for {needed_stage}{needed_phase}, with {stages} stages",
                    fix=_FIX,
                )
    if [kind for kind, _ in table] != sorted({kind for kind, _ in table}):
        raise ScheduleError(f"the order of the entries of needs_table={table!r}", fix="sort them")


def needs_to_text(table: NeedsTable) -> str:
    """Returns a table as text: `1F:0F;2F:0F,1F`."""
    return ";".join(
        f"{_write_label(kind)}:{','.join(map(_write_label, needed_kinds))}"
        for kind, needed_kinds in table
    )


def needs_from_text(text: str) -> NeedsTable:
    """Returns the table of a text that `needs_to_text` has written.

    Raises:
      ScheduleError: another text.
    """
    table: list[tuple[Kind, tuple[Kind, ...]]] = []
    for entry in text.split(";"):
        label, _, needed_text = entry.partition(":")
        needed_labels = filter(None, needed_text.split(","))
        table.append((_read_label(label), tuple(map(_read_label, needed_labels))))
    return tuple(table)


def _read_entry(needed_labels: Any) -> Iterable[Any]:
    if isinstance(needed_labels, str) or not isinstance(needed_labels, Iterable):
        raise ScheduleError(f"{repr_or_type(needed_labels)} in a table of needs", fix=_FIX)
    return cast(Iterable[Any], needed_labels)


def _read_label(label: Any) -> Kind:
    parts = _LABEL.fullmatch(label) if isinstance(label, str) else None
    if parts is None:
        raise ScheduleError(f"{repr_or_type(label)} in a table of needs", fix=_FIX)
    return Phase(parts[2]), int(parts[1])


def _write_label(kind: Kind) -> str:
    phase, stage = kind
    return f"{stage}{phase}"
