"""The server: only for this machine, only to read, and only what is in the library."""

from __future__ import annotations

import contextlib
import http.server
import json
import sys
import urllib.parse
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ipujax import report
from ipujax.cli.serving import pages
from ipujax.cli.serving.library import Entry, Library
from ipujax.errors import IPUError, ReportError
from ipujax.report.presentation import html

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


class _Refused(IPUError):
    """A request that gets a page with an error instead."""

    def __init__(self, status: HTTPStatus, what: str, fix: str | None = None) -> None:
        super().__init__(what, fix=fix)
        self.status = status


class Server(http.server.ThreadingHTTPServer):
    """Serves a library's reports to browsers on this machine.

    Args:
      library: the reports.
      port: where; 0 for any that is free.

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
        """Tells of errors, but not of browsers that went away."""
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
            status, content, kind = self._answer(*self._asked())
        except _Refused as error:
            status, kind = error.status, _HTML
            content = pages.failure(status.phrase, str(error))
        self._send(status, content.encode(errors="replace"), kind)

    do_HEAD = do_GET

    def _check_host(self) -> None:
        """Pages of other sites must not read reports by giving their own name this address."""
        host = self.headers.get("Host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in _HOSTS:
            what = f"this server answers only as {', '.join(_HOSTS)}"
            raise _Refused(HTTPStatus.FORBIDDEN, what, f"open {self.server.url}")

    def _asked(self) -> tuple[str, list[str]]:
        """The path, and the reports that are chosen."""
        try:
            parts = urllib.parse.urlsplit(self.path)
        except ValueError as error:  # half an IPv6 address
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        return parts.path, urllib.parse.parse_qs(parts.query).get("report", [])

    def _answer(self, path: str, chosen: list[str]) -> tuple[HTTPStatus, str, str]:
        """What to say to an address: the index again where two reports were not chosen."""
        library = self.server.library
        if path == "/favicon.ico":  # browsers ask for it unasked
            return HTTPStatus.NO_CONTENT, "", _HTML
        if path == "/":
            return HTTPStatus.OK, pages.index(library.places, library.entries()), _HTML
        if path == "/compare" and len(chosen) != 2:
            message = f"choose two reports to compare, not {len(chosen)}"
            index = pages.index(library.places, library.entries(), message, chosen)
            return HTTPStatus.BAD_REQUEST, index, _HTML
        return HTTPStatus.OK, *self._content(path, chosen)

    def _content(self, path: str, chosen: list[str]) -> tuple[str, str]:
        """What the address of reports stands for, and its type."""
        if path == "/compare":
            documents = [self._document(key) for key in chosen]
            page = html.page(documents, [self._label(key) for key in chosen])
            return pages.with_way_back(page), _HTML
        if not path.startswith("/report/"):
            raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing at this address")
        key = path.removeprefix("/report/")
        if key.endswith(".json"):
            return json.dumps(self._document(key.removesuffix(".json"))), _JSON
        return pages.with_way_back(html.page([self._document(key)])), _HTML

    def _label(self, key: str) -> str:
        """What a report is called beside others: its file, and the folder around it."""
        entry = self.server.library.entry(key)
        return "" if entry is None else str(Path(*entry.path.parts[-2:]))

    def _document(self, key: str) -> dict[str, Any]:
        """The document of a report of the library."""
        entry: Entry | None = self.server.library.entry(key)
        if entry is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "this report is not there (any more)")
        try:
            return report.load(entry.path).to_dict()
        except (OSError, ReportError) as error:
            raise _Refused(HTTPStatus.NOT_FOUND, str(error)) from error

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        with contextlib.suppress(ConnectionError):  # the browser did not wait
            self.send_response(status)
            for name, value in _SAFE.items():
                self.send_header(name, value)
            if status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line each."""
