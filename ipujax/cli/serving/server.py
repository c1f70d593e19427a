"""Serves the reports of a library over HTTP: only on this machine, and read-only."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import http.server
import json
import sys
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ipujax.cli.serving import pages
from ipujax.cli.serving.report_library import Entry, Library, load_report_to_serve
from ipujax.cli.serving.run_log import render_run_log
from ipujax.ground import IPUError, ReportError
from ipujax.report import html

_ADDRESS = "127.0.0.1"
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_SAFE = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_JSON = "application/json"
_HTML = "text/html; charset=utf-8"


@dc.dataclass(frozen=True, kw_only=True)
class _Answer:
    """The response to a request: `content` of a `kind`, with headers beside the usual ones."""

    content: str = dc.field(kw_only=False)
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = dc.field(default_factory=dict[str, str])


class _RequestError(IPUError):
    """An error of a request, whose response is a page that shows it."""

    def __init__(self, status: HTTPStatus, message: str, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.status = status


class Server(http.server.ThreadingHTTPServer):
    """A server of a library's reports for browsers on this machine.

    Args:
      library: the reports.
      port: the port to serve at; 0 for any that is free.

    Raises:
      OSError: a port that is taken, or not for this user.
    """

    daemon_threads = True

    def __init__(self, library: Library, port: int) -> None:
        self.library = library
        super().__init__((_ADDRESS, port), _Handler)

    @property
    def url(self) -> str:
        """The address of the index."""
        return f"http://{_ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs errors, except those of browsers that went away."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = 60  # seconds without a request; then the connection is closed
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers with a page."""
        try:
            self._check_host()
            answer = self._respond_to_path(*self._parse_request())
        except _RequestError as error:
            answer = _Answer(
                pages.render_failure(error.status.phrase, str(error)), status=error.status
            )
        self._send_response(answer)

    do_HEAD = do_GET

    def _check_host(self) -> None:
        """Refuses requests by other host names, with which other sites could read reports."""
        host = self.headers.get("Host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in _HOSTS:
            message = f"this server answers only as {', '.join(_HOSTS)}"
            raise _RequestError(HTTPStatus.FORBIDDEN, message, f"open {self.server.url}")

    def _parse_request(self) -> tuple[str, dict[str, list[str]]]:
        """Returns the path and the query of the request."""
        try:
            parts = urllib.parse.urlsplit(self.path)
        except ValueError as error:  # half an IPv6 address
            raise _RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        return parts.path, urllib.parse.parse_qs(parts.query)

    def _respond_to_path(self, path: str, query: dict[str, list[str]]) -> _Answer:
        """Returns the response to a path; the log again where two reports were not chosen."""
        library, chosen_keys = self.server.library, query.get("report", [])
        if path == "/favicon.ico":  # browsers ask for it unasked
            return _Answer("", status=HTTPStatus.NO_CONTENT)
        if path == "/":
            return _Answer(pages.render_index(library.searched_paths, library.list_entries()))
        if path == "/log":
            log_html = render_run_log(library.list_entries())
            log_version = pages.hash_log(log_html)
            if query.get("version") == [log_version]:
                return _Answer("", status=HTTPStatus.NO_CONTENT)
            return _Answer(log_html, headers={"X-Version": log_version})
        if path == "/compare" and len(chosen_keys) != 2:
            message = f"choose two reports to compare, not {len(chosen_keys)}"
            index_html = pages.render_index(
                library.searched_paths, library.list_entries(), message, chosen_keys
            )
            return _Answer(index_html, status=HTTPStatus.BAD_REQUEST)
        if path == "/compare":
            return _Answer(self._render_comparison(chosen_keys))
        if not path.startswith("/report/"):
            raise _RequestError(HTTPStatus.NOT_FOUND, "no page has this address")
        key = path.removeprefix("/report/")
        if key.endswith(".json"):
            return _Answer(json.dumps(self._load_document(key.removesuffix(".json"))), kind=_JSON)
        return _Answer(pages.add_link_to_log(html.render_html_page([self._load_document(key)])))

    def _render_comparison(self, chosen_keys: list[str]) -> str:
        """Renders the page of two reports, the older as A, or of the one that is still there."""
        entries = {entry.key: entry for entry in reversed(self.server.library.list_entries())}
        documents: dict[str, dict[str, Any]] = {}
        errors: list[str] = []
        for key in sorted(chosen_keys, key=[*entries, *chosen_keys].index):
            try:
                documents[key] = self._load_document(key)
            except _RequestError as error:
                errors.append(str(error))
        if not documents:
            raise _RequestError(HTTPStatus.NOT_FOUND, "\n".join(dict.fromkeys(errors)))
        if errors:
            notice = f"Nothing to compare this with: {errors[0]}"
            return pages.add_link_to_log(html.render_html_page(list(documents.values())), notice)
        titles = _title_two_reports([entries[key] for key in documents if key in entries])
        return pages.add_link_to_log(html.render_html_page(list(documents.values()), titles))

    def _load_document(self, key: str) -> dict[str, Any]:
        """Loads the document of a report of the library."""
        entry: Entry | None = self.server.library.find_entry(key)
        if entry is None:
            path = self.server.library.path_of_key(key)
            message = (
                "this report is not there" if path is None else f"{path} is not there any more"
            )
            raise _RequestError(HTTPStatus.NOT_FOUND, message)
        try:
            return load_report_to_serve(entry.path).to_dict()
        except (OSError, ReportError) as error:
            raise _RequestError(HTTPStatus.NOT_FOUND, str(error)) from error

    def _send_response(self, answer: _Answer) -> None:
        content = answer.content.encode(errors="replace")
        with contextlib.suppress(ConnectionError):  # the browser did not wait
            self.send_response(answer.status)
            for name, value in {**_SAFE, **answer.headers}.items():
                self.send_header(name, value)
            if answer.status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing, as requests are not worth a line each."""


def _title_two_reports(entries: list[Entry]) -> list[str] | None:
    """Returns titles that tell two reports apart: as in the log, or by folder and file."""
    titles = [entry.display_title for entry in entries]
    if len(set(titles)) == 2:
        return titles
    paths = [str(Path(*entry.path.parts[-2:])) for entry in entries]
    return paths if len(paths) == 2 else None
