"""Files of reports: text, compressed where their names end in `.gz`, and JSON to be read."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn, TextIO

from ipujax.checks.arguments import Checks
from ipujax.errors import ReportError, ReportFileError
from ipujax.host import files

_GZIP = b"\x1f\x8b"
_EFFORT = 6  # as the command has it; 9 takes far longer for little
_MARKUP = 20  # bytes that tell a page
_REWRITE = "  fix:   write it again with report.to_json(path)"
_GIVE = "  fix:   give a file that report.to_json(path) wrote"

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


def read_json(path: str | Path) -> Any:
    """What a file holds; whether it is compressed, its first bytes tell.

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
        raise ReportFileError(f"there is no report {path}: {error.strerror}\n{_GIVE}") from error
    except files.UnfitFileError as error:
        hint = "" if Path(path).is_file() else "; `ipujax report -` reads stdin"
        raise ReportError(f"{path} {error}\n{_GIVE}{hint}") from error
    return parse_json(content, str(path))


def parse_json(content: bytes, path: str) -> Any:
    """What the bytes of a file hold.

    Args:
      content: the bytes.
      path: what errors call the file.

    Raises:
      ReportError: (a `ValueError`) as `read_json`.
    """
    if not content:
        raise ReportError(f"{path} is empty\n{_REWRITE}")
    if content.startswith(_GZIP):
        content = _unpacked(content, path)
    if len(content) > MOST_BYTES:
        raise ReportError(
            f"{path} holds more than {MOST_BYTES:,} bytes, which no report has\n{_GIVE}"
        )
    if content.lstrip()[:_MARKUP].lower().startswith((b"<!doctype html", b"<html")):
        raise ReportError(
            f"{path} is a page for a browser, which only shows a report\n"
            "  fix:   give the file that report.to_json(path) wrote, such as report.json"
        )
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_no_number)
    except json.JSONDecodeError as error:
        end = " (the file ends there)" if error.pos >= len(error.doc.rstrip()) else ""
        where = f"line {error.lineno}, column {error.colno}"
        what = f"is not JSON: {error.msg} at {where}{end}"
        raise ReportError(f"{path} {what}\n{_REWRITE}") from error
    except UnicodeDecodeError as error:
        what = f"is not text: byte {error.start} is no UTF-8"
        raise ReportError(f"{path} {what}\n{_REWRITE}") from error
    except (ValueError, RecursionError) as error:  # numbers too long, lists too deep
        raise ReportError(f"{path} is not JSON of a report: {error}\n{_REWRITE}") from error


def _unpacked(content: bytes, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return file.read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ReportError(f"{path} is compressed, and broken: {error}\n{_REWRITE}") from error


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
