"""The server: only for this machine, only to read, and only what is in the library."""

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
from ipujax.cli.serving.library import Entry, Library, load
from ipujax.cli.serving.log import log
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


@dc.dataclass(frozen=True, kw_only=True)
class _Answer:
    """What is sent: `content` of a `kind`, with headers beside the usual ones."""

    content: str = dc.field(kw_only=False)
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = dc.field(default_factory=dict[str, str])


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
            answer = self._answer(*self._asked())
        except _Refused as error:
            answer = _Answer(pages.failure(error.status.phrase, str(error)), status=error.status)
        self._send(answer)

    do_HEAD = do_GET

    def _check_host(self) -> None:
        """Pages of other sites must not read reports by giving their own name this address."""
        host = self.headers.get("Host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in _HOSTS:
            what = f"this server answers only as {', '.join(_HOSTS)}"
            raise _Refused(HTTPStatus.FORBIDDEN, what, f"open {self.server.url}")

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        """The path, and what is asked of it."""
        try:
            parts = urllib.parse.urlsplit(self.path)
        except ValueError as error:  # half an IPv6 address
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        return parts.path, urllib.parse.parse_qs(parts.query)

    def _answer(self, path: str, asked: dict[str, list[str]]) -> _Answer:
        """What to say to an address: the log again where two reports were not chosen."""
        library, chosen = self.server.library, asked.get("report", [])
        if path == "/favicon.ico":  # browsers ask for it unasked
            return _Answer("", status=HTTPStatus.NO_CONTENT)
        if path == "/":
            return _Answer(pages.index(library.places, library.entries()))
        if path == "/log":
            shown = log(library.entries())
            version = pages.version(shown)
            if asked.get("version") == [version]:
                return _Answer("", status=HTTPStatus.NO_CONTENT)
            return _Answer(shown, headers={"X-Version": version})
        if path == "/compare" and len(chosen) != 2:
            message = f"choose two reports to compare, not {len(chosen)}"
            index = pages.index(library.places, library.entries(), message, chosen)
            return _Answer(index, status=HTTPStatus.BAD_REQUEST)
        if path == "/compare":
            return _Answer(self._compared(chosen))
        if not path.startswith("/report/"):
            raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing at this address")
        key = path.removeprefix("/report/")
        if key.endswith(".json"):
            return _Answer(json.dumps(self._document(key.removesuffix(".json"))), kind=_JSON)
        return _Answer(pages.with_way_back(html.page([self._document(key)])))

    def _compared(self, chosen: list[str]) -> str:
        """The page of two reports, the older one as A, or of the one that is still there."""
        entries = {entry.key: entry for entry in reversed(self.server.library.entries())}
        found: dict[str, dict[str, Any]] = {}
        missing: list[str] = []
        for key in sorted(chosen, key=[*entries, *chosen].index):
            try:
                found[key] = self._document(key)
            except _Refused as error:
                missing.append(str(error))
        if not found:
            raise _Refused(HTTPStatus.NOT_FOUND, "\n".join(dict.fromkeys(missing)))
        if missing:
            notice = f"Nothing to compare this with: {missing[0]}"
            return pages.with_way_back(html.page(list(found.values())), notice)
        titles = _titles([entries[key] for key in found if key in entries])
        return pages.with_way_back(html.page(list(found.values()), titles))

    def _document(self, key: str) -> dict[str, Any]:
        """The document of a report of the library."""
        entry: Entry | None = self.server.library.entry(key)
        if entry is None:
            path = self.server.library.path(key)
            what = "this report is not there" if path is None else f"{path} is not there any more"
            raise _Refused(HTTPStatus.NOT_FOUND, what)
        try:
            return load(entry.path).to_dict()
        except (OSError, ReportError) as error:
            raise _Refused(HTTPStatus.NOT_FOUND, str(error)) from error

    def _send(self, answer: _Answer) -> None:
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
        """Requests are not worth a line each."""


def _titles(entries: list[Entry]) -> list[str] | None:
    """What two reports are called beside each other: as in the log, or by folder and file."""
    titles = [entry.title for entry in entries]
    if len(set(titles)) == 2:
        return titles
    paths = [str(Path(*entry.path.parts[-2:])) for entry in entries]
    return paths if len(paths) == 2 else None
