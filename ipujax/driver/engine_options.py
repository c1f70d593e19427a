"""Applies flags, log levels and engine options before a program is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipujax.ground import OutOfMemoryError
from ipujax.report import auto_report, program_log
from ipujax.system import allows_out_of_memory, read_engine_options
from lowering import ops

if TYPE_CHECKING:
    from ipujax.driver.compile_stages import Lowered


def apply_engine_options(program: Lowered) -> None:
    """Writes the logs and reports that the options ask for, and checks the program's memory.

    What users have put on tiles must fit there unless an option allows more; all else may exceed
    tiles unless an option forbids it.

    Args:
      program: on its way to being compiled.

    Raises:
      OutOfMemoryError: (a `MemoryError`) a program that must fit and does not.
      ConfigError: (a `ValueError`) wrong options.
      OSError: a folder for tile mappings that cannot be written to.
    """
    program_log.write_tensor_map(program)
    program_log.log_program(program)
    options = read_engine_options(program.device.config.compilation_poplar_options)
    auto_report.write_auto_report(program, options)
    # Late imports: these need the machine model, which most runs do not.
    if not allows_out_of_memory(options):
        report = program.report()
        if not report.memory.fits:
            from ipujax.report import describe_lack_of_memory

            text = f"{describe_lack_of_memory(report)}\n  in:    `{report.name}`"
            raise OutOfMemoryError(text, report=report)
    elif ops.needs_room_on_tiles(program.closed):
        if allows_out_of_memory(options, by_default=False):
            return
        from ipujax.driver.room_on_tiles import require_room_on_tiles

        require_room_on_tiles(program.report())
