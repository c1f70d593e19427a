"""ipujax report: what the machine model says of a program, from the files that it left."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses as dc
import json
import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ipujax.cli import style
from ipujax.cli.pipe import ends_with_its_reader
from ipujax.errors import IPUError, ReportError
from ipujax.host import files

if TYPE_CHECKING:
    from ipujax.report.report import Report

PORT = 8474
"""Where reports are served if nobody says."""

_EXAMPLES = (
    ("report.json", "a page of text"),
    ("report.json --open", "a page, in your browser"),
    ("report.json --html report.html", "a page for a browser"),
    ("report.json --perfetto steps.json", "for ui.perfetto.dev"),
    ("report.json --label 'wider'", "what to call this run"),
    ("--diff a.json b.json", "what a change did"),
    ("--diff a.json b.json --html ab.html", "the two side by side"),
    ("--serve reports/", "a directory, in a browser"),
)
_LAST_PORT = 2**16 - 1
_GOES_WITH = {
    "FILE": {"html", "open", "perfetto", "json", "label"},
    "--diff": {"html"},
    "--serve": {"port"},
}


class _Failed(IPUError):
    """Something that cannot be read or written; the message is for the user."""


@ends_with_its_reader
def main(argv: Sequence[str] | None = None, prog: str = "ipujax report") -> int:
    """Shows a report, compares two or serves many; returns the exit code.

    Exit codes: 0; 1 if a report cannot be read or written, or the port is taken; 2 if the arguments
    are wrong.
    """
    parser = _parser(prog)
    arguments = parser.parse_args(argv)
    _check(parser, arguments)
    try:
        if arguments.serve is not None:
            return _serve(arguments.serve or [Path()], arguments.port)
        if arguments.diff is not None:
            return _diff(arguments)
        return _show(arguments)
    except _Failed as error:
        return style.fail(prog, str(error))


def _parser(prog: str) -> argparse.ArgumentParser:
    what = "Shows what the machine model says of a program."
    parser = style.parser(prog, what, _EXAMPLES)
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="what report.to_json(path) wrote; - is stdin")
    add("--diff", nargs=2, metavar=("A", "B"), help="compare two reports")
    add(
        "--serve",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="serve reports, and those in directories, to a browser on this machine",
    )
    add("--open", action="store_true", help="show the page in a browser")
    add("--html", metavar="OUT", help="write a page for a browser; - is stdout")
    add("--perfetto", metavar="OUT", help="write what each IPU does when, for ui.perfetto.dev")
    add("--json", action="store_true", help="print the report's document")
    add("--label", metavar="TEXT", help="say in FILE what to call this run; an empty text, nothing")
    add("--port", type=int, help=f"where to serve; 0 takes any free one (default: {PORT})")
    return parser


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Whether the arguments go together."""
    if arguments.serve is not None and arguments.file is not None:  # `FILE --serve`
        arguments.serve.insert(0, Path(arguments.file))
        arguments.file = None
    values = {"FILE": arguments.file, "--diff": arguments.diff, "--serve": arguments.serve}
    modes = [mode for mode, value in values.items() if value is not None]
    if len(modes) != 1:
        parser.error("give a FILE, or --diff A B, or --serve PATH")
    for option in ("html", "open", "perfetto", "json", "label", "port"):
        if getattr(arguments, option) not in (None, False) and option not in _GOES_WITH[modes[0]]:
            parser.error(f"--{option} does not go with {modes[0]}")
    if arguments.port is not None and not 0 <= arguments.port <= _LAST_PORT:
        parser.error(f"--port is a number from 0 to {_LAST_PORT}, not {arguments.port}")
    if arguments.perfetto == "-":
        parser.error("--perfetto writes a file; give its name")
    if arguments.label is not None and arguments.file == "-":
        parser.error("--label writes into the file that it is about; give its name")
    if arguments.html == "-" and arguments.json:
        parser.error("only one of --html - and --json can go to stdout")
    read = [arguments.file, *(arguments.diff or ())]
    for option in ("html", "perfetto"):
        out = getattr(arguments, option)
        if out is not None and any(_same(out, path) for path in read):
            parser.error(f"--{option} {out} would overwrite the report that is read")
    if arguments.diff == ["-", "-"]:
        parser.error("only one of the two reports can come from stdin")


def _same(out: str, path: str | None) -> bool:
    """Whether two names are of one file that is there."""
    if path is None or "-" in (out, path):
        return False
    try:
        return Path(out).samefile(path)
    except OSError:
        return False


def _show(arguments: argparse.Namespace) -> int:
    report = _load(arguments.file)
    if arguments.label is not None:
        report = _labelled(report, Path(arguments.file), arguments.label)
    if arguments.html is not None:
        _page([report], None, arguments.html)
    if arguments.perfetto is not None:
        _written(arguments.perfetto, report.to_perfetto)
    if arguments.json:
        print(json.dumps(report.to_dict(), separators=(",", ":"), allow_nan=False))
    elif not any((arguments.html, arguments.perfetto, arguments.open, arguments.label is not None)):
        print(report)
    if arguments.open:
        _open(report, arguments.html)
    return 0


def _open(report: Report, page: str | None) -> None:
    """Shows a page that was written, or else one that is written to a folder for such things.

    Raises:
      _Failed: there is no browser; the page stays.
    """
    if page in (None, "-"):
        page = str(Path(tempfile.mkdtemp(prefix="ipujax-")) / "report.html")
        _page([report], None, page)
    if not webbrowser.open(Path(page or "").resolve().as_uri()):
        raise _Failed(f"no browser can be opened here; the page is {page}")


def _page(reports: Sequence[Report], labels: Sequence[str] | None, path: str) -> None:
    """Writes the page of one or two reports to a file, or to stdout for `-`."""
    from ipujax.report.presentation import html

    page = html.page([report.to_dict() for report in reports], labels)
    if path == "-":
        print(page)
        return
    _written(path, lambda file: files.write_text(file, page))


def _diff(arguments: argparse.Namespace) -> int:
    from ipujax.report.presentation.difference import difference

    reports = [_load(path) for path in arguments.diff]
    files = _short(["stdin" if path == "-" else path for path in arguments.diff])
    labels = [report.label or file for report, file in zip(reports, files, strict=True)]
    labels = labels if len(set(labels)) == len(labels) else files
    if arguments.html is None:
        print(difference(reports[0], reports[1], labels))
    else:
        _page(reports, labels, arguments.html)
    return 0


def _short(paths: Sequence[str]) -> list[str]:
    """The names of files, with what is above them only where that tells them apart."""
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def _labelled(report: Report, path: Path, label: str) -> Report:
    """Writes a report again with a label; its file stays as old as it was.

    Raises:
      _Failed: a file that cannot be written.
    """
    times, report = path.stat(), dc.replace(report, label=label.strip())
    _written(str(path), report.to_json)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return report


def _serve(paths: Sequence[Path], port: int | None) -> int:
    from ipujax.cli.serving import Library, Server

    for path in paths:
        if not path.exists():
            raise _Failed(f"{path}: there is no such file or directory")
        if not path.is_dir() and not path.is_file():
            raise _Failed(f"{path}: neither a regular file nor a directory")
    port = PORT if port is None else port
    try:
        server = Server(Library(paths), port)
    except OSError as error:
        free = "use --port with another number, or --port 0 for any that is free"
        raise _Failed(f"cannot serve at port {port}: {error.strerror}", fix=free) from error
    with server:
        print(style.title("ipujax report", f"{server.url} (Ctrl-C ends it)"), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _load(path: str) -> Report:
    """The report of a file, or that comes from stdin.

    Raises:
      _Failed: there is none.
    """
    from ipujax import report
    from ipujax.report.presentation import document, file

    try:
        if path != "-":
            return report.load(path)
        data = file.parse_json(sys.stdin.buffer.read(file.MOST_BYTES + 1), "stdin")
        return report.Report(**document.read(data, "stdin"))
    except ReportError as error:
        raise _Failed(str(error)) from error
    except OSError as error:
        raise _Failed(f"{path} cannot be read: {error.strerror or error}") from error


def _written(path: str, write: Callable[[Path], object]) -> None:
    """Writes a file, and says so.

    Raises:
      _Failed: a file that cannot be written.
    """
    try:
        write(Path(path))
    except OSError as error:
        raise _Failed(f"{path} cannot be written: {error.strerror or error}") from error
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
