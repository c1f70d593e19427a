"""Reports, schedules, and what processes tell of their IPUs."""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

import ipujax as ipu
from ipujax import schedules
from ipujax.cli.serving import Library
from ipujax.errors import IPUError
from ipujax.report import load
from ipujax.report.presentation import html
from ipujax.system import attachments
from tests.file_fuzz.changes import change_bytes, change_json
from tests.file_fuzz.readers.reader import Files, Reader, read_files
from tests.ipujax.small_report import small_report

_REPORT, _PACKED, _SCHEDULE = "report.json", "report.json.gz", "a.schedule"


@functools.cache
def _reports() -> Mapping[str, Files]:
    with tempfile.TemporaryDirectory() as folder:
        small_report().to_json(Path(folder, _REPORT))
        plain = read_files(Path(folder))
    return {"plain": plain, "packed": {_PACKED: gzip.compress(plain[_REPORT], 1)}}


def _change_report(files: Files, rng: random.Random) -> Files:
    ((name, content),) = files.items()
    if rng.random() < 0.2:
        return {name: change_bytes(content, rng)}
    text = gzip.decompress(content) if name == _PACKED else content
    text = json.dumps(change_json(json.loads(text), rng)).encode()
    if rng.random() < 0.05:
        text = b"[" + rng.choice((b"[],", b'{"a":1},', b"1,")) * rng.choice((10**5, 10**7)) + b"0]"
    return {name: gzip.compress(text, 1) if name == _PACKED else text}


def _read_report(folder: Path) -> str | None:
    entries = Library([folder]).list_entries()  # of a broken one it tells why
    found = load(next(folder.iterdir()))
    str(found)
    html.render_html_page([found.to_dict()])
    return None if entries else "the library passes a file over that is surely a report"


@functools.cache
def _schedules() -> Mapping[str, Files]:
    made = {"grouped": schedules.grouped(4, 8), "zero": schedules.zero_bubble(3, 6)}
    texts = {name: schedules.to_text(each).encode() for name, each in made.items()}
    return {name: {_SCHEDULE: text} for name, text in texts.items()}


def _change_schedule(files: Files, rng: random.Random) -> Files:
    content = files[_SCHEDULE]
    words = content.split(b" ")
    if rng.random() < 0.6:
        for _ in range(rng.choice((1, 2, 5))):
            hostile = (b"0", b"-1", b"9" * 5000, b"1" * 12, b"F", b"B999999999", b"\n", b"nan", b"")
            words[rng.randrange(len(words))] = rng.choice((*hostile, rng.choice(words)))
        return {_SCHEDULE: b" ".join(words)}
    return {_SCHEDULE: change_bytes(content, rng)}


def _read_schedule(folder: Path) -> str | None:
    str(schedules.load(folder / _SCHEDULE))
    return None


@functools.cache
def _processes() -> Mapping[str, Files]:
    with tempfile.TemporaryDirectory() as folder:
        _use(Path(folder))
        attachments.publish_attachments([attachments.Attachment("/device:IPU:0", 3, (1, 2))])
        found = read_files(Path(folder))
        attachments.withdraw_attachments()
    return {"process": found}


def _use(folder: Path) -> None:
    folder.chmod(0o700)
    os.environ["IPUJAX_RUNTIME_DIR"] = str(folder)


def _change_process(files: Files, rng: random.Random) -> Files:
    ((name, content),) = files.items()
    if rng.random() < 0.3:
        return {name: change_bytes(content, rng)}
    return {name: json.dumps(change_json(json.loads(content), rng)).encode()}


def _read_processes(folder: Path) -> str | None:
    _use(folder)
    attachments.list_attached_processes()
    return None


REPORT = Reader("report", _reports, _change_report, _read_report, (IPUError,))
SCHEDULE = Reader("schedule", _schedules, _change_schedule, _read_schedule, (IPUError,))
PROCESS = Reader("attachment", _processes, _change_process, _read_processes, (ipu.errors.IPUError,))
