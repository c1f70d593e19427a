"""Which processes are attached to which IPUs: one small file for each process of this user.

`gc-monitor` reads them. Virtual IPUs are not exclusive, so nothing is locked, and trouble with
these files never stops a program: it is logged at level DEBUG and forgotten.
"""

from __future__ import annotations

import atexit
import dataclasses
import getpass
import json
import logging
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

# Not through `ipujax.log`, so that the command line tools start without its imports.
_logger = logging.getLogger("ipujax")


@dataclasses.dataclass(frozen=True)
class Attachment:
    """One logical device of a process.

    Attributes:
      device: its name, such as `/device:IPU:0`.
      device_id: the id that `gc-info -l` lists it under.
      ipus: the indices of its IPUs, in the order of shards.
    """

    device: str
    device_id: int
    ipus: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class AttachedProcess:
    """A living process and what it is attached to.

    Attributes:
      pid: its process id.
      command: its program, without the folder.
      user: who runs it.
      since: when it attached, in seconds since the epoch.
      attachments: its logical devices.
    """

    pid: int
    command: str
    user: str
    since: float
    attachments: tuple[Attachment, ...]


def runtime_dir() -> pathlib.Path:
    """The folder of the files: `IPUJAX_RUNTIME_DIR`, or one for this user among temporary files."""
    given = os.environ.get("IPUJAX_RUNTIME_DIR")
    return pathlib.Path(given or f"{tempfile.gettempdir()}/ipujax-{_user()}")


def publish(attachments: Sequence[Attachment]) -> None:
    """Says what this process is attached to, in place of what it said before."""
    process = AttachedProcess(
        os.getpid(),
        os.path.basename(sys.executable or "python"),
        _user(),
        time.time(),
        tuple(attachments),
    )
    record = {**dataclasses.asdict(process), "started": _start_ticks(process.pid)}
    try:
        folder = runtime_dir()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{process.pid}.json"
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(record))
        unfinished.replace(path)  # at once: a reader never sees half a file
        atexit.register(withdraw)
    except OSError as error:
        _logger.debug("could not record the attachment for gc-monitor: %s", error)


def withdraw() -> None:
    """Says that this process is attached to nothing."""
    atexit.unregister(withdraw)
    try:
        (runtime_dir() / f"{os.getpid()}.json").unlink(missing_ok=True)
    except OSError as error:
        _logger.debug("could not remove the attachment for gc-monitor: %s", error)


def attached_processes() -> list[AttachedProcess]:
    """This user's attached processes by id; files that dead processes left are removed."""
    processes: list[AttachedProcess] = []
    for path in sorted(runtime_dir().glob("*.json")):
        try:
            record = json.loads(path.read_text())
            if _is_alive(record):
                processes.append(_process(record))
            else:
                path.unlink(missing_ok=True)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _logger.debug("could not read %s: %s", path, error)
    return sorted(processes, key=lambda process: process.pid)


def _process(record: dict[str, Any]) -> AttachedProcess:
    attachments = tuple(
        Attachment(each["device"], each["device_id"], tuple(each["ipus"]))
        for each in record["attachments"]
    )
    return AttachedProcess(
        record["pid"], record["command"], record["user"], record["since"], attachments
    )


def _is_alive(record: dict[str, Any]) -> bool:
    if os.name != "posix":
        return True  # elsewhere, asking with signal 0 would interrupt the process
    try:
        os.kill(record["pid"], 0)
    except PermissionError:
        return True  # it lives, and is somebody else's
    except ProcessLookupError:
        return False
    return record["started"] == _start_ticks(record["pid"])


def _start_ticks(pid: int) -> str | None:
    """When a process started, to tell it from a later one of the same id; `None` if unknown."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command, in parentheses, may hold blanks; the start time is the 20th field behind it.
    return stat.rpartition(")")[2].split()[19]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid()) if hasattr(os, "getuid") else "user"
