"""Files of reports: text, compressed where their names end in `.gz`, and JSON to be read."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

from ipujax.checks.arguments import Checks
from ipujax.errors import ReportError, ReportFileError
from ipujax.host import files, json_text
from ipujax.host.json_text import LARGE, Bounds

_GZIP = b"\x1f\x8b"
_EFFORT = 6  # as the command has it; 9 takes far longer for little
_MARKUP = 20  # bytes that tell a page

REWRITE = "write it again with report.to_json(path)"
GIVE_A_REPORT = "give a file that report.to_json(path) wrote"
"""What to do about a file that is broken, and about one that holds something else."""

MOST_BYTES = 2**28
"""Of a report's JSON, unpacked; a small file could else fill the memory."""


@contextlib.contextmanager
def writing(path: str | Path) -> Generator[TextIO]:
    """A text file in UTF-8, which is there when the block has ended; see `files.replacing`.

    Compressed without a date, so that equal reports are equal files.

    Raises:
      OSError: a file that cannot be written.
    """
    with contextlib.ExitStack() as held:
        file = held.enter_context(files.replacing(path))
        if Path(path).suffix == ".gz":
            file = held.enter_context(gzip.GzipFile("", "wb", _EFFORT, file, mtime=0))
        yield held.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))


def read_json(path: str | Path, bounds: Bounds = LARGE) -> Any:
    """What a file holds; whether it is compressed, its first bytes tell.

    Args:
      path: the file.
      bounds: how much JSON it may hold.

    Raises:
      ReportFileError: (a `FileNotFoundError` and `ReportError`) a file that is not there.
      OSError: a file that cannot be read.
      ReportError: (a `ValueError`) no regular file, such as a pipe, one that is too large, or no
        JSON; the error says where it stops being that.
    """
    Checks(ReportError, ReportError).path(path, "the file of a report")
    try:
        content = files.read_bytes(path, MOST_BYTES)
    except FileNotFoundError as error:
        what = f"there is no report {path}: {error.strerror}"
        raise ReportFileError(what, fix=GIVE_A_REPORT) from error
    except files.UnfitFileError as error:
        hint = "" if Path(path).is_file() else "; `ipujax report -` reads stdin"
        raise ReportError(f"{path} {error}", fix=GIVE_A_REPORT + hint) from error
    return parse_json(content, str(path), bounds)


def parse_json(content: bytes, path: str, bounds: Bounds = LARGE) -> Any:
    """What the bytes of a file hold.

    Args:
      content: the bytes.
      path: what errors call the file.
      bounds: how much JSON it may hold.

    Raises:
      ReportError: (a `ValueError`) as `read_json`.
    """
    if not content:
        raise ReportError(f"{path} is empty", fix=REWRITE)
    if content.startswith(_GZIP):
        content = _unpacked(content, path)
    if len(content) > MOST_BYTES:
        what = f"{path} holds more than {MOST_BYTES:,} bytes, which no report has"
        raise ReportError(what, fix=GIVE_A_REPORT)
    if content.lstrip()[:_MARKUP].lower().startswith((b"<!doctype html", b"<html")):
        raise ReportError(
            f"{path} is a page for a browser, which only shows a report",
            fix="give the file that report.to_json(path) wrote, such as report.json",
        )
    try:
        return json_text.parse(content, bounds, takes_nan=False)
    except json.JSONDecodeError as error:
        end = " (the file ends there)" if error.pos >= len(error.doc.rstrip()) else ""
        place = f"line {error.lineno}, column {error.colno}{end}"
        raise ReportError(f"{path} is not JSON: {error.msg} at {place}", fix=REWRITE) from error
    except UnicodeDecodeError as error:
        what = f"{path} is not text: byte {error.start} is no UTF-8"
        raise ReportError(what, fix=REWRITE) from error
    except ValueError as error:  # numbers too long, lists too deep or too many
        raise ReportError(f"{path} is not JSON of a report: {error}", fix=REWRITE) from error


def _unpacked(content: bytes, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return file.read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ReportError(f"{path} is compressed, and broken: {error}", fix=REWRITE) from error
