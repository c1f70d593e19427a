"""`ipu.load_executable`: from a file to a program that runs."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax

from ipujax import events
from ipujax.checks.arguments import Checks
from ipujax.driver import executable_cache
from ipujax.driver.arguments import Signature
from ipujax.driver.running import Ready
from ipujax.engine.callbacks import Watch
from ipujax.engine.choose import ENGINES
from ipujax.engine.compilation import cost_analysis, memory_analysis
from ipujax.engine.execution import loaded
from ipujax.engine.host_code import HostCode
from ipujax.errors import ConfigTypeError, DeviceError, ExecutableError, ExecutableFileError
from ipujax.host import files
from ipujax.host.queues import Queue
from ipujax.host_trace import HostTrace, checked
from ipujax.saved import classes, kernels, program
from ipujax.saved.configuration import decode_options
from ipujax.saved.container import SUFFIX, Content, unpack
from ipujax.saved.queues import Need, chosen
from ipujax.saved.signatures import check_signature, decode_signature
from ipujax.saved.values import Json
from ipujax.system.config_schema import snapshot
from ipujax.system.devices import SYSTEM, LogicalDevice, devices_of
from ipujax.targets import Target, target_of
from ipujax.version import __version__
from lowering import ir, lists

if TYPE_CHECKING:
    from ipujax.report.report import Report

_check = Checks(ConfigTypeError, ExecutableError)


@lists()
class LoadedExecutable:
    """A program that was read from a file: it is called as the one that was saved.

    Attributes:
      engine: that runs it.
      program: the Program that runs; its kernels are compiled code, which shows no operations.
    """

    def __init__(
        self,
        index: Mapping[str, Json],
        signature: Signature,
        read: ir.Program,
        device: LogicalDevice,
    ):
        self.engine: str = index["engine"]
        self.program = read
        self._index = index
        executable_cache.activate()
        with events.span("load", read.name):
            self._machine = loaded(
                read, self.engine, device.first, index["ipus"], signature.donated
            )
        host_code = HostCode.of(read, Watch())
        self._ready = Ready(read, signature, device, self._machine, host_code)

    def __repr__(self) -> str:
        return f"<LoadedExecutable {self.program!r}, engine {self.engine!r}>"

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Runs the program.

        Raises:
          ExecutableArgumentError: (an `ExecutableError`, which is a `ValueError`) arguments of
            another structure, shape or dtype than it was compiled for.
          OutOfRangeError: a data set that ended before its loop.
          FloatingPointError: what `floating_point_behaviour` was asked to catch.
        """
        return self._ready(args, kwargs)

    def as_text(self) -> str:
        """The text of the Program that runs, as it was when it was saved."""
        return self._index["text"]

    def report(self, target: str | Target | None = None, host: HostTrace | None = None) -> Report:
        """What a call would cost on the chip that the program was saved for.

        Args:
          target: that chip, or its name; it need not be given.
          host: what `ipu.host_trace` recorded of a run, to be shown beside it.

        Raises:
          ExecutableError: (a `ValueError`) another chip: its report needs the program's
            operations, which compiled code does not show.
        """
        report = self._report
        if target is not None and target_of(target).name != report.target.name:
            raise ExecutableError(
                f"a report of the saved `{self.program.name}` for {target_of(target).name}: it was "
                f"saved with the one for {report.target.name}",
                fix="report on the function that was compiled, or save it with another "
                "ipu_model.version",
            )
        return report if host is None else dc.replace(report, host=checked(host))

    @functools.cached_property
    def _report(self) -> Report:
        from ipujax.report.report import Report  # most runs need none

        return Report.from_dict(self._index["report"])

    def cost_analysis(self) -> dict[str, float]:
        """XLA's cost estimates (`flops`, `bytes accessed`, ...), summed over the kernels."""
        return cost_analysis(self._machine.compiled_kernels())

    def memory_analysis(self) -> list[object]:
        """XLA's memory statistics, one entry per kernel."""
        return memory_analysis(self._machine.compiled_kernels())


@_check.guard
def load_executable(
    path: str | os.PathLike[str], queues: Mapping[str, Queue] = MappingProxyType({})
) -> LoadedExecutable:
    """Reads a program that `executable.save` wrote, in this process or on another machine.

    Args:
      path: the file; or a folder with one `.ipujax` file in it.
      queues: the infeeds and outfeeds to use, by the names that the program has for them.

    Returns:
      The program: it takes the same arguments and gives the same results. It runs on the device
      that it was compiled for, which must have as many IPUs; without a configuration it brings
      its own.

    Raises:
      ExecutableFileError: (a `FileNotFoundError`) there is no such file.
      ExecutableError: (a `ValueError`) a file that is no saved executable, damaged, of another
        version or for another kind of JAX devices; queues or a device that do not fit.
      DeviceError: (a `ValueError`) the system has no device of that ordinal.
      MissingExtraError: (an `ImportError`) the package of the extra `export` is missing.
      ConfigTypeError: (a `TypeError`) a path that is none, or queues that are no mapping.
      OSError: a file that cannot be read.
    """
    _check.path(path, "the path of load_executable")
    _check.instance(queues, Mapping, "queues of load_executable", "a dict from names to queues")
    kernels.need_extra()
    shown = os.fspath(path)
    content = unpack(_bytes_of(Path(path)), shown)
    classes.look_again()
    with _understanding(content, shown):
        _check_index(content.index)
        _check_machine(content.index, shown)
        signature = decode_signature(content.index["signature"])
        device = _device(content.index, signature.name)
        needs = [Need.decoded(each) for each in content.index["queues"]]
        replicas = int(content.index["program"]["replicas"])
    own = chosen(needs, queues, signature.name, device.ordinal, replicas)
    with _understanding(content, shown):
        read = _decoded_program(content, signature, own)
        return LoadedExecutable(content.index, signature, read, device)


def _bytes_of(path: Path) -> bytes:
    """The file's content; of a folder, that of the one in it."""
    try:
        if path.is_dir():
            found = sorted(path.glob(f"*{SUFFIX}"))
            if len(found) != 1:
                names = ", ".join(each.name for each in found) or "none"
                raise ExecutableError(
                    f"{path} is a folder, and should have one *{SUFFIX} file in it; it has {names}",
                    fix="give the file",
                )
            path = found[0]
        return files.read_bytes(path, path.stat().st_size)
    except FileNotFoundError as error:
        raise ExecutableFileError(f"there is no saved executable {path}") from error
    except files.UnfitFileError as error:
        raise ExecutableError(f"{path} {error}") from None


@contextlib.contextmanager
def _understanding(content: Content, path: str) -> Generator[None]:
    """Says of content that another version must have written that it cannot be understood."""
    try:
        yield
    except DeviceError:
        raise
    except ExecutableError as error:
        if path in error.what:
            raise
        raise ExecutableError(f"{path} cannot be loaded: {error.what}", fix=error.fix) from error
    except Exception as error:
        index = content.index
        raise ExecutableError(
            f"{path} is not understood: {type(error).__name__}: {error}; ipujax "
            f"{index.get('ipujax')} on JAX {index.get('jax')} saved it, and this is ipujax "
            f"{__version__} on JAX {jax.__version__}",
            fix="save it again with these versions, or load it with those",
        ) from error


def _check_index(index: Mapping[str, Json]) -> None:
    """Refuses an index whose parts are of other kinds than those that are looked at later."""
    engines = [engine for engine in ENGINES if engine != "auto"]
    is_right = index["engine"] in engines and isinstance(index["text"], str)
    if not is_right or type(index["ipus"]) is not int or not isinstance(index["report"], dict):
        raise ExecutableError("its engine, its IPUs, its text or its report cannot be")


def _check_machine(index: Mapping[str, Json], path: str) -> None:
    platform = jax.default_backend()
    if index["platform"] != platform:
        raise ExecutableError(
            f"{path} was saved for {index['platform']}, and JAX computes on {platform} here",
            fix=f"set JAX_PLATFORMS={index['platform']}, or save it on a machine like this",
        )
    wide = ("int64", "uint64", "float64", "complex128")
    is_wide = any(name in wide for name, *_ in index["program"]["avals"])
    if is_wide and jax.dtypes.canonicalize_dtype("float64") != "float64":
        raise ExecutableError(
            f"{path} was saved with arrays of 64 bits, which JAX does not have here",
            fix='call jax.config.update("jax_enable_x64", True) first',
        )


def _device(index: Mapping[str, Json], name: str) -> LogicalDevice:
    """The device that a program runs on."""
    ordinal, ipus = index["device"]["ordinal"], index["device"]["ipus"]
    if not SYSTEM.configured and ordinal == 0:
        config = decode_options(index["configuration"])
        return devices_of(snapshot(config, frozen=True))[ordinal]
    device = SYSTEM.device(f"/device:IPU:{ordinal}")
    if device.num_ipus != ipus:
        raise ExecutableError(
            f"`{name}` was saved for a {device.name} of {ipus} IPUs, and here it has "
            f"{device.num_ipus}",
            fix=f"configure the system with auto_select_ipus = {ipus}, or not at all",
        )
    return device


def _decoded_program(content: Content, signature: Signature, queues: list[Queue]) -> ir.Program:
    index = content.index
    constants = len(index["program"]["constants"])
    codes = content.blobs[constants:]
    pairs = zip(index["kernels"], codes, strict=True)
    replicas = index["program"]["replicas"]
    own = [kernels.read(known, code, replicas) for known, code in pairs]
    read = program.read(index["program"], own, queues, content.blobs[:constants])
    ir.verify(read)
    check_signature(signature, read)
    return read
