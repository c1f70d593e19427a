"""The programs whose pages are looked at."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.workloads import shown
from ipujax.report.report import Report

SAMPLES: dict[str, Callable[[], Report]] = {
    "small": lambda: shown.small().report(),
    "pipeline": lambda: shown.pipeline().report(),
    "deep": lambda: shown.deep().report(),
}
