"""`ipu.load_executable`: loads a program from a file so that it can run."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import jax

from ipujax.driver import executable_cache
from ipujax.driver.call_arguments import Signature
from ipujax.driver.ready_program import ReadyProgram
from ipujax.driver.saved import classes, kernels
from ipujax.driver.saved import encoded_program as program
from ipujax.driver.saved.configuration import decode_options
from ipujax.driver.saved.container import SUFFIX, Content, decode_file
from ipujax.driver.saved.saved_queues import Need, match_queues
from ipujax.driver.saved.saved_signatures import check_signature, decode_signature
from ipujax.engine import (
    ENGINES,
    HostCode,
    Watch,
    compile_loaded_program,
    list_memory_analyses,
    sum_cost_analyses,
)
from ipujax.ground import (
    Checks,
    ConfigTypeError,
    DeviceError,
    ExecutableError,
    ExecutableFileError,
    HostTrace,
    Json,
    PyTree,
    __version__,
    events,
    files,
    require_host_trace,
)
from ipujax.host import Queue
from ipujax.system import (
    SYSTEM,
    LogicalDevice,
    Target,
    build_logical_devices,
    copy_config,
    target_of,
)
from lowering import ir, jaxpr, limit_dir_to

if TYPE_CHECKING:
    from ipujax.report import Report

_check = Checks(ConfigTypeError, ExecutableError)


@limit_dir_to()
class LoadedExecutable:
    """A program that was loaded from a file; called like the one that was saved.

    Attributes:
      engine: the name of the engine that runs it.
      program: the Program that runs; its kernels are compiled code, which shows no operations.
    """

    def __init__(
        self,
        index: Mapping[str, Json],
        signature: Signature,
        loaded_program: ir.Program,
        device: LogicalDevice,
    ):
        self.engine: str = index["engine"]
        self.program = loaded_program
        self._index = index
        executable_cache.activate_cache()
        with events.span("load", loaded_program.name):
            self._machine = compile_loaded_program(
                loaded_program, self.engine, device.first, index["ipus"], signature.donated
            )
        host_code = HostCode.collect_host_code(loaded_program, Watch())
        self._ready = ReadyProgram(loaded_program, signature, device, self._machine, host_code)

    def __repr__(self) -> str:
        return f"<LoadedExecutable {self.program!r}, engine {self.engine!r}>"

    def __call__(self, *args: object, **kwargs: object) -> PyTree:
        """Runs the program.

        Raises:
          ExecutableArgumentError: (an `ExecutableError`, which is a `ValueError`) arguments of
            another structure, shape or dtype than it was compiled for.
          OutOfRangeError: a data set that ended before its loop.
          FloatingPointError: what `floating_point_behaviour` was asked to catch.
        """
        return self._ready(args, kwargs)

    def as_text(self) -> str:
        """Returns the text of the Program that runs, as it was when it was saved."""
        return self._index["text"]

    def report(self, target: str | Target | None = None, host: HostTrace | None = None) -> Report:
        """Returns the modelled cost of a call on the chip that the program was saved for.

        Args:
          target: that chip, or its name; it need not be given.
          host: what `ipu.host_trace` recorded of a run, to be shown beside it.

        Raises:
          ExecutableError: (a `ValueError`) another chip: its report needs the program's
            operations, which compiled code does not show.
        """
        report = self._saved_report
        if target is not None and target_of(target).name != report.target.name:
            raise ExecutableError(
                f"a report of the saved `{self.program.name}` for {target_of(target).name}: it was "
                f"saved with the one for {report.target.name}",
                fix="report on the function that was compiled, or save it with another "
                "ipu_model.version",
            )
        return report if host is None else dc.replace(report, host=require_host_trace(host))

    @functools.cached_property
    def _saved_report(self) -> Report:
        from ipujax.report import Report  # most runs need none

        return Report.from_dict(self._index["report"])

    def cost_analysis(self) -> dict[str, float]:
        """Returns XLA's cost estimates (`flops`, `bytes accessed`), summed over the kernels."""
        return sum_cost_analyses(self._machine.list_compiled_kernels())

    def memory_analysis(self) -> list[object]:
        """Returns XLA's memory statistics, one entry per kernel."""
        return list_memory_analyses(self._machine.list_compiled_kernels())


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
    _check.require_path(path, "the path of load_executable")
    _check.require_instance(
        queues, Mapping, "queues of load_executable", "a dict from names to queues"
    )
    kernels.check_flatbuffers()
    path_text = os.fspath(path)
    content = decode_file(_read_file_bytes(Path(path)), path_text)
    classes.clear_class_table()
    with _explain_errors(content, path_text):
        _check_index(content.index)
        _check_platform_and_precision(content.index, path_text)
        signature = decode_signature(content.index["signature"])
        device = _find_or_make_device(content.index, signature.name)
        needs = [Need.decode_need(need_json) for need_json in content.index["queues"]]
        replicas = int(content.index["program"]["replicas"])
    matched_queues = match_queues(needs, queues, signature.name, device.ordinal, replicas)
    with _explain_errors(content, path_text):
        read = _load_program(content, signature, matched_queues)
        return LoadedExecutable(content.index, signature, read, device)


def _read_file_bytes(path: Path) -> bytes:
    """Reads the bytes of a file, or of the only saved executable in a folder."""
    try:
        if path.is_dir():
            saved_files = sorted(path.glob(f"*{SUFFIX}"))
            if len(saved_files) != 1:
                names = ", ".join(saved_file.name for saved_file in saved_files) or "none"
                raise ExecutableError(
                    f"{path} is a folder, and should have one *{SUFFIX} file in it; it has {names}",
                    fix="give the file",
                )
            path = saved_files[0]
        return files.read_bytes(path, path.stat().st_size)
    except FileNotFoundError as error:
        raise ExecutableFileError(
            f"there is no saved executable {path}",
            where=jaxpr.current_user_line(),
            fix="give a file that executable.save wrote, or the folder of one",
        ) from error
    except files.UnfitFileError as error:
        raise ExecutableError(f"{path} {error}") from None


@contextlib.contextmanager
def _explain_errors(content: Content, path: str) -> Generator[None]:
    """Turns errors on content of another ipujax version into one that names the versions."""
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
    """Raises an error if a part of the index has an unexpected type."""
    engines = [engine for engine in ENGINES if engine != "auto"]
    is_right = index["engine"] in engines and isinstance(index["text"], str)
    if not is_right or type(index["ipus"]) is not int or not isinstance(index["report"], dict):
        raise ExecutableError("its engine, its IPUs, its text or its report cannot be")


def _check_platform_and_precision(index: Mapping[str, Json], path: str) -> None:
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


def _find_or_make_device(index: Mapping[str, Json], name: str) -> LogicalDevice:
    """Finds the device that a program runs on; without a configuration, makes the saved one."""
    ordinal, ipus = index["device"]["ordinal"], index["device"]["ipus"]
    if not SYSTEM.is_configured and ordinal == 0:
        config = decode_options(index["configuration"])
        return build_logical_devices(copy_config(config, frozen=True))[ordinal]
    device = SYSTEM.device(f"/device:IPU:{ordinal}")
    if device.num_ipus != ipus:
        raise ExecutableError(
            f"`{name}` was saved for a {device.name} of {ipus} IPUs, and here it has "
            f"{device.num_ipus}",
            fix=f"configure the system with auto_select_ipus = {ipus}, or not at all",
        )
    return device


def _load_program(content: Content, signature: Signature, queues: list[Queue]) -> ir.Program:
    index = content.index
    constants = len(index["program"]["constants"])
    codes = content.blobs[constants:]
    pairs = zip(index["kernels"], codes, strict=True)
    replicas = index["program"]["replicas"]
    imported_kernels = [
        kernels.import_kernel(description, code, replicas) for description, code in pairs
    ]
    loaded_program = program.decode_program(
        index["program"], imported_kernels, queues, content.blobs[:constants]
    )
    ir.verify(loaded_program)
    check_signature(signature, loaded_program)
    return loaded_program
