"""A report as a page of text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ipujax.host.tables import table
from ipujax.report.advice.findings import need_bytes
from ipujax.report.words import called, counted, duration, ranges, size
from lowering import machine

if TYPE_CHECKING:
    from ipujax.report.report import Report

_WIDTH = 100
_MOST_NAME = 60
_ROUNDING = 1e-3  # of shares
_MOST_IPUS, _MOST_OPERATIONS = 16, 10


def page(report: Report) -> str:
    """The whole report."""
    parts = (headline, _pipeline, _costs, _ipus, _categories, _operations, _basis)
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
        f"bytes ({fullest / memory.limit:.1%})"
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


def _pipeline(report: Report) -> list[str]:
    p = report.pipeline
    if p is None:
        return []
    return [
        f"Pipeline: {p.schedule}, {p.stages} stages, {p.micro_batches} micro-batches: {p.ticks} "
        f"ticks, bubble {p.bubble_fraction:.1%}, utilisation {p.utilisation:.1%}"
    ]


def _costs(report: Report) -> list[str]:
    """What takes most of the time, and what would help."""
    lines: list[str] = []
    for cost in report.costs:
        where = f" ({short(cost.origin)})" if cost.origin else ""
        lines += _wrapped(f"  {cost.share:5.1%}  {cost.title}{where}: {cost.detail}", 9)
        lines += _wrapped(f"         fix: {cost.remedy}", 14)
    return ["Time goes to:", *lines] if lines else []


def _ipus(report: Report) -> list[str]:
    """A row for each IPU: memory, and what it does with its time."""
    memory, cycles = report.memory, max(report.cycles, 1)
    busy = {kind: spent.tolist() for kind, spent in report.busy_cycles.items() if spent.any()}
    kinds = [kind.replace("_ipu", "-IPU") for kind in busy]
    rows = [["IPU", "fullest tile", "all tiles", "remote memory", *kinds, "waiting"]]
    overlap = False
    for ipu in _chosen(report):
        shares = [spent[ipu] / cycles for spent in busy.values()]
        overlap |= sum(shares) > 1.0 + _ROUNDING
        rows.append(
            [
                str(ipu),
                f"{int(memory.tile_peak_bytes[ipu].max()):,} B",
                size(int(memory.peak_bytes[ipu])),
                size(int(memory.remote_bytes[ipu])),
                *(f"{share:.1%}" for share in shares),
                f"{max(0.0, 1.0 - sum(shares)):.1%}",
            ]
        )
    lines = table(rows)
    left = report.num_ipus - len(rows) + 1
    if left:
        lines.append(f"and {left} more IPUs, with emptier tiles")
    if overlap:
        lines.append("Shares above 100% together: I/O tiles work beside the others.")
    return lines


def _chosen(report: Report) -> list[int]:
    """The IPUs with the fullest tiles, if there are too many for a page."""
    fullest = report.memory.tile_peak_bytes.max(axis=1)
    order = sorted(range(report.num_ipus), key=lambda ipu: -int(fullest[ipu]))
    return sorted(order[:_MOST_IPUS])


def _categories(report: Report) -> list[str]:
    used = report.memory.by_category
    whole = max(sum(used.values()), 1)
    largest = sorted((item for item in used.items() if item[1]), key=lambda item: -item[1])
    texts = [f"{name} {size(bytes_)} ({bytes_ / whole:.0%})" for name, bytes_ in largest]
    return _wrapped("Memory: " + ", ".join(texts)) if texts else []


def _operations(report: Report) -> list[str]:
    """The most expensive operations; equal ones of one call path share a row, whatever their IPU.

    Their scopes stand before their names: `ctc_loss: scan float32[8]`.
    """
    alike: dict[tuple[str, str], list[machine.OperationTotal]] = {}
    for operation in report.operations:
        scope = f"{operation.scope}: " if operation.scope else ""
        path = operation.call_path
        line = called(path) if len(path) > 1 else short(operation.origin)
        alike.setdefault((scope + operation.name, line), []).append(operation)
    order = sorted(alike.items(), key=lambda item: -sum(o.cycles for o in item[1]))
    if not order:
        return []
    rows = [["share", "cycles", "runs", "IPU", "operation", "line"]]
    for (title, line), equal in order[:_MOST_OPERATIONS]:
        cycles = sum(o.cycles for o in equal)
        share = cycles / max(report.cycles * report.num_ipus, 1)
        runs = sum(o.runs for o in equal)
        ipus = ranges(sorted({o.ipu for o in equal}))
        rows.append([f"{share:.1%}", f"{cycles:,.0f}", f"{runs:,}", ipus, title, line])
    left = len(order) - len(rows) + 1
    more = [f"and {left:,} more operations"] if left > 0 else []
    return ["Operations, by their share of all IPUs' cycles:", *table(rows, texts=(4, 5)), *more]


def _basis(report: Report) -> list[str]:
    formulas = f"{report.default_share:.1%} of compute cycles rest on default formulas"
    assumed = [f"Assumed: {text}" for text in report.assumptions]
    return [f"Modelled, not measured; {formulas}.", *assumed]


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
