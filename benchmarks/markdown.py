"""The table of ratios in Markdown, under what it was measured with."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import Row

_LIBRARIES = ("jax", "jaxlib", "numpy", "optax", "torch", "keras", "onnxruntime")


def markdown_table(measured: Mapping[str, Sequence[Row]], command: str) -> str:
    """Returns the rows of each module as Markdown; those that miss their reach are in bold.

    Args:
      measured: the rows by the module that measured them.
      command: what was called.
    """
    lines = [
        f"Measured on {datetime.date.today():%d %B %Y} by `{command}`: {_hardware()}; "
        f"Python {platform.python_version()}, {_versions()}.",
        "",
        "| module | ours / baseline | ratio | reach | ours, baseline |",
        "|---|---|---|---|---|",
    ]
    for module, rows in measured.items():
        for row in rows:
            ratio = f"{row.ratio:.2f}"
            reach = "-" if math.isinf(row.reach) else f"{row.reach:g}"
            cells = [
                module,
                row.what.strip(),
                ratio if row.ratio <= row.reach else f"**{ratio}**",
                reach,
                row.note,
            ]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _hardware() -> str:
    """Returns the processor, its cores and the memory of this machine."""
    processor = platform.processor() or platform.machine()
    try:
        information = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in information if "model name" in line]
        processor = next(iter(names), processor)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (OSError, ValueError):
        return f"{processor}, {os.cpu_count()} cores"
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB"


def _versions() -> str:
    """Returns the versions of the libraries that are installed."""
    found: list[str] = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
