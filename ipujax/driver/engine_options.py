"""Applies flags, log levels and engine options before a program is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from ipujax.ground import OutOfMemoryError
from ipujax.report import auto_report, program_log
from ipujax.system import allows_out_of_memory, read_engine_options


def apply_engine_options(
    program: auto_report.Reportable, compilation: Mapping[str, object]
) -> None:
    """Writes the logs and reports that the options ask for, and checks the program's memory.

    Args:
      program: on its way to being compiled.
      compilation: `compilation_poplar_options` of its configuration.

    Raises:
      OutOfMemoryError: (a `MemoryError`) a program that must fit and does not.
      ConfigError: (a `ValueError`) wrong options.
      OSError: a folder for tile mappings that cannot be written to.
    """
    program_log.write_tensor_map(program)
    program_log.log_program(program)
    options = read_engine_options(compilation)
    auto_report.write_auto_report(program, options)
    if allows_out_of_memory(options):
        return
    report = program.report()
    if not report.memory.fits:
        # Late: it needs the machine model, which most runs do not.
        from ipujax.report import describe_lack_of_memory

        text = f"{describe_lack_of_memory(report)}\n  in:    `{report.name}`"
        raise OutOfMemoryError(text, report=report)
