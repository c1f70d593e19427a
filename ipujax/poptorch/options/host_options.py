"""The options that concern the host: caches, logs, reports, names."""

from __future__ import annotations

import os
from typing import Self

from ipujax.poptorch.options.option_store import OptionsDict
from ipujax.poptorch.options.popart_options import PopartOptions
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger

_ALL_LINES = (1 << 64) - 1
_PROFILE_OPTIONS = ("debug.allowOutOfMemory", "autoReport.directory", "autoReport.all")


class HostOptions(OptionsDict):
    """The options for what the host does beside the computation.

    Attributes:
      log_dir, max_repeat_logs: kept, without effect.
      model_name: the folder of the model's reports; absent until it is set (see `exists`).
    """

    log_dir: str
    max_repeat_logs: int
    model_name: str
    _popart: PopartOptions

    def _set_host_defaults(self) -> None:
        self._source_location_excludes = ["site-packages/torch", "ipujax/"]
        self._relax_optimizer_checks = False
        self._show_compilation_progress_bar = True
        self._module_namescope_enabled = True

    def enableExecutableCaching(self, path: str | None) -> Self:
        """Sets the folder in which compiled programs are kept for later processes; None for none.

        Kept as `_Popart.options["cachePath"]` and `["enableEngineCaching"]`.
        """
        if path is not None:
            self._popart.set("cachePath", str(check.require_path(path, "the path of the cache")))
        self._popart.set("enableEngineCaching", path is not None)
        return self

    def enableProfiling(self, profile_dir: str | None = None) -> Self:
        """Turns on a report of each compilation, shown when memory overflows.

        `POPLAR_ENGINE_OPTIONS` has precedence. Kept as `_Popart.options["engineOptions"]`.

        Args:
          profile_dir: the folder of reports; None for the current one.
        """
        variable = os.environ.get("POPLAR_ENGINE_OPTIONS", "")
        if any(name in variable for name in _PROFILE_OPTIONS):
            logger.warning(
                "Profiling setting overridden by environment variable: check the content of "
                "POPLAR_ENGINE_OPTIONS."
            )
        check.require_instance(
            profile_dir, (str, os.PathLike), "profile_dir", "a path", optional=True
        )
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
        """Sets the model's name: its reports are in a folder of this name."""
        self.createOrSet(model_name=check.require_text(name, "the model's name"))
        return self

    def logDir(self, log_dir: str) -> Self:
        """Stores the folder of log files; no effect: the log goes to standard error alone."""
        self.set(log_dir=str(check.require_path(log_dir, "log_dir")))
        return self

    def maxRepeatLogs(self, max_lines: int | None) -> Self:
        """Stores how many equal lines the log may have; no effect: no line repeats that often."""
        lines = (
            _ALL_LINES if max_lines is None else check.require_integer(max_lines, "max_lines", 0)
        )
        self.set(max_repeat_logs=lines)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Self:
        """Sets whether `cycleCount()` may be called; cycles are modelled in any case.

        `report()` and `cycleCount()` tell them. Kept as
        `_Popart.options["instrumentWithHardwareCycleCounter"]`.
        """
        flag = check.require_flag(log_cycle_count, "logCycleCount")
        self._popart.set("instrumentWithHardwareCycleCounter", flag)
        return self

    def showCompilationProgressBar(self, show: bool = True) -> Self:
        """Sets whether a compilation shows a progress bar and `compilationTime` tells its time.

        The bar moves when the module is traced and when its program is compiled. Kept as
        `_show_compilation_progress_bar`.
        """
        self._show_compilation_progress_bar = check.require_flag(show, "showCompilationProgressBar")
        return self

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Self:
        """Sets whether unknown attributes of optimizers are logged at DEBUG, not as warnings.

        Kept as `_relax_optimizer_checks`.
        """
        self._relax_optimizer_checks = check.require_flag(relax, "relaxOptimizerAttributesChecks")
        return self

    def disableModuleNamescope(self) -> Self:
        """Stores that operations lose their modules' names; no effect: reports need the names.

        Kept as `_module_namescope_enabled`.
        """
        self._module_namescope_enabled = False
        return self

    def sourceLocationExcludes(self, excludes: list[str]) -> Self:
        """Stores the files that are no source locations of operations; it has no effect.

        Operations carry their module's name, and the user's line that `torch.export` recorded.
        """
        self._source_location_excludes = check.require_sequence(
            excludes, "excludes", "parts of paths"
        )
        return self

    def appendToLocationExcludes(self, *excludes: str) -> Self:
        """Adds files to those of `sourceLocationExcludes`."""
        self._source_location_excludes = [*self._source_location_excludes, *excludes]
        return self

    def enableStableNorm(self, enabled: bool) -> Self:
        """Changes nothing: norms are computed from differences to the mean, as PyTorch does."""
        self._popart.set("enableStableNorm", check.require_flag(enabled, "enableStableNorm"))
        return self

    def enableSyntheticData(self, enabled: bool | int) -> Self:
        """Stores whether IPUs make up their inputs; no effect: there is no host link to save.

        A call computes with the inputs that it is given. Kept as
        `_Popart.options["syntheticDataMode"]`: 0 for False and 0, 2 for True and other numbers, as
        programs give `int(popart.SyntheticDataMode.RandomNormal)`.
        """
        check.require_instance(enabled, (bool, int), "enableSyntheticData", "a bool or a number")
        self._popart.set("syntheticDataMode", 2 if enabled else 0)
        return self

    def updatableNamedBuffers(self, buffers: list[str]) -> Self:
        """Sets the names of buffers that `copyNamedBuffersToDevice` writes between runs.

        Kept as `_Popart.options["updatableNamedBuffers"]`.
        """
        names = [
            check.require_text(name, "a buffer")
            for name in check.require_sequence(buffers, "buffers")
        ]
        self._popart.set("updatableNamedBuffers", names)
        return self
