"""ipujax report: shows, compares and serves reports from their files."""

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

from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import IPUError, ReportError, files
from ipujax.ground import terminal_style as style

if TYPE_CHECKING:
    from ipujax.report import Report

PORT = 8474
"""The default port to serve reports at."""

_EXAMPLES = (
    ("report.json", "print it as text"),
    ("report.json --open", "open it in a browser"),
    ("report.json --html report.html", "write a page for a browser"),
    ("report.json --perfetto steps.json", "write a trace for Perfetto"),
    ("report.json --label 'wider'", "name this run"),
    ("--diff a.json b.json", "compare two reports"),
    ("--diff a.json b.json --html ab.html", "both on one page"),
    ("--serve reports/", "show a folder in a browser"),
)
_LAST_PORT = 2**16 - 1
_GOES_WITH = {
    "FILE": {"html", "open", "perfetto", "json", "label"},
    "--diff": {"html"},
    "--serve": {"port"},
}


class _CommandError(IPUError):
    """An error of reading, writing or serving; the message is for the user."""


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "ipujax report") -> int:
    """Shows a report, compares two or serves many; returns the exit code.

    Exit codes: 0; 1 if a report cannot be read or written, or the port is taken; 2 if the arguments
    are wrong.
    """
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    _check_report_arguments(parser, arguments)
    try:
        if arguments.serve is not None:
            return _serve_reports(arguments.serve or [Path()], arguments.port)
        if arguments.diff is not None:
            return _compare_reports(arguments)
        return _show_report(arguments)
    except _CommandError as error:
        return style.print_error(prog, str(error))


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `ipujax report`."""
    description = "Shows the modelled cycles and memory of a program."
    parser = style.build_parser(prog, description, _EXAMPLES)
    add_argument = parser.add_argument
    add_argument(
        "file", nargs="?", metavar="FILE", help="a file written by report.to_json(path); - is stdin"
    )
    add_argument("--diff", nargs=2, metavar=("A", "B"), help="compare the reports in two files")
    add_argument(
        "--serve",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="serve report files, or folders of them, to a browser on this machine",
    )
    add_argument("--open", action="store_true", help="open the report in a browser")
    add_argument(
        "--html", metavar="OUT", help="write the report as a page for a browser; - is stdout"
    )
    add_argument(
        "--perfetto", metavar="OUT", help="write a trace of each IPU's steps, for ui.perfetto.dev"
    )
    add_argument("--json", action="store_true", help="print the report as JSON")
    add_argument("--label", metavar="TEXT", help="store a name of this run in FILE; '' removes it")
    add_argument(
        "--port", type=int, help=f"the port of --serve; 0 picks a free one (default: {PORT})"
    )
    return parser


def _check_report_arguments(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Checks that the arguments go together; exits with an error if they do not."""
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
    input_files = [arguments.file, *(arguments.diff or ())]
    for option in ("html", "perfetto"):
        output_file = getattr(arguments, option)
        if output_file is not None and any(
            _are_same_file(output_file, path) for path in input_files
        ):
            parser.error(f"--{option} {output_file} would overwrite the report that is read")
    if arguments.diff == ["-", "-"]:
        parser.error("only one of the two reports can come from stdin")


def _are_same_file(output_file: str, path: str | None) -> bool:
    """Returns whether two names are of one existing file."""
    if path is None or "-" in (output_file, path):
        return False
    try:
        return Path(output_file).samefile(path)
    except OSError:
        return False


def _show_report(arguments: argparse.Namespace) -> int:
    report = _load_report_argument(arguments.file)
    if arguments.label is not None:
        report = _write_report_with_label(report, Path(arguments.file), arguments.label)
    if arguments.html is not None:
        _write_page([report], None, arguments.html)
    if arguments.perfetto is not None:
        _write_output_file(arguments.perfetto, report.to_perfetto)
    if arguments.json:
        print(json.dumps(report.to_dict(), separators=(",", ":"), allow_nan=False))
    elif not any((arguments.html, arguments.perfetto, arguments.open, arguments.label is not None)):
        print(report)
    if arguments.open:
        _open_in_browser(report, arguments.html)
    return 0


def _open_in_browser(report: Report, page_path: str | None) -> None:
    """Opens a written page in the browser, writing it to a temporary folder if need be.

    Raises:
      _CommandError: there is no browser; the page stays.
    """
    if page_path in (None, "-"):
        page_path = str(Path(tempfile.mkdtemp(prefix="ipujax-")) / "report.html")
        _write_page([report], None, page_path)
    if not webbrowser.open(Path(page_path or "").resolve().as_uri()):
        raise _CommandError(f"no browser can be opened here; the page is {page_path}")


def _write_page(reports: Sequence[Report], labels: Sequence[str] | None, path: str) -> None:
    """Writes the page of one or two reports to a file, or to stdout for `-`."""
    from ipujax.report import html

    page_html = html.render_html_page([report.to_dict() for report in reports], labels)
    if path == "-":
        print(page_html)
        return
    _write_output_file(path, lambda file: files.write_text(file, page_html))


def _compare_reports(arguments: argparse.Namespace) -> int:
    from ipujax.report import describe_report_difference

    reports = [_load_report_argument(path) for path in arguments.diff]
    files = _shorten_paths(["stdin" if path == "-" else path for path in arguments.diff])
    labels = [report.label or file for report, file in zip(reports, files, strict=True)]
    labels = labels if len(set(labels)) == len(labels) else files
    if arguments.html is None:
        print(describe_report_difference(reports[0], reports[1], labels))
    else:
        _write_page(reports, labels, arguments.html)
    return 0


def _shorten_paths(paths: Sequence[str]) -> list[str]:
    """Returns the names of files, or their whole paths where names alone are equal."""
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def _write_report_with_label(report: Report, path: Path, label: str) -> Report:
    """Writes a report again with a label; keeps its file's times, and returns the new report.

    Raises:
      _CommandError: a file that cannot be written.
    """
    times, report = path.stat(), dc.replace(report, label=label.strip())
    _write_output_file(str(path), report.to_json)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return report


def _serve_reports(paths: Sequence[Path], port: int | None) -> int:
    from ipujax.cli.serving import Library, Server

    for path in paths:
        if not path.exists():
            raise _CommandError(f"{path}: there is no such file or directory")
        if not path.is_dir() and not path.is_file():
            raise _CommandError(f"{path}: neither a regular file nor a directory")
    port = PORT if port is None else port
    try:
        server = Server(Library(paths), port)
    except OSError as error:
        port_advice = "use --port with another number, or --port 0 for any that is free"
        raise _CommandError(
            f"cannot serve at port {port}: {error.strerror}", fix=port_advice
        ) from error
    with server:
        print(style.format_title("ipujax report", f"{server.url} (Ctrl-C ends it)"), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _load_report_argument(path: str) -> Report:
    """Returns the report of a file, or of stdin for `-`.

    Raises:
      _CommandError: there is no readable report.
    """
    from ipujax import report
    from ipujax.report import document
    from ipujax.report import report_file as file

    try:
        if path != "-":
            return report.load(path)
        data = file.parse_report_json(sys.stdin.buffer.read(file.MOST_BYTES + 1), "stdin")
        return report.Report(**document.read_report_document(data, "stdin"))
    except ReportError as error:
        raise _CommandError(str(error)) from error
    except OSError as error:
        raise _CommandError(f"{path} cannot be read: {error.strerror or error}") from error


def _write_output_file(path: str, write_to_path: Callable[[Path], object]) -> None:
    """Writes a file, and reports that on stderr.

    Raises:
      _CommandError: a file that cannot be written.
    """
    try:
        write_to_path(Path(path))
    except OSError as error:
        raise _CommandError(f"{path} cannot be written: {error.strerror or error}") from error
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
