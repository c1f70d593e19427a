"""The part of a session that compiles its program, reports on it and exports it."""

from __future__ import annotations

import abc
import os
from pathlib import Path

from ipujax.driver import Executable
from ipujax.popart.options import SessionOptions
from ipujax.popart.popart_checks import check
from ipujax.report import Report
from ipujax.training import DeviceLoop


class Reports(abc.ABC):
    """A base class of sessions: compilation, reports and export of the program."""

    _loop: DeviceLoop
    _options: SessionOptions
    _is_ready: bool

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compiles the program.

        Args:
          loadEngine: changes nothing; a program is on the device from its first step on.
        """
        check.require_flag(loadEngine, "loadEngine")
        if self._options.compileEngine:
            self._compile_session()
        self._is_ready = True

    def loadEngineAndConnectStreams(self) -> None:
        """Checks that the session is prepared, and changes nothing."""
        self._check_ready("loadEngineAndConnectStreams")

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """Checks its argument, and changes nothing."""
        check.require_flag(isLoaded, "isLoaded")

    @property
    def executable(self) -> Executable | None:
        """The compiled program; None before `prepareDevice`."""
        return self._loop.executable

    def getReport(self) -> Report:
        """Returns the machine model's report of the program.

        Raises:
          PopARTError: (a `ValueError`) before `prepareDevice`.
        """
        return self._require_executable("getReport").report()

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Returns the machine model's report as text; there is nothing to reset."""
        check.require_flag(resetProfile, "resetProfile")
        return str(self._require_executable("getSummaryReport").report())

    def getCycleCount(self, id: str = "") -> int:
        """Returns the modelled cycles of a step.

        Raises:
          PopARTError: (a `ValueError`) without `instrumentWithHardwareCycleCounter`.
        """
        if not self._options.instrumentWithHardwareCycleCounter:
            raise check.value_error(
                "cycles are not counted", "set SessionOptions.instrumentWithHardwareCycleCounter"
            )
        if check.require_text(id, "id"):
            raise check.value_error(f"there is no cycle count {id!r}", "ask for that of the step")
        return self._require_executable("getCycleCount").report().cycles

    def compileAndExport(self, filename: str | os.PathLike[str]) -> None:
        """Compiles the program and saves it as ipujax saves executables.

        Args:
          filename: the file; a folder's is `executable.ipujax`. Folders that are missing are made.

        Raises:
          ExecutableError: (a `ValueError`) a program that cannot be saved.
          MissingExtraError: (an `ImportError`) the package of the extra `export` is missing.
        """
        if self.executable is None:
            self.prepareDevice(False)
        file = resolve_file_path(filename, "executable.ipujax")
        file.parent.mkdir(parents=True, exist_ok=True)
        self._require_executable("compileAndExport").save(file)

    def loadExecutable(self, filename: str | os.PathLike[str]) -> None:
        """Raises an error: sessions compile their programs and cannot load them.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.value_error(
            f"a session cannot load {os.fspath(filename)}",
            "set SessionOptions.enableEngineCaching and cachePath, and prepareDevice() compiles "
            "nothing that was compiled before",
        )

    def getSerializedGraph(self) -> bytes:
        """Raises an error: there is no Poplar graph.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.value_error(
            "getSerializedGraph: there is no graph of Poplar", "see getReport()"
        )

    def _check_ready(self, method: str) -> None:
        if not self._is_ready:
            raise check.value_error(
                f"prepareDevice() must be called before {method}()", "call session.prepareDevice()"
            )

    def _require_executable(self, method: str) -> Executable:
        if self.executable is None:
            self._check_ready(method)
            self._compile_session()
        return check.require_instance(self.executable, Executable, "the program")

    @abc.abstractmethod
    def _compile_session(self) -> None:
        """Compiles the program for the shapes of a step."""


def resolve_file_path(path: str | os.PathLike[str], name: str) -> Path:
    """Returns the path of a file; in a folder, the path of the file with a default name."""
    resolved = Path(path).expanduser()
    return resolved / name if resolved.is_dir() else resolved
