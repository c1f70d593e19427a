"""A report as a page of text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ipujax.host.tables import table
from ipujax.report.advice.findings import need_bytes
from ipujax.report.words import called, counted, duration, percent, percents, ranges, size
from lowering import machine

if TYPE_CHECKING:
    from ipujax.report.report import Report

_WIDTH = 100
_MOST_NAME = 60
_MOST_IPUS, _MOST_OPERATIONS = 16, 10


def page(report: Report) -> str:
    """The whole report."""
    parts = (headline, _time, _costs, _memory, _operations, _basis)
    return "\n\n".join(text for part in parts if (text := "\n".join(part(report))))


def summary(report: Report) -> str:
    """One line, for `repr`."""
    fits = "fits" if report.memory.fits else "does not fit"
    return f"{name(report)}: {system(report)}, {duration(report.seconds)} a call, {fits}"


def name(report: Report) -> str:
    """The program's, cut where it is very long."""
    return report.name if len(report.name) <= _MOST_NAME else f"{report.name[: _MOST_NAME - 3]}..."


def system(report: Report) -> str:
    """As `2 replicas of 4 IPUs (ipu2)`, or `2 replicas of 4 IPUs in 2 instances (ipu2)`."""
    replicas, ipus = report.replication_factor, report.num_ipus
    instances = f" in {report.instances} instances" if report.instances > 1 else ""
    parts = f"{counted(replicas, 'replica')} of {counted(ipus, 'IPU')}"
    return f"{parts}{instances} ({report.target.name})"


def headline(report: Report) -> list[str]:
    """What matters most: does it fit, and how fast is it."""
    target, memory = report.target, report.memory
    title = (
        f"{name(report)}: {system(report)}, {target.tiles_per_ipu:,} tiles at "
        f"{target.clock_hz / 1e9:.4g} GHz"
    )
    time = f"Time: {report.cycles:,} cycles = {duration(report.seconds)} a call"
    if report.throughput is not None:
        time += f"; {report.throughput:,.1f} elements/s ({report.elements:,} a call)"
    if not memory.fits:
        return [title, out_of_memory(report), time]
    ipu, tile = memory.worst
    fullest = int(memory.tile_peak_bytes.max())
    fits = (
        f"Fits: the fullest tile, IPU {ipu} tile {tile}, holds {fullest:,} of {memory.limit:,} "
        f"bytes ({percent(fullest / memory.limit)})"
    )
    return [title, fits, time]


def out_of_memory(report: Report) -> str:
    """What does not fit, where, and what would help."""
    memory = report.memory
    ipu, tile = memory.worst
    over = memory.tile_peak_bytes > memory.limit
    fullest = int(memory.tile_peak_bytes.max())
    what = "variable data" if over.any() else "instructions"
    lines = [f"Out of memory: Cannot fit all {what} onto one or more tiles"]
    if over.any():
        needs = enumerate(need_bytes(memory))
        off = (f"about {size(bytes_)} off IPU {ipu}" for ipu, bytes_ in needs if bytes_)
        lines += [
            f"  where: IPU {ipu}, tile {tile}: {fullest:,} bytes of {memory.limit:,}, "
            f"{fullest - memory.limit:,} too many; {int(over.sum()):,} of {over.size:,} tiles "
            "lack memory",
            f"  needs: {', '.join(off)}, if it goes off all tiles alike",
        ]
    if memory.most_code_bytes > memory.code_limit:
        lines.append(
            f"  code:  {memory.most_code_bytes:,} bytes on one tile, of {memory.code_limit:,} from "
            "which instructions can be fetched"
        )
    lines += [f"  alive: {_tensor(tensor)}" for tensor in memory.biggest[:5]]
    for entry in report.advice[:6]:
        effect = f" ({size(entry.about_bytes)})" if entry.about_bytes else ""
        lines.append(f"  fix:   {entry.text}{effect}")
    return "\n".join(lines)


def _tensor(tensor: machine.Tensor) -> str:
    made = tensor.path or tensor.operation
    if tensor.path and tensor.operation not in ("argument", "loop variable"):
        made = f"{tensor.path}, {tensor.operation}"
    line = f", {short(tensor.origin)}" if tensor.origin else ""
    return (
        f"{tensor.name}, {tensor.category}: {size(tensor.total_bytes)}, {tensor.tile_bytes:,} "
        f"bytes of it on that tile ({made}{line})"
    )


def short(origin: str) -> str:
    """A line of an installed package without the way there."""
    return origin.rpartition("site-packages/")[2]


def _time(report: Report) -> list[str]:
    """What the cycles of each IPU go to, and those of all; causes of nothing are left out."""
    found = report.breakdown
    if found is None or not report.cycles:
        return []
    causes = {cause: cycles for cause, cycles in found.items() if cycles.any()}
    rows = [["IPU", *causes]]
    for ipu in _chosen(report):
        rows.append([str(ipu), *percents([int(cycles[ipu]) for cycles in causes.values()])])
    if report.num_ipus > 1:
        rows.append(["all", *percents([int(cycles.sum()) for cycles in causes.values()])])
    p = report.pipeline
    through = (
        f"; {counted(p.micro_batches, 'micro-batch', 'micro-batches')} through "
        f"{counted(p.stages, 'stage')} in {counted(p.ticks, 'tick')}, schedule {p.schedule}"
        if p
        else ""
    )
    left = report.num_ipus - _MOST_IPUS
    more = [f"all: of {report.num_ipus} IPUs, those above and {left} more"] if left > 0 else []
    return [f"Where the time goes{through}:", *table(rows), *more]


def _costs(report: Report) -> list[str]:
    """What takes most of the time, and what would help."""
    lines: list[str] = []
    for cost in report.costs:
        where = f" ({short(cost.origin)})" if cost.origin else ""
        share = percent(cost.share).rjust(5)
        lines += _wrapped(f"  {share}  {cost.title}{where}: {cost.detail}", 9)
        lines += _wrapped(f"         fix: {cost.remedy}", 14)
    return ["What takes most of it:", *lines] if lines else []


def _memory(report: Report) -> list[str]:
    """A row for each IPU, and what it all holds."""
    memory = report.memory
    remote = bool(memory.remote_bytes.any())
    rows = [["IPU", "fullest tile", "all tiles", *["streaming memory"][:remote]]]
    for ipu in _chosen(report):
        kept = size(int(memory.remote_bytes[ipu]))
        fullest = f"{int(memory.tile_peak_bytes[ipu].max()):,} B"
        rows.append([str(ipu), fullest, size(int(memory.peak_bytes[ipu])), *[kept][:remote]])
    left = report.num_ipus - len(rows) + 1
    more = [f"and {left} more IPUs, with emptier tiles"] if left else []
    return ["Memory:", *table(rows), *more, *_categories(report)]


def _chosen(report: Report) -> list[int]:
    """The IPUs with the fullest tiles, if there are too many for a page."""
    fullest = report.memory.tile_peak_bytes.max(axis=1)
    order = sorted(range(report.num_ipus), key=lambda ipu: -int(fullest[ipu]))
    return sorted(order[:_MOST_IPUS])


def _categories(report: Report) -> list[str]:
    used = report.memory.by_category
    whole = max(sum(used.values()), 1)
    largest = sorted((item for item in used.items() if item[1]), key=lambda item: -item[1])
    texts = [
        f"{name.replace('_', ' ')} {size(bytes_)} ({percent(bytes_ / whole)})"
        for name, bytes_ in largest
    ]
    return _wrapped("By category: " + ", ".join(texts)) if texts else []


def _operations(report: Report) -> list[str]:
    """The most expensive operations; those that people call alike share a row, whatever their IPU.

    Their scopes stand before their names: `ctc_loss: scan`.
    """
    alike: dict[tuple[str, str, str], list[machine.OperationTotal]] = {}
    for operation in report.operations:
        scope = f"{operation.scope}: " if operation.scope else ""
        path = operation.call_path
        line = called(path) if len(path) > 1 else short(operation.origin)
        title = scope + (operation.label or operation.name)
        alike.setdefault((title, operation.direction or "", line), []).append(operation)
    order = sorted(alike.items(), key=lambda item: -sum(o.cycles for o in item[1]))
    if not order:
        return []
    rows = [["share", "cycles", "runs", "IPU", "operation", "pass", "line"]]
    for (title, direction, line), equal in order[:_MOST_OPERATIONS]:
        cycles = sum(o.cycles for o in equal)
        share = percent(cycles / max(report.cycles * report.num_ipus, 1))
        runs = sum(o.runs for o in equal)
        ipus = ranges(sorted({o.ipu for o in equal}))
        rows.append([share, f"{cycles:,.0f}", f"{runs:,}", ipus, title, direction, line])
    left = len(order) - len(rows) + 1
    more = [f"and {left:,} more operations"] if left > 0 else []
    if not any(row[5] for row in rows[1:]):
        rows = [[*row[:5], row[6]] for row in rows]
    title = "Operations, with their share of all IPUs' cycles:"
    return [title, *table(rows, texts=(4, 5, 6)), *more]


def _basis(report: Report) -> list[str]:
    general = (
        f" {percent(report.default_share)} of the computing is estimated by the general formula, "
        "ten cycles an element."
        if report.default_share
        else ""
    )
    assumed = [f"Assumed: {text}" for text in report.assumptions]
    return [f"Modelled, not measured.{general}", *assumed]


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
