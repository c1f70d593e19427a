"""What a program is, in the log and in files of tile mappings, for whoever asks by environment."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipujax.host import files
from ipujax.report.auto_report import Reportable
from ipujax.system.flags import poplar_flags
from ipujax.system.log import TRACE, get_logger, get_plan_logger
from lowering import machine

_UNSAFE = re.compile(r"[^\w.-]+")  # in names of files


def log(program: Reportable) -> None:
    """Logs a program, on the levels where that is asked for.

    DEBUG has the Program and TRACE the tiles of each value. INFO of PopLibs' own logger
    (`POPLIBS_LOG_LEVEL`, OFF by default) has what each operation is planned to take.
    """
    name, logger, plans = program.program.name, get_logger(), get_plan_logger()
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("Program `%s`:\n%s", name, program.as_text())
    if plans.isEnabledFor(logging.INFO):
        for operation in program.report().operations:
            plans.info("Plan of `%s`: %s", name, _planned(operation))
    if logger.isEnabledFor(TRACE):
        for entry in _mapped(program):
            logger.log(TRACE, "Tiles of `%s`: %s", name, json.dumps(entry))


def write_tensor_map(program: Reportable) -> None:
    """Writes the tile mapping of a program into the folder that `--tensor_map_file_path` names.

    Where the folder cannot be made or written to, a warning says so: the program can do without.
    """
    folder = poplar_flags().tensor_map_file_path
    if not folder:
        return
    name = program.program.name
    whole = {"program": name, "target": program.report().target.name, "values": [*_mapped(program)]}
    path = Path(folder) / f"{_UNSAFE.sub('_', name)}.tensor_map.json"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        files.write_text(path, json.dumps(whole) + "\n")
    except OSError as error:
        get_logger().warning(
            "--tensor_map_file_path=%s: no tile mapping of `%s`, and the run goes on: %s",
            *(folder, name, error),
        )


def _planned(operation: machine.OperationTotal) -> str:
    line = f", {operation.origin}" if operation.origin else ""
    return (
        f"{operation.name} on IPU {operation.ipu}: {operation.tiles:,} tiles, "
        f"{operation.runs:,} x, {operation.cycles:,.0f} cycles{line}"
    )


def _mapped(program: Reportable) -> Iterator[dict[str, Any]]:
    """Each value on each IPU that has it: [tile, bytes] for the tiles with any."""
    for (value, ipu), mapping in sorted(program.report().profile.mappings.items()):
        held = enumerate(mapping.bytes_per_tile().tolist())
        yield {
            "value": f"%{value}",
            "ipu": ipu,
            "layout": mapping.layout,
            "elements": mapping.elements,
            "tiles": [[tile, bytes_] for tile, bytes_ in held if bytes_],
        }
