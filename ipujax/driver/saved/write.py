"""`executable.save`: writes a compiled program to a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from ipujax.driver.call_arguments import Signature
from ipujax.driver.saved import container, kernels
from ipujax.driver.saved.configuration import encode_options
from ipujax.driver.saved.container import SUFFIX, Content
from ipujax.driver.saved.encoded_program import Writer
from ipujax.driver.saved.saved_queues import list_needed_queues
from ipujax.driver.saved.saved_signatures import encode_signature
from ipujax.ground import Checks, ConfigTypeError, ExecutableError, __version__
from ipujax.system import get_logger
from lowering import find_actions_outside_compiled_code, ir

if TYPE_CHECKING:
    from ipujax.driver.compile_stages import Executable

_check = Checks(ConfigTypeError, ExecutableError)


def save_executable(executable: Executable, path: str | os.PathLike[str]) -> None:
    """Writes an executable to a file.

    Raises:
      ExecutableError: (a `ValueError`) a program that cannot be saved.
      MissingExtraError: (an `ImportError`) the package of the extra `export` is missing.
      OSError: a file that cannot be written.
    """
    _check.require_path(path, "the path of executable.save")
    kernels.check_flatbuffers()
    container.write_container(_build_content(executable), path)


def save_into_folder(executable: Executable, folder: str) -> None:
    """Writes an executable into the folder that `serialization_output_folder` names.

    A program that cannot be saved, or whose folder cannot be written, runs all the same; a warning
    says why it is not there.
    """
    lowered = executable.lowered
    name = re.sub(r"[^\w.-]+", "_", executable.program.name)
    path = Path(folder, f"{name}-{lowered.compute_program_hash()[:16]}{SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_executable(executable, path)
    except (ExecutableError, OSError) as error:
        get_logger().warning("serialization_output_folder: %s", error)


def _build_content(executable: Executable) -> Content:
    lowered, program = executable.lowered, executable.program
    device, signature, name = lowered.device, lowered.signature, program.name
    _check_savable(lowered.program, signature)
    if lowered.traced.settings.meshes:
        raise ExecutableError(
            f"`{name}` runs on meshes of this process's devices, and cannot be saved",
            fix="compile it in the process that runs it, or save it compiled without `meshes`",
        )
    writer = Writer(program)
    encoded_program = writer.encode_program()
    exported = [kernels.export_kernel(kernel, program.replicas, name) for kernel in writer.kernels]
    index = {
        "ipujax": __version__,
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "engine": executable.engine,
        "device": {"ordinal": device.ordinal, "ipus": device.num_ipus},
        "configuration": encode_options(device.config),
        "ipus": lowered.program.ipus,
        "signature": encode_signature(signature),
        "queues": [need.encode_need() for need in list_needed_queues(program, writer.queues)],
        "program": encoded_program,
        "kernels": [description for description, _ in exported],
        "text": executable.as_text(),
        "report": executable.report().to_dict(),
    }
    return Content(index, [*writer.blobs, *(code for _, code in exported)])


def _check_savable(program: ir.Program, signature: Signature) -> None:
    """Raises an error if a program uses objects that exist in this process only."""
    name = program.name
    for node in ir.walk_nodes(program.body):
        if isinstance(node, (ir.Execute, ir.HostCall)):
            for description, line in find_actions_outside_compiled_code(node.kernel.jaxpr.jaxpr):
                raise _not_savable_error(f"`{name}` {description}", line)
        if isinstance(node, ir.HostCall):
            description = f"`{name}` runs `{node.name}` outside of the compiled code, on the host"
            raise _not_savable_error(description, node.kernel.origin)
    if signature.refs.closed_over:
        raise ExecutableError(
            f"`{name}` closes over a Ref, which is an object of this process, and cannot be saved",
            fix="make the Ref an argument",
        )


def _not_savable_error(description: str, line: str) -> ExecutableError:
    return ExecutableError(
        f"{description}, and cannot be saved: another process does not have that",
        where=line or "unknown",
        fix="leave it out of what is saved, or run the program in the process that compiles it",
    )
