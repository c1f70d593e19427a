"""Reads and writes files of reports: JSON, compressed where the name ends in `.gz`."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

from ipujax.ground import LARGE, Bounds, Checks, ReportError, ReportFileError, files, json_text

_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\0"
_EFFORT = 6  # the default of the gzip command; 9 takes far longer for little
_MARKUP = 20  # bytes in which a page is recognized

REWRITE = "write it again with report.to_json(path)"
GIVE_A_REPORT = "give a file that report.to_json(path) wrote"
"""Fixes in errors on a file that is broken, and on one that holds something else."""

MOST_BYTES = 2**28
"""The most bytes of a report's JSON, unpacked, as a small file could otherwise fill the memory."""


@contextlib.contextmanager
def open_report_for_writing(path: str | Path) -> Generator[TextIO]:
    """Opens a UTF-8 text file that appears when the block has ended; see `files.replace_file`.

    Compressed without a date, so that equal reports are equal files.

    Raises:
      OSError: a file that cannot be written.
    """
    with contextlib.ExitStack() as context_stack:
        file = context_stack.enter_context(files.replace_file(path))
        if Path(path).suffix == ".gz":
            file = context_stack.enter_context(gzip.GzipFile("", "wb", _EFFORT, file, mtime=0))
        yield context_stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))


def read_report_json(path: str | Path, bounds: Bounds = LARGE) -> Any:
    """Reads the JSON of a file, decompressing it if its first bytes say so.

    Args:
      path: the file.
      bounds: how much JSON it may hold.

    Raises:
      ReportFileError: (a `FileNotFoundError` and `ReportError`) a file that is not there.
      OSError: a file that cannot be read.
      ReportError: (a `ValueError`) no regular file, such as a pipe, one that is too large, or no
        JSON; the error says where it stops being that.
    """
    Checks(ReportError, ReportError).require_path(path, "the file of a report")
    try:
        content = files.read_bytes(path, MOST_BYTES)
    except FileNotFoundError as error:
        problem = f"there is no report {path}: {error.strerror}"
        raise ReportFileError(problem, fix=GIVE_A_REPORT) from error
    except files.UnfitFileError as error:
        hint = "" if Path(path).is_file() else "; `ipujax report -` reads stdin"
        raise ReportError(f"{path} {error}", fix=GIVE_A_REPORT + hint) from error
    return parse_report_json(content, str(path), bounds)


def parse_report_json(content: bytes, path: str, bounds: Bounds = LARGE) -> Any:
    """Parses the bytes of a file as JSON, decompressing them if needed.

    Args:
      content: the bytes.
      path: the file's name in errors.
      bounds: how much JSON it may hold.

    Raises:
      ReportError: (a `ValueError`) as `read_report_json`.
    """
    if content.startswith(_SQLITE) or Path(path).suffix == ".pop":
        raise ReportError(
            f"{path} is a profile of Poplar, of which Graphcore has published no format: only its "
            "pva library and the Graph Analyser read it",
            fix=f"open it with those; {GIVE_A_REPORT}",
        )
    if not content:
        raise ReportError(f"{path} is empty", fix=REWRITE)
    if content.startswith(_GZIP):
        content = _decompress_report(content, path)
    if len(content) > MOST_BYTES:
        problem = f"{path} holds more than {MOST_BYTES:,} bytes, which no report has"
        raise ReportError(problem, fix=GIVE_A_REPORT)
    if content.lstrip()[:_MARKUP].lower().startswith((b"<!doctype html", b"<html")):
        raise ReportError(
            f"{path} is a page for a browser, which only shows a report",
            fix="give the file that report.to_json(path) wrote, such as report.json",
        )
    try:
        return json_text.parse_bounded_json(content, bounds, allows_nan=False)
    except json.JSONDecodeError as error:
        end = " (the file ends there)" if error.pos >= len(error.doc.rstrip()) else ""
        position = f"line {error.lineno}, column {error.colno}{end}"
        raise ReportError(f"{path} is not JSON: {error.msg} at {position}", fix=REWRITE) from error
    except UnicodeDecodeError as error:
        problem = f"{path} is not text: byte {error.start} is no UTF-8"
        raise ReportError(problem, fix=REWRITE) from error
    except ValueError as error:  # numbers too long, lists too deep or too many
        raise ReportError(f"{path} is not JSON of a report: {error}", fix=REWRITE) from error


def _decompress_report(content: bytes, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return file.read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ReportError(f"{path} is compressed, and broken: {error}", fix=REWRITE) from error
