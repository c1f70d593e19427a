"""The text of a plan: tables for people, and a drawing of its stages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ipujax.ground import (
    format_bytes,
    format_columns,
    format_duration,
    format_percent,
    shorten_call_path,
)
from lowering import parse_source_line, svg

if TYPE_CHECKING:
    from ipujax.planner.plan import Plan, PlannedStage

_WIDTH, _ROW, _TOP = 720, 26, 26
_PARTS = ("forward", svg.BLUE), ("backward", svg.ORANGE)
_MOST_CONSIDERED = 20  # rows of alternatives in the text


def describe_choice(plan: Plan) -> str:
    """Describes what is chosen, as `one_f_one_b of 4 stages, 16 micro-batches, recomputation`."""
    words = [f"{plan.schedule} of {len(plan.stages)} stages"]
    words.append(f"{plan.micro_batches} micro-batches")
    words += ["recomputation"] * plan.recompute + ["offloading"] * plan.offload
    if plan.replicas > 1:
        words.append(f"{plan.replicas} replicas")
    return ", ".join(words)


def describe_plan(plan: Plan) -> str:
    """Describes a plan as text: the choice, its stages, and why the alternatives lost."""
    fit = "" if plan.fits else "; it does not fit in memory"
    return "\n".join(
        [
            f"Plan: {describe_choice(plan)}{fit}",
            f"Time: {format_duration(plan.seconds)} an update, with a bubble of "
            f"{format_percent(plan.bubble)}",
            f"Proof: {_describe_proof(plan)}",
            "",
            *_list_stages(plan),
            "",
            "Considered, the best cut of each kind:",
            *_list_considered(plan),
        ]
    )


def _describe_proof(plan: Plan) -> str:
    proof = "no other cut is faster" if plan.proven else "not all cuts were tried"
    bound = f"nothing can be faster than {format_duration(plan.lower_bound)}"
    if plan.gap < 0.0005:
        return f"{proof}, and {bound}"
    return f"{proof}; {bound}, {format_percent(plan.gap)} of which is the gap"


def _list_stages(plan: Plan) -> list[str]:
    """Returns the table of stages, with the bytes of an IPU in the row of its first stage."""
    has_lines = any(stage.first for stage in plan.stages)
    rows = [["stage", "IPU", "segments", "forward", "backward", "parameters", "activations",
             "transfer in", "IPU needs", *["from"] * has_lines, *["to"] * has_lines]]  # fmt: skip
    listed_ipus: set[int] = set()
    for number, stage in enumerate(plan.stages):
        needs = "" if stage.ipu in listed_ipus else format_bytes(plan.peak_bytes[stage.ipu])
        listed_ipus.add(stage.ipu)
        rows.append([
            str(number), str(stage.ipu), _name_segments(stage),
            format_duration(stage.seconds.forward), format_duration(stage.seconds.backward),
            format_bytes(stage.parameter_bytes), format_bytes(stage.activation_bytes),
            format_bytes(stage.transfer_bytes), needs,
            *[_shorten_line(stage.first)] * has_lines, *[_shorten_line(stage.last)] * has_lines,
        ])  # fmt: skip
    return format_columns(rows, left_columns=(9, 10))


def _shorten_line(text: str) -> str:
    """Returns a source line as `model.py:17`; a scope or the name of a part stays as it is."""
    return text if parse_source_line(text) is None else shorten_call_path((text,))


def _name_segments(stage: PlannedStage) -> str:
    first, end = stage.segments
    return str(first) if end == first + 1 else f"{first}-{end - 1}"


def _list_considered(plan: Plan) -> list[str]:
    has_offload = any(row.offload for row in plan.considered)
    words = ["schedule", "micro-batches", "recompute", *["offload"] * has_offload]
    rows = [[*words, "stages", "time", "why not"]]
    for row in plan.considered[:_MOST_CONSIDERED]:
        rows.append([
            row.schedule, str(row.micro_batches), "yes" if row.recompute else "no",
            *["yes" if row.offload else "no"] * has_offload,
            str(row.stages), "-" if row.seconds is None else format_duration(row.seconds), row.why,
        ])  # fmt: skip
    omitted = len(plan.considered) - _MOST_CONSIDERED
    return [
        *format_columns(rows, left_columns=(0, len(rows[0]) - 1)),
        *[f"and {omitted} more"] * (omitted > 0),
    ]


def draw_plan(plan: Plan) -> str:
    """Draws the seconds of each stage as bars, above the text of the plan."""
    longest = max(sum(stage.seconds) for stage in plan.stages) or 1.0
    drawing = svg.Drawing(_WIDTH, _TOP + _ROW * len(plan.stages) + 6, "the stages of a plan")
    choice = describe_choice(plan)
    drawing.draw_text(0, 14, choice)
    x = svg.width_of_text(choice) + 40
    for word, colour in _PARTS:
        drawing.draw_box(x, 4, 12, 12, colour)
        drawing.draw_text(x + 18, 14, word)
        x += svg.width_of_text(word) + 40
    labels = [f"IPU {stage.ipu}, {_name_segments(stage)}" for stage in plan.stages]
    bars_left = max(map(svg.width_of_text, labels)) + 10
    for number, (stage, label) in enumerate(zip(plan.stages, labels, strict=True)):
        top = _TOP + _ROW * number
        drawing.draw_text(0, top + 16, label)
        x = float(bars_left)
        for (word, colour), seconds in zip(_PARTS, stage.seconds, strict=True):
            width = seconds / longest * (_WIDTH - bars_left)
            tip = f"stage {number}, {word}: {format_duration(seconds)}"
            drawing.draw_box(x, top, max(width - 1, 0.5), _ROW - 4, colour, tip=tip)
            x += width
    return f"{drawing}<pre>{escape(describe_plan(plan))}</pre>"
