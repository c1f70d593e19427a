"""The translation of PopTorch's options into an `IPUConfig`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ipujax.poptorch.options.poptorch_options import Options
from ipujax.system import IPUConfig

VERSION_OF_CHIP = {"ipu1": 1, "ipu2": 2, "ipu21": 21}
"""The numbers that PopTorch gives the chips of `IPUConfig`."""
_CHIPS = {number: chip for chip, number in VERSION_OF_CHIP.items()}
_DIRECTORY = "autoReport.directory"


def build_ipu_config(options: Options, name: str) -> IPUConfig:
    """Builds the `IPUConfig` that the options ask for, without the number of IPUs.

    Args:
      options: a model's.
      name: "training" or "inference": the folder of reports, unless the model has a name.
    """
    config = IPUConfig()
    switches = options._Popart.options  # pyright: ignore[reportPrivateUsage] - the original's name
    behaviour = config.floating_point_behaviour
    if switches.get("enableFloatingPointChecks"):
        behaviour.inv = behaviour.div0 = behaviour.oflo = True
    if switches.get("enableStochasticRounding"):
        behaviour.esr = True
    config.allow_recompute = bool(switches.get("autoRecomputation"))
    if options.exists("ipu_version"):
        config.ipu_model.version = _CHIPS[options.ipu_version]
    if engine := switches.get("engineOptions"):
        folder = options.model_name if options.exists("model_name") else name
        config.compilation_poplar_options = _resolve_engine_options(engine, folder)
    planner = _build_planner_options(options, switches)
    config.matmuls.poplar_options = config.convolutions.poplar_options = planner
    return config


def _resolve_engine_options(options: dict[str, object], name: str) -> dict[str, str]:
    engine = {option: str(value) for option, value in options.items()}
    if _DIRECTORY in engine:
        engine[_DIRECTORY] = str(Path(engine[_DIRECTORY]) / name)
    return engine


def _build_planner_options(options: Options, switches: dict[str, Any]) -> dict[str, str]:
    """Builds the planner options of matmuls and convolutions; all IPUs get the least proportion."""
    planner: dict[str, str] = {}
    if partials := switches.get("partialsTypeMatMuls"):
        planner["partialsType"] = partials
    if proportions := options.available_memory_proportion.values():
        planner["availableMemoryProportion"] = str(min(proportions))
    return planner


def get_cache_folder(options: Options) -> str | os.PathLike[str] | None:
    """The folder of compiled programs; None leaves the process's own cache settings."""
    switches = options._Popart.options  # pyright: ignore[reportPrivateUsage] - as above
    return switches.get("cachePath") if switches.get("enableEngineCaching") else None
