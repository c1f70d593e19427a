"""The options that say what the host does: caches, logs, reports, names."""

from __future__ import annotations

import os
from typing import Self

from ipujax.poptorch.checks import check
from ipujax.poptorch.log import logger
from ipujax.poptorch.options.popart import PopartOptions
from ipujax.poptorch.options.store import OptionsDict

_ALL_LINES = (1 << 64) - 1
_OF_PROFILES = ("debug.allowOutOfMemory", "autoReport.directory", "autoReport.all")


class HostOptions(OptionsDict):
    """What the host does beside the computation.

    Attributes:
      log_dir, max_repeat_logs: kept, and nothing more.
      model_name: the folder of the model's reports; absent until it is set (see `exists`).
    """

    log_dir: str
    max_repeat_logs: int
    model_name: str
    _popart: PopartOptions

    def _start_host_options(self) -> None:
        self._source_location_excludes = ["site-packages/torch", "ipujax/"]
        self._relax_optimizer_checks = False
        self._show_compilation_progress_bar = True
        self._module_namescope_enabled = True

    def enableExecutableCaching(self, path: str | None) -> Self:
        """The folder in which compiled programs are kept, for later processes; None for none.

        Kept as `_Popart.options["cachePath"]` and `["enableEngineCaching"]`.
        """
        if path is not None:
            self._popart.set("cachePath", str(check.path(path, "the path of the cache")))
        self._popart.set("enableEngineCaching", path is not None)
        return self

    def enableProfiling(self, profile_dir: str | None = None) -> Self:
        """Has a report be written when the model is compiled, and shows it if memory overflows.

        `POPLAR_ENGINE_OPTIONS` has precedence. Kept as `_Popart.options["engineOptions"]`.

        Args:
          profile_dir: the folder of reports; None for the current one.
        """
        variable = os.environ.get("POPLAR_ENGINE_OPTIONS", "")
        if any(name in variable for name in _OF_PROFILES):
            logger.warning(
                "Profiling setting overridden by environment variable: check the content of "
                "POPLAR_ENGINE_OPTIONS."
            )
        check.instance(profile_dir, (str, os.PathLike), "profile_dir", "a path", optional=True)
        self._popart.setEngineOptions(
            self._popart.options.get("engineOptions", {})
            | {
                "debug.allowOutOfMemory": "true",
                "autoReport.directory": str(profile_dir or "."),
                "autoReport.all": "true",
            }
        )
        return self

    def modelName(self, name: str) -> Self:
        """What the model is called: its reports are in a folder of this name."""
        self.createOrSet(model_name=check.text(name, "the model's name"))
        return self

    def logDir(self, log_dir: str) -> Self:
        """The folder of log files; nothing here: the log goes to standard error alone."""
        self.set(log_dir=str(check.path(log_dir, "log_dir")))
        return self

    def maxRepeatLogs(self, max_lines: int | None) -> Self:
        """After how many equal lines the log stops; nothing here: no line comes so often."""
        lines = _ALL_LINES if max_lines is None else check.integer(max_lines, "max_lines", 0)
        self.set(max_repeat_logs=lines)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Self:
        """Has cycles be counted and logged; nothing here: they are modelled in any case.

        `report()` and `cycleCount()` tell them. Kept as
        `_Popart.options["instrumentWithHardwareCycleCounter"]`.
        """
        flag = check.flag(log_cycle_count, "logCycleCount")
        self._popart.set("instrumentWithHardwareCycleCounter", flag)
        return self

    def showCompilationProgressBar(self, show: bool = True) -> Self:
        """Whether a terminal shows how far a compilation is, and `compilationTime` tells its time.

        The bar moves when the module is traced and when its program is compiled. Kept as
        `_show_compilation_progress_bar`.
        """
        self._show_compilation_progress_bar = check.flag(show, "showCompilationProgressBar")
        return self

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Self:
        """Has attributes of optimizers that nobody knows be logged at DEBUG, not as warnings.

        Kept as `_relax_optimizer_checks`.
        """
        self._relax_optimizer_checks = check.flag(relax, "relaxOptimizerAttributesChecks")
        return self

    def disableModuleNamescope(self) -> Self:
        """Has operations lose the names of their modules; nothing here: reports need these.

        Kept as `_module_namescope_enabled`.
        """
        self._module_namescope_enabled = False
        return self

    def sourceLocationExcludes(self, excludes: list[str]) -> Self:
        """The files whose lines are not named as the source of an operation; here nothing.

        Operations know their modules, and the user's line by `torch.export`.
        """
        self._source_location_excludes = check.sequence(excludes, "excludes", "parts of paths")
        return self

    def appendToLocationExcludes(self, *excludes: str) -> Self:
        """Adds to `sourceLocationExcludes`."""
        self._source_location_excludes = [*self._source_location_excludes, *excludes]
        return self

    def enableStableNorm(self, enabled: bool) -> Self:
        """Nothing: norms are computed as PyTorch does, from differences to the mean."""
        self._popart.set("enableStableNorm", check.flag(enabled, "enableStableNorm"))
        return self

    def enableSyntheticData(self, enabled: bool) -> Self:
        """Inputs that the IPUs make up themselves; nothing here: no link to them is spared by it.

        A call computes with the inputs that it is given. Kept as
        `_Popart.options["syntheticDataMode"]`: 2 for True, 0 for False.
        """
        flag = check.flag(enabled, "enableSyntheticData")
        self._popart.set("syntheticDataMode", 2 if flag else 0)
        return self

    def updatableNamedBuffers(self, buffers: list[str]) -> Self:
        """The names of buffers that `copyNamedBuffersToDevice` writes between runs.

        Kept as `_Popart.options["updatableNamedBuffers"]`.
        """
        names = [check.text(name, "a buffer") for name in check.sequence(buffers, "buffers")]
        self._popart.set("updatableNamedBuffers", names)
        return self
