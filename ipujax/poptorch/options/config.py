"""The configuration of the system that PopTorch's options amount to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ipujax.config import IPUConfig
from ipujax.poptorch.options.options import Options

_CHIPS = {1: "ipu1", 2: "ipu2", 21: "ipu21"}
_DIRECTORY = "autoReport.directory"


def config_of(options: Options, name: str) -> IPUConfig:
    """The configuration, but for the number of IPUs.

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
        named = options.model_name if options.exists("model_name") else name
        config.compilation_poplar_options = _engine_options(engine, named)
    planner = _planner_options(options, switches)
    config.matmuls.poplar_options = config.convolutions.poplar_options = planner
    return config


def _engine_options(given: dict[str, Any], name: str) -> dict[str, str]:
    engine = {option: str(value) for option, value in given.items()}
    if _DIRECTORY in engine:
        engine[_DIRECTORY] = str(Path(engine[_DIRECTORY]) / name)
    return engine


def _planner_options(options: Options, switches: dict[str, Any]) -> dict[str, str]:
    """Of products and convolutions; all IPUs have what is least on any."""
    planner: dict[str, str] = {}
    if partials := switches.get("partialsTypeMatMuls"):
        planner["partialsType"] = partials
    if proportions := options.available_memory_proportion.values():
        planner["availableMemoryProportion"] = str(min(proportions))
    return planner


def cache_of(options: Options) -> str | os.PathLike[str] | None:
    """The folder of compiled programs; None for what the process has else."""
    switches = options._Popart.options  # pyright: ignore[reportPrivateUsage] - as above
    return switches.get("cachePath") if switches.get("enableEngineCaching") else None
