"""Writes programs to the log and tile mappings to files, where the environment asks for them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ipujax.ground import files
from ipujax.report.auto_report import Reportable
from ipujax.system import TRACE, get_logger, get_plan_logger, read_poplar_flags
from lowering import machine

_UNSAFE = re.compile(r"[^\w.-]+")  # in names of files


def log_program(program: Reportable) -> None:
    """Logs a program, on the levels that are enabled.

    DEBUG has the Program and TRACE the tiles of each value. INFO of PopLibs' own logger
    (`POPLIBS_LOG_LEVEL`, OFF by default) has the planned tiles and cycles of each operation.
    """
    name, logger, plan_logger = program.program.name, get_logger(), get_plan_logger()
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("Program `%s`:\n%s", name, program.as_text())
    if plan_logger.isEnabledFor(logging.INFO):
        for operation in program.report().operations:
            plan_logger.info("Plan of `%s`: %s", name, _describe_operation_plan(operation))
    if logger.isEnabledFor(TRACE):
        for entry in _list_tile_mappings(program):
            logger.log(TRACE, "Tiles of `%s`: %s", name, json.dumps(entry))


def write_tensor_map(program: Reportable) -> None:
    """Writes the tile mapping of a program into the folder that `--tensor_map_file_path` names.

    Where the folder cannot be made or written to, a warning says so, and the run goes on.
    """
    folder = read_poplar_flags().tensor_map_file_path
    if not folder:
        return
    name = program.program.name
    tensor_map = {
        "program": name,
        "target": program.report().target.name,
        "values": [*_list_tile_mappings(program)],
    }
    path = Path(folder) / f"{_UNSAFE.sub('_', name)}.tensor_map.json"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        files.write_text(path, json.dumps(tensor_map) + "\n")
    except OSError as error:
        get_logger().warning(
            "--tensor_map_file_path=%s: no tile mapping of `%s`, and the run goes on: %s",
            *(folder, name, error),
        )


def _describe_operation_plan(operation: machine.OperationTotal) -> str:
    line = f", {operation.origin}" if operation.origin else ""
    return (
        f"{operation.label} ({operation.name}) on IPU {operation.ipu}: {operation.tiles:,} tiles, "
        f"{operation.runs:,} x, {operation.cycles:,.0f} cycles{line}"
    )


def _list_tile_mappings(program: Reportable) -> Iterator[dict[str, Any]]:
    """Yields each value on each IPU that has it, with [tile, bytes] for the tiles with any."""
    for (value, ipu), mapping in sorted(program.report().profile.mappings.items()):
        bytes_by_tile = enumerate(mapping.bytes_per_tile().tolist())
        yield {
            "value": f"%{value}",
            "ipu": ipu,
            "layout": mapping.layout,
            "elements": mapping.elements,
            "tiles": [[tile, bytes_] for tile, bytes_ in bytes_by_tile if bytes_],
        }
