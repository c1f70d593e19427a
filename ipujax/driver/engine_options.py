"""What the options of Poplar's engine ask for before a program is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from ipujax.errors import OutOfMemoryError
from ipujax.report import auto_report
from ipujax.system.poplar_options import engine_options, may_run_out_of_memory


def obey(program: auto_report.Reportable, compilation: Mapping[str, object]) -> None:
    """Writes the report that the options ask for, and checks the program's memory.

    Args:
      program: on its way to being compiled.
      compilation: `compilation_poplar_options` of its configuration.

    Raises:
      OutOfMemoryError: (a `MemoryError`) a program that must fit and does not.
      ConfigError: (a `ValueError`) wrong options.
    """
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
