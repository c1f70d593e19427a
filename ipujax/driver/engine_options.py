"""What flags, log levels and the engine's options ask for before a program is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from ipujax.errors import OutOfMemoryError
from ipujax.report import auto_report, program_log
from ipujax.system.poplar_options import engine_options, may_run_out_of_memory


def obey(program: auto_report.Reportable, compilation: Mapping[str, object]) -> None:
    """Writes and logs what is asked for about the program, and checks its memory.

    Args:
      program: on its way to being compiled.
      compilation: `compilation_poplar_options` of its configuration.

    Raises:
      OutOfMemoryError: (a `MemoryError`) a program that must fit and does not.
      ConfigError: (a `ValueError`) wrong options.
      OSError: a folder for tile mappings that cannot be written to.
    """
    program_log.write_tensor_map(program)
    program_log.log(program)
    options = engine_options(compilation)
    auto_report.write(program, options)
    if may_run_out_of_memory(options):
        return
    report = program.report()
    if not report.memory.fits:
        # Late: it needs the machine model, which most runs do not.
        from ipujax.report.presentation.text import out_of_memory

        text = f"{out_of_memory(report)}\n  in:    `{report.name}`"
        raise OutOfMemoryError(text, report=report)
