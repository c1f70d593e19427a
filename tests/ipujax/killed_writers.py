"""Kills processes while they write files, and looks at what is there then.

python -m tests.ipujax.killed_writers --kills 200

Every writer of ipujax writes two versions of its files in turns, in a process that is killed at a
random moment, again and again in one folder. For each writer a line of JSON tells how many files
were neither of the two versions, at how many kills one was being written, and how many unfinished
ones are there after one more write.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ipujax import checkpoint, schedules, utils
from ipujax.checkpoints import with_orbax
from ipujax.driver import executable_cache
from ipujax.driver.saved import container
from ipujax.errors import CheckpointError
from ipujax.report import Report
from ipujax.report.auto_report import AutoReport, _write_report_files  # pyright: ignore[reportPrivateUsage]
from ipujax.system import attachments
from tests.ipujax.small_report import small_report

Write = Callable[[Path, int], None]
Versions = dict[str, set[bytes]]
"""What the files of a folder may hold, by their names."""

UNFINISHED = ".ipujax-"


@dataclass(frozen=True)
class Writer:
    """Something that writes files.

    Attributes:
      write: into a folder, which version.
      halves: names of what is not as it should be in a folder, given what may be there.
    """

    write: Write
    halves: Callable[[Path, Versions], list[str]]


def wrong_files(folder: Path, versions: Versions) -> list[str]:
    """Files that are none of their versions."""
    return [
        name
        for name in sorted(os.listdir(folder))
        if not name.startswith(UNFINISHED)
        and (folder / name).read_bytes() not in versions.get(name, ())
    ]


def wrong_folders(folder: Path, versions: Versions) -> list[str]:
    """Files in folders of reports that are none of their versions, and folders that miss some."""
    wrong: list[str] = []
    for each in sorted(folder.iterdir()):
        found = wrong_files(each, versions)
        if (each / "complete.txt").exists() and not set(versions) <= set(os.listdir(each)):
            found.append("complete.txt")
        wrong += [f"{each.name}/{name}" for name in found]
        shutil.rmtree(each)  # each is written once
    return wrong


def wrong_attachments(folder: Path, versions: Versions) -> list[str]:
    """Files that tell of no process; they are removed afterwards, as their processes are gone."""
    os.environ["IPUJAX_RUNTIME_DIR"] = str(folder)
    names = [name for name in os.listdir(folder) if name.endswith(".json")]
    wrong: list[str] = []
    for name in names:
        try:
            devices = len(json.loads((folder / name).read_text())["attachments"])
        except (ValueError, KeyError):
            devices = -1
        if devices not in (100, 200):
            wrong.append(name)
    found = attachments.list_attached_processes()
    left = [name for name in os.listdir(folder) if name.endswith(".json")]
    return wrong + left + [str(process.pid) for process in found]


def wrong_checkpoints(folder: Path, versions: Versions) -> list[str]:
    """Checkpoints that hold something else than was saved, and steps of which there is none."""
    del versions  # a name may have any version
    wrong: list[str] = []
    for step in {0, checkpoint.latest_step(folder)}:
        try:
            numbers = checkpoint.restore(folder, step=step)["numbers"]
        except CheckpointError as error:
            wrong.append(str(error))
            continue
        if numbers.shape != (100_000,) or (numbers != step).any():
            wrong.append(f"step {step}")
    return wrong


def report(version: int) -> Report:
    return small_report(name=f"version {version} " * 20_000)


def auto_report(folder: Path, version: int) -> None:
    wanted = AutoReport(folder, frozenset(FILES))
    lowered: Any = SimpleNamespace(
        program=SimpleNamespace(name="f"),
        report=lambda: report(version),
        as_text=lambda origins: f"{version}" * 100_000,
        compute_program_hash=lambda: f"{version}",
    )
    if not _write_report_files(lowered, wanted):
        raise RuntimeError("a report was not written")


def cached(folder: Path, version: int) -> None:
    os.environ["TF_POPLAR_FLAGS"] = f"--executable_cache_path={folder}"
    executable_cache.mark_as_compiled(folder / "key.ipujax.json", f"{version}" * 100_000)


def attached(folder: Path, version: int) -> None:
    os.environ["IPUJAX_RUNTIME_DIR"] = str(folder)
    each = attachments.Attachment("/device:IPU:0", 0, (0,) * 100)
    attachments.publish_attachments([each] * 100 * (version + 1))


def exported(folder: Path, version: int) -> None:
    arrays = (np.full(100_000, version, np.float32), np.full(50_000, version, np.int32))
    utils.export_dataset_to_file([arrays] * 4, folder / "data.bin", 4)


def inputs(folder: Path, version: int) -> None:
    utils.export_inputs_to_file(["x"], folder / "in.bin", {"x": np.full(300_000, version)})


def scheduled(folder: Path, version: int) -> None:
    schedules.save(schedules.gpipe(4, 100 + version), folder / "a.schedule")


def saved(folder: Path, version: int) -> None:
    """Both versions stay, each as a step that is saved again and again."""
    with_orbax.is_installed = lambda: False
    checkpoint.save(folder, version, {"numbers": np.full(100_000, version)}, keep=2)


def compiled(folder: Path, version: int) -> None:
    content = container.Content({"version": version}, [bytes([version]) * 1_000_000])
    container.write_container(content, folder / "a.ipujax")


def of_report(write: Callable[[Report, Path], None], name: str) -> Writer:
    return Writer(lambda folder, version: write(report(version), folder / name), wrong_files)


FILES = (
    *("debug.cbor", "framework.json", "program.txt", "report.html", "report.json", "report.txt"),
    "trace.json.gz",
)
WRITERS = {
    "to_json": of_report(Report.to_json, "a.json"),
    "to_json .gz": of_report(Report.to_json, "a.json.gz"),
    "to_html": of_report(Report.to_html, "a.html"),
    "to_perfetto": of_report(Report.to_perfetto, "a.json"),
    "to_perfetto .gz": of_report(Report.to_perfetto, "a.json.gz"),
    "autoReport": Writer(auto_report, wrong_folders),
    "checkpoint.save": Writer(saved, wrong_checkpoints),
    "schedules.save": Writer(scheduled, wrong_files),
    "export_dataset_to_file": Writer(exported, wrong_files),
    "export_inputs_to_file": Writer(inputs, wrong_files),
    "executable cache": Writer(cached, wrong_files),
    "executable.save": Writer(compiled, wrong_files),
    "attachments": Writer(attached, wrong_attachments),
}


def kill_while_writing(writer: Writer, kills: int, moments: random.Random) -> dict[str, int]:
    """Kills a writer as often; returns the counts."""
    with tempfile.TemporaryDirectory() as place:
        versions, seconds = what_it_writes(writer, Path(place))
        folder = Path(place, "killed")
        folder.mkdir()
        halves = unfinished = 0
        for _ in range(kills):
            with writing(writer.write, folder) as child:
                time.sleep(moments.uniform(0, seconds))
                os.kill(child, signal.SIGKILL)
            unfinished += bool(list(folder.rglob(f"{UNFINISHED}*")))
            halves += len(writer.halves(folder, versions))
        with writing(writer.write, folder) as child:
            os.kill(child, signal.SIGKILL)
        writer.write(folder, 0)
        # Folders of reports are not written to again.
        left = len(list(folder.glob(f"{UNFINISHED}*")))
    return {"kills": kills, "halves": halves, "unfinished": unfinished, "left": left}


def what_it_writes(writer: Writer, place: Path) -> tuple[Versions, float]:
    """What both versions hold, and how many seconds they take to be written."""
    versions: Versions = {}
    for version in range(2):
        folder = place / str(version)
        folder.mkdir()
        writer.write(folder, version)  # once more below: the first time also imports
        for path in folder.rglob("*"):
            if path.is_file():
                versions.setdefault(path.name, set()).add(path.read_bytes())
    begin = time.perf_counter()
    for version in range(2):
        writer.write(place / str(version), version)
    return versions, time.perf_counter() - begin


@contextlib.contextmanager
def writing(write: Write, folder: Path) -> Iterator[int]:
    """A process that writes without end; it has written something when the block begins."""
    reader, ready = os.pipe()
    child = os.fork()
    if child == 0:
        write(folder, 0)
        os.write(ready, b"!")
        while True:
            write(folder, 1)
            write(folder, 0)
    os.close(ready)
    try:
        if os.read(reader, 1) != b"!":
            raise RuntimeError("the writer ended early")
        yield child
    finally:
        os.close(reader)
        os.waitpid(child, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each writer")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    moments = random.Random(arguments.seed)
    for name, writer in WRITERS.items():
        counts = kill_while_writing(writer, arguments.kills, moments)
        print(json.dumps({"writer": name, **counts}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
