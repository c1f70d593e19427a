"""`executable.save`: from a compiled program to a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from ipujax.checks.arguments import Checks
from ipujax.driver.arguments import Signature
from ipujax.errors import ConfigTypeError, ExecutableError
from ipujax.saved import container, kernels
from ipujax.saved.configuration import encode_options
from ipujax.saved.container import SUFFIX, Content
from ipujax.saved.program import Writer
from ipujax.saved.queues import needs_of
from ipujax.saved.signatures import encode_signature
from ipujax.system.log import get_logger
from ipujax.version import __version__
from lowering import foreign_code, ir

if TYPE_CHECKING:
    from ipujax.driver.stages import Executable

_check = Checks(ConfigTypeError, ExecutableError)


def save(executable: Executable, path: str | os.PathLike[str]) -> None:
    """Writes an executable to a file.

    Raises:
      ExecutableError: (a `ValueError`) a program that cannot be saved.
      MissingExtraError: (an `ImportError`) the package of the extra `export` is missing.
      OSError: a file that cannot be written.
    """
    _check.path(path, "the path of executable.save")
    kernels.need_extra()
    container.write(_content(executable), path)


def save_into(executable: Executable, folder: str) -> None:
    """Writes an executable into the folder that `serialization_output_folder` names.

    A program that cannot be saved, or whose folder cannot be written, runs all the same; a warning
    says why it is not there.
    """
    lowered = executable.lowered
    name = re.sub(r"[^\w.-]+", "_", executable.program.name)
    path = Path(folder, f"{name}-{lowered.fingerprint()[:16]}{SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(executable, path)
    except (ExecutableError, OSError) as error:
        get_logger().warning("serialization_output_folder: %s", error)


def _content(executable: Executable) -> Content:
    lowered, program = executable.lowered, executable.program
    device, signature, name = lowered.device, lowered.signature, program.name
    _refuse(lowered.program, signature)
    writer = Writer(program)
    written = writer.write()
    exported = [kernels.write(kernel, program.replicas, name) for kernel in writer.kernels]
    index = {
        "ipujax": __version__,
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "engine": executable.engine,
        "device": {"ordinal": device.ordinal, "ipus": device.num_ipus},
        "configuration": encode_options(device.config),
        "ipus": lowered.program.ipus,
        "signature": encode_signature(signature),
        "queues": [need.encoded() for need in needs_of(program, writer.queues)],
        "program": written,
        "kernels": [known for known, _ in exported],
        "text": executable.as_text(),
        "report": executable.report().to_dict(),
    }
    return Content(index, [*writer.blobs, *(code for _, code in exported)])


def _refuse(program: ir.Program, signature: Signature) -> None:
    """Raises for what only this process has."""
    name = program.name
    for node in ir.walk(program.body):
        if isinstance(node, (ir.Execute, ir.HostCall)):
            for what, line in foreign_code(node.kernel.jaxpr.jaxpr):
                raise _refused(f"`{name}` {what}", line)
        if isinstance(node, ir.HostCall):
            what = f"`{name}` runs `{node.name}` outside of the compiled code, on the host"
            raise _refused(what, node.kernel.origin)
    if signature.refs.closed_over:
        raise ExecutableError(
            f"`{name}` closes over a Ref, which is an object of this process, and cannot be saved",
            fix="make the Ref an argument",
        )


def _refused(what: str, line: str) -> ExecutableError:
    return ExecutableError(
        f"{what}, and cannot be saved: another process does not have that",
        where=line or "unknown",
        fix="leave it out of what is saved, or run the program in the process that compiles it",
    )
