"""What the host did in a real run."""

from __future__ import annotations

from typing import Any

from ipujax.host_trace import HostSpan, HostTrace
from ipujax.report.document.strings import Strings


def encode(host: HostTrace, strings: Strings) -> dict[str, Any]:
    """Spans as columns."""
    spans = host.spans
    columns = {
        "kind": [strings.number(span.kind) for span in spans],
        "name": [strings.number(span.name) for span in spans],
        "start": [float(span.start) for span in spans],
        "seconds": [float(span.seconds) for span in spans],
        "thread": [strings.number(span.thread) for span in spans],
    }
    return {"spans": columns}


def decode(data: dict[str, Any], texts: list[str]) -> HostTrace:
    """The spans that `encode` wrote."""
    columns: dict[str, list[Any]] = data["spans"]
    names = ("kind", "name", "start", "seconds", "thread")
    rows = zip(*(columns[name] for name in names), strict=True)
    return HostTrace(
        HostSpan(texts[kind], texts[name], start, seconds, texts[thread])
        for kind, name, start, seconds, thread in rows
    )
