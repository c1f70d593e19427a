"""`dir()` of what users hold lists what they may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optax
import pytest

import ipujax as ipu
import lowering
from ipujax.system import SYSTEM
from tests.ipujax.small_report import small_report

X = np.ones(3, np.float32)


@ipu.compile
def double(x):
    return 2 * x


SHOWN: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "compiled": (lambda: double, {"lower", "trace"}),
    "traced": (lambda: double.trace(X), {"lower", "jaxpr", "in_avals"}),
    "lowered": (lambda: double.lower(X), {"as_text", "compile", "program", "report"}),
    "executable": (lambda: double.lower(X).compile(), {"as_text", "report", "save"}),
    "report": (small_report, {"memory", "cycles", "to_html"}),
    "memory": (lambda: small_report().memory, {"fits", "tile_peak_bytes"}),
    "schedule": (lambda: ipu.schedules.gpipe(2, 2), {"ticks", "stages"}),
    "simulation": (lambda: ipu.schedules.simulate(ipu.schedules.gpipe(2, 2)), {"bubble"}),
    "comparison": (lambda: ipu.compare(double, [X]), {"rows", "to_dict"}),
    "configuration": (ipu.config.IPUConfig, {"auto_select_ipus", "optimizations"}),
    "category": (lambda: ipu.config.IPUConfig().ipu_model, {"version"}),
    "device": (lambda: SYSTEM.device("/device:IPU:0"), {"name", "num_ipus"}),
    "infeed": (lambda: ipu.ipu_infeed_queue.IPUInfeedQueue([X]), {"deleter", "initializer"}),
    "outfeed": (ipu.ipu_outfeed_queue.IPUOutfeedQueue, {"dequeue", "enqueue"}),
    "training": (lambda: ipu.training.Training(min, optax.sgd(1.0)), {"accumulation", "fit"}),
    "compiler": (lambda: lowering, {"lower", "Options"}),
}
INNER = {"begin_run", "fingerprint", "pull", "placement", "importlib"}


@pytest.mark.parametrize("name", SHOWN)
def test_objects_list_what_may_be_used(name: str) -> None:
    make, wanted = SHOWN[name]
    shown = dir(make())
    assert wanted <= set(shown)
    assert not [each for each in shown if each.startswith("_") or each in INNER]


@pytest.mark.parametrize("name", [name for name in SHOWN if name != "training"])
def test_what_is_listed_is_there(name: str) -> None:
    shown = SHOWN[name][0]()
    assert all(hasattr(shown, each) for each in dir(shown))
