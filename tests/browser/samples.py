"""The programs whose pages are looked at."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import shown
from ipujax.report import Report
from tests.browser.networks import layered, looped, resnet
from tests.browser.tile_programs import uneven

IPUS = 4
MICRO_BATCHES = 20
TICKS = MICRO_BATCHES + 2 * (IPUS + 1)  # the loss is a stage of its own

SAMPLES: dict[str, Callable[[], Report]] = {
    "small": lambda: shown.small().report(),
    "pipeline": lambda: shown.pipeline(IPUS, MICRO_BATCHES, layers=IPUS).report(),
    "wide": lambda: shown.pipeline().report(),
    "deep": lambda: shown.deep().report(),
    "resnet": lambda: resnet().report(),
    "looped": lambda: looped().report(),
    "uneven": lambda: uneven().report(),
    "layered": lambda: layered().report(),
}
