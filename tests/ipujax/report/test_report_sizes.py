"""Small files that would unpack to large ones are no reports."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path

import pytest

from ipujax.cli import main
from ipujax.cli.serving import Library
from ipujax.errors import ReportError
from ipujax.report import Report, load
from ipujax.report.presentation import report_file as file
from ipujax.report.presentation.document.runs import decode_repeats, decode_runs
from tests.ipujax.small_report import small_report

MESSAGE = "holds more than 1,000,000 bytes, which no report has\n  fix:   give a file"


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MOST_BYTES", 10**6)


def bomb(size: int) -> bytes:
    """A report that has blanks behind it, packed."""
    return gzip.compress(json.dumps(small_report().to_dict()).encode() + b" " * size)


@pytest.mark.usefixtures("small_limit")
def test_packed_reports_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json.gz"
    path.write_bytes(bomb(900_000))
    assert load(path).cycles == 130
    path.write_bytes(bomb(10**6))
    with pytest.raises(ReportError, match=MESSAGE):
        load(path)
    (entry,) = Library([tmp_path]).list_entries()
    assert isinstance(entry.found, str)
    assert MESSAGE in entry.found
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert main(["report", "-"]) == 1


@pytest.mark.exhaustive
@pytest.mark.usefixtures("small_limit")
def test_no_more_is_unpacked_than_that(tmp_path: Path) -> None:
    path = tmp_path / "report.json.gz"
    path.write_bytes(bomb(10**8))
    tracemalloc.start()
    try:
        with pytest.raises(ReportError, match=MESSAGE):
            load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10**7


@pytest.mark.exhaustive
@pytest.mark.usefixtures("small_limit")
def test_only_one_layer_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "report.json.gz"
    path.write_bytes(gzip.compress(bomb(10**8)))
    with pytest.raises(ReportError, match="is not text: byte 1 is no UTF-8"):
        load(path)


@pytest.mark.usefixtures("small_limit")
def test_plain_reports_have_the_same_limit(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with path.open("wb") as out:
        out.truncate(10**12)  # of holes: it takes no place
    with pytest.raises(ReportError, match="has more than 1,000,000 bytes\n  fix:   give a file"):
        load(path)


def test_arrays_that_are_written_short_have_a_limit() -> None:
    with pytest.raises(ValueError, match="a list of 1,000,000,000 numbers, where 100,000,000 are"):
        decode_repeats([[0, 10**8]] * 10)
    with pytest.raises(ValueError, match="a list of 1,000,000,000 numbers, where 100,000,000 are"):
        decode_runs([[0, 1, 10**8]] * 10)
    document = small_report().to_dict()
    document["memory"]["tile_peak_bytes"][0] = [[0, 10**8]] * 10
    with pytest.raises(ReportError, match=r"contradicts itself in `memory`: .* are the most"):
        Report.from_dict(document)
