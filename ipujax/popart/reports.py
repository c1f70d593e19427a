"""What a session tells of its program, and where it writes it."""

from __future__ import annotations

import abc
import os
from pathlib import Path

from ipujax.driver.stages import Executable
from ipujax.popart.checks import check
from ipujax.popart.options import SessionOptions
from ipujax.report import Report
from ipujax.training.device_loop import DeviceLoop


class Reports(abc.ABC):
    """The part of a session that is about its program."""

    _loop: DeviceLoop
    _options: SessionOptions
    _is_ready: bool

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compiles the program.

        Args:
          loadEngine: changes nothing; a program is on the device from its first step on.
        """
        check.flag(loadEngine, "loadEngine")
        if self._options.compileEngine:
            self._compile()
        self._is_ready = True

    def loadEngineAndConnectStreams(self) -> None:
        """Changes nothing, as `loadEngine`."""
        self._check_ready("loadEngineAndConnectStreams")

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """Changes nothing, as `loadEngine`."""
        check.flag(isLoaded, "isLoaded")

    @property
    def executable(self) -> Executable | None:
        """The compiled program; None before `prepareDevice`."""
        return self._loop.executable

    def getReport(self) -> Report:
        """The machine model's report of the program.

        Raises:
          PopARTError: (a `ValueError`) before `prepareDevice`.
        """
        return self._compiled("getReport").report()

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """The same as text; there is nothing to reset."""
        check.flag(resetProfile, "resetProfile")
        return str(self._compiled("getSummaryReport").report())

    def getCycleCount(self, id: str = "") -> int:
        """Cycles of a step, as the machine model has them; it has no parts that have names.

        Raises:
          PopARTError: (a `ValueError`) without `instrumentWithHardwareCycleCounter`.
        """
        if not self._options.instrumentWithHardwareCycleCounter:
            raise check.refuse(
                "cycles are not counted", "set SessionOptions.instrumentWithHardwareCycleCounter"
            )
        if check.text(id, "id"):
            raise check.refuse(f"there is no cycle count {id!r}", "ask for that of the step")
        return self._compiled("getCycleCount").report().cycles

    def compileAndExport(self, filename: str | os.PathLike[str]) -> None:
        """Compiles the program, and writes it as `ipujax` writes executables.

        Args:
          filename: the file; a folder's is `executable.ipujax`. Folders that are missing are made.

        Raises:
          ExecutableError: (a `ValueError`) a program that cannot be saved.
          MissingExtraError: (an `ImportError`) the package of the extra `export` is missing.
        """
        if self.executable is None:
            self.prepareDevice(False)
        place = placed_in(filename, "executable.ipujax")
        place.parent.mkdir(parents=True, exist_ok=True)
        self._compiled("compileAndExport").save(place)

    def loadExecutable(self, filename: str | os.PathLike[str]) -> None:
        """Is refused: sessions compile their programs.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.refuse(
            f"a session cannot load {os.fspath(filename)}",
            "set SessionOptions.enableEngineCaching and cachePath, and prepareDevice() compiles "
            "nothing that was compiled before",
        )

    def getSerializedGraph(self) -> bytes:
        """Is refused: there is no graph of Poplar.

        Raises:
          PopARTError: (a `ValueError`) always.
        """
        raise check.refuse("getSerializedGraph: there is no graph of Poplar", "see getReport()")

    def _check_ready(self, what: str) -> None:
        if not self._is_ready:
            raise check.refuse(
                f"prepareDevice() must be called before {what}()", "call session.prepareDevice()"
            )

    def _compiled(self, what: str) -> Executable:
        if self.executable is None:
            self._check_ready(what)
            self._compile()
        return check.instance(self.executable, Executable, "the program")

    @abc.abstractmethod
    def _compile(self) -> None:
        """Compiles the program for the shapes of a step."""


def placed_in(path: str | os.PathLike[str], name: str) -> Path:
    """A file, or that of a name in a folder."""
    place = Path(path).expanduser()
    return place / name if place.is_dir() else place
