"""A report as a page of text."""

from __future__ import annotations

import itertools
import textwrap
from typing import TYPE_CHECKING

from ipujax.ground import (
    count_with_noun,
    format_bytes,
    format_columns,
    format_duration,
    format_percent,
    format_percents,
    format_ranges,
    shorten_call_path,
)
from ipujax.report.advice.findings import bytes_to_free
from lowering import machine

if TYPE_CHECKING:
    from ipujax.report.report import Report

_WIDTH = 100
_MOST_NAME = 60
_MOST_IPUS, _MOST_OPERATIONS, _MOST_TENSORS = 16, 10, 5


def render_text_page(report: Report) -> str:
    """Renders the whole report as text."""
    section_builders = (
        build_headline_lines,
        _build_mesh_section,
        _build_time_section,
        _build_costs_section,
        _build_memory_section,
        _build_operations_section,
        _build_assumption_lines,
    )
    return "\n\n".join(
        text for build_section in section_builders if (text := "\n".join(build_section(report)))
    )


def summarize_report(report: Report) -> str:
    """Summarizes a report in one line, for `repr`."""
    fits = "fits" if report.memory.fits else "does not fit"
    return (
        f"{shorten_program_name(report)}: {describe_system(report)}, "
        f"{format_duration(report.seconds)} a call, {fits}"
    )


def shorten_program_name(report: Report) -> str:
    """Returns the program's name, cut where it is very long."""
    return report.name if len(report.name) <= _MOST_NAME else f"{report.name[: _MOST_NAME - 3]}..."


def describe_system(report: Report) -> str:
    """Describes the replicas and IPUs, as `2 replicas of 4 IPUs in 2 instances (ipu2)`."""
    replicas, ipus = report.replication_factor, report.num_ipus
    instances = f" in {report.instances} instances" if report.instances > 1 else ""
    parts = f"{count_with_noun(replicas, 'replica')} of {count_with_noun(ipus, 'IPU')}"
    return f"{parts}{instances} ({report.target.name})"


def _format_rate(report: Report, per_second: float) -> str:
    """Describes elements per second, as `20.0 batches of 32 a second, 640.0 examples`."""
    if report.batch_size:
        examples = per_second * report.batch_size
        unit = f"batches of {report.batch_size:,} a second, {examples:,.1f} examples"
    else:
        unit = f"{'elements' if report.pipeline is None else 'micro-batches'} a second"
    return f"{per_second:,.1f} {unit}"


def build_headline_lines(report: Report) -> list[str]:
    """Returns the lines that say whether the program fits and how fast it is."""
    target, memory = report.target, report.memory
    title = (
        f"{shorten_program_name(report)}: {describe_system(report)}, {target.tiles_per_ipu:,} "
        f"tiles at {target.clock_hz / 1e9:.4g} GHz"
    )
    time = f"Time: {report.cycles:,} cycles = {format_duration(report.seconds)} a call"
    if report.throughput is not None:
        time += f"; {_format_rate(report, report.throughput)} ({report.elements:,} a call)"
    if not memory.fits:
        return [title, describe_lack_of_memory(report), time]
    ipu, tile = memory.worst
    fullest = int(memory.tile_peak_bytes.max())
    fits = (
        f"Fits: the fullest tile, IPU {ipu} tile {tile}, holds {fullest:,} of {memory.limit:,} "
        f"bytes ({format_percent(fullest / memory.limit)})"
    )
    return [title, fits, time]


def _build_mesh_section(report: Report) -> list[str]:
    """Returns the lines that say on which mesh of JAX devices each IPU runs."""
    if not report.meshes:
        return []
    has_replicas = report.replication_factor > 1
    lines = [
        f"  IPU {mesh.ipu}{f' of replica {mesh.replica}' if has_replicas else ''}: {mesh}"
        for mesh in report.meshes[:_MOST_IPUS]
    ]
    hidden_meshes = len(report.meshes) - len(lines)
    remainder_line = [f"  and {hidden_meshes} more"] if hidden_meshes else []
    return ["Runs on JAX devices, which are not modelled:", *lines, *remainder_line]


def describe_lack_of_memory(report: Report) -> str:
    """Describes where memory lacks, how much, and which changes would help."""
    memory = report.memory
    ipu, tile = memory.worst
    is_too_full = memory.tile_peak_bytes > memory.limit
    fullest = int(memory.tile_peak_bytes.max())
    content = "variable data" if is_too_full.any() else "instructions"
    lines = [f"Out of memory: Cannot fit all {content} onto one or more tiles"]
    if is_too_full.any():
        needs = enumerate(bytes_to_free(memory))
        bytes_off_ipus = (
            f"about {format_bytes(bytes_)} off IPU {ipu}" for ipu, bytes_ in needs if bytes_
        )
        lines += [
            f"  where: IPU {ipu}, tile {tile}: {fullest:,} bytes of {memory.limit:,}, "
            f"{fullest - memory.limit:,} too many; {int(is_too_full.sum()):,} of "
            f"{is_too_full.size:,} tiles lack memory",
            f"  needs: {', '.join(bytes_off_ipus)}, if it goes off all tiles alike",
        ]
    if memory.most_code_bytes > memory.code_limit:
        lines.append(
            f"  code:  {memory.most_code_bytes:,} bytes on one tile, of {memory.code_limit:,} from "
            "which instructions can be fetched"
        )
    lines += [f"  alive: {_describe_tensor(tensor)}" for tensor in memory.biggest[:5]]
    for entry in report.advice[:6]:
        effect = f" ({format_bytes(entry.about_bytes)})" if entry.about_bytes else ""
        lines.append(f"  fix:   {entry.text}{effect}")
    return "\n".join(lines)


def _describe_tensor(tensor: machine.Tensor) -> str:
    scope = f" in {tensor.scope}" if tensor.scope else ""
    line = f", {shorten_source_line(tensor.origin)}" if tensor.origin else ""
    return (
        f"{tensor.name}, {tensor.category}: {format_bytes(tensor.total_bytes)}, "
        f"{tensor.tile_bytes:,} bytes of it on that tile ({tensor.owner}{scope}{line})"
    )


def shorten_source_line(origin: str) -> str:
    """Returns a source line, that of an installed package without the path to it."""
    return origin.rpartition("site-packages/")[2]


def _name_source_line(origin: str) -> str:
    """Returns a source line as tables have it: `model.py:10`, `optax/base.py:7 (f)` or ""."""
    if not origin or "site-packages/" in origin:
        return shorten_source_line(origin)
    return shorten_call_path((origin,))


def _build_time_section(report: Report) -> list[str]:
    """Returns the table of each IPU's cycles by cause; causes without cycles are left out."""
    breakdown = report.breakdown
    if breakdown is None or not report.cycles:
        return []
    causes = {cause: cycles for cause, cycles in breakdown.items() if cycles.any()}
    rows = [["IPU", *causes]]
    for ipu in _choose_fullest_ipus(report):
        rows.append([str(ipu), *format_percents([int(cycles[ipu]) for cycles in causes.values()])])
    if report.num_ipus > 1:
        rows.append(["all", *format_percents([int(cycles.sum()) for cycles in causes.values()])])
    pipeline = report.pipeline
    pipeline_text = (
        f"; {count_with_noun(pipeline.micro_batches, 'micro-batch', 'micro-batches')} through "
        f"{count_with_noun(pipeline.stages, 'stage')} in "
        f"{count_with_noun(pipeline.ticks, 'tick')}, schedule {pipeline.schedule}"
        if pipeline
        else ""
    )
    hidden_ipus = report.num_ipus - _MOST_IPUS
    remainder_line = (
        [f"all: of {report.num_ipus} IPUs, those above and {hidden_ipus} more"]
        if hidden_ipus > 0
        else []
    )
    return [
        f"Where the time goes{pipeline_text}:",
        *format_columns(rows),
        *remainder_line,
        *_build_grid_line(report),
    ]


def _build_grid_line(report: Report) -> list[str]:
    """Returns the line on the empty places of a pipeline's grid, which is no share of cycles."""
    pipeline = report.pipeline
    if pipeline is None:
        return []
    ipus = len({ipu for stage_ipus in pipeline.stage_ipus for ipu in stage_ipus})
    return [
        f"Grid of {count_with_noun(ipus, 'IPU')} and {count_with_noun(pipeline.ticks, 'tick')}: "
        f"{format_percent(pipeline.bubble_fraction)} of its places are empty (bubble fraction)"
    ]


def _build_costs_section(report: Report) -> list[str]:
    """Returns the lines on the largest costs in time and their remedies."""
    lines: list[str] = []
    for cost in report.costs:
        source_line = f" ({shorten_source_line(cost.origin)})" if cost.origin else ""
        share_text = format_percent(cost.share).rjust(5)
        lines += _wrap_lines(f"  {share_text}  {cost.title}{source_line}: {cost.detail}", 9)
        lines += _wrap_lines(f"         fix: {cost.remedy}", 14)
    return ["What takes most of it:", *lines] if lines else []


def _build_memory_section(report: Report) -> list[str]:
    """Returns the table of each IPU's memory, and the sizes by category."""
    memory = report.memory
    has_remote = bool(memory.remote_bytes.any())
    rows = [["IPU", "fullest tile", "all tiles", *["streaming memory"][:has_remote]]]
    for ipu in _choose_fullest_ipus(report):
        remote_size = format_bytes(int(memory.remote_bytes[ipu]))
        fullest_text = f"{int(memory.tile_peak_bytes[ipu].max()):,} B"
        rows.append(
            [
                str(ipu),
                fullest_text,
                format_bytes(int(memory.peak_bytes[ipu])),
                *[remote_size][:has_remote],
            ]
        )
    hidden_ipus = report.num_ipus - len(rows) + 1
    remainder_line = [f"and {hidden_ipus} more IPUs, with emptier tiles"] if hidden_ipus else []
    return [
        "Memory:",
        *format_columns(rows),
        *remainder_line,
        *_build_category_lines(report),
        *(_build_tensor_table(memory) if memory.fits else ()),
    ]


def _build_tensor_table(memory: machine.Memory) -> list[str]:
    """Returns the table of the largest tensors; those of what does not fit stand at the top."""
    tensors = memory.biggest[:_MOST_TENSORS]
    if not tensors:
        return []
    rows = [["bytes", "tensor", "category", "owner", "scope", "line"]]
    for tensor in tensors:
        words = tensor.name, tensor.category, tensor.owner, tensor.scope
        rows.append([format_bytes(tensor.total_bytes), *words, _name_source_line(tensor.origin)])
    ipu = memory.worst[0]
    title = f"Largest tensors on IPU {ipu} at the step that needs the most memory:"
    return [title, *format_columns(_drop_empty_columns(rows), left_columns=(1, 2, 3, 4, 5))]


def _drop_empty_columns(rows: list[list[str]]) -> list[list[str]]:
    """Returns the rows of a table without the columns that have a title and nothing else."""
    filled = [any(cells[1:]) for cells in zip(*rows, strict=True)]
    return [list(itertools.compress(row, filled)) for row in rows]


def _choose_fullest_ipus(report: Report) -> list[int]:
    """Returns the IPUs with the fullest tiles, if there are too many for a page."""
    fullest = report.memory.tile_peak_bytes.max(axis=1)
    ipus_by_fullest = sorted(range(report.num_ipus), key=lambda ipu: -int(fullest[ipu]))
    return sorted(ipus_by_fullest[:_MOST_IPUS])


def _build_category_lines(report: Report) -> list[str]:
    used = report.memory.by_category
    total_bytes = max(sum(used.values()), 1)
    largest = sorted((item for item in used.items() if item[1]), key=lambda item: -item[1])
    texts = [
        f"{name.replace('_', ' ')} {format_bytes(bytes_)} ({format_percent(bytes_ / total_bytes)})"
        for name, bytes_ in largest
    ]
    return _wrap_lines("By category: " + ", ".join(texts)) if texts else []


def _build_operations_section(report: Report) -> list[str]:
    """Returns the table of the most expensive operations, one row for those with equal labels.

    Operations of several IPUs share a row. Scopes stand before names: `ctc_loss: scan`.
    """
    operations_of_title: dict[tuple[str, str, str], list[machine.OperationTotal]] = {}
    for operation in report.operations:
        scope = f"{operation.scope}: " if operation.scope else ""
        path = operation.call_path
        line = shorten_call_path(path) if len(path) > 1 else _name_source_line(operation.origin)
        title = scope + (operation.label or operation.name)
        operations_of_title.setdefault((title, operation.direction or "", line), []).append(
            operation
        )
    titles_by_cycles = sorted(
        operations_of_title.items(),
        key=lambda item: -sum(operation_of_row.cycles for operation_of_row in item[1]),
    )
    if not titles_by_cycles:
        return []
    rows = [["share", "cycles", "runs", "IPU", "operation", "pass", "line"]]
    for (title, direction, line), operations in titles_by_cycles[:_MOST_OPERATIONS]:
        cycles = sum(o.cycles for o in operations)
        share_text = format_percent(cycles / max(report.cycles * report.num_ipus, 1))
        runs = sum(o.runs for o in operations)
        ipus = format_ranges(sorted({o.ipu for o in operations}))
        rows.append([share_text, f"{cycles:,.0f}", f"{runs:,}", ipus, title, direction, line])
    hidden_operations = len(titles_by_cycles) - len(rows) + 1
    remainder_line = [f"and {hidden_operations:,} more operations"] if hidden_operations > 0 else []
    title = "Operations, with their share of all IPUs' cycles:"
    columns = format_columns(_drop_empty_columns(rows), left_columns=(4, 5, 6))
    return [title, *columns, *remainder_line]


def _build_assumption_lines(report: Report) -> list[str]:
    formula_text = (
        f" {format_percent(report.default_share)} of the computing is estimated by the general "
        "formula, ten cycles an element."
        if report.default_share
        else ""
    )
    assumed = [f"Assumed: {text}" for text in report.assumptions]
    return [f"Modelled, not measured.{formula_text}", *assumed]


def _wrap_lines(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
