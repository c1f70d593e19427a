"""Which processes are attached to which IPUs: one small file for each process of this user.

`gc-monitor` reads them. Virtual IPUs are not exclusive, so nothing is locked, and trouble with
these files never stops a program: it is logged and forgotten, at level DEBUG unless somebody else
could have caused it.

The files are in a folder of this user's own among temporary ones, or where `IPUJAX_RUNTIME_DIR`
says: to share it between processes with other temporary folders, or if its name is taken.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import getpass
import json
import logging
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from ipujax.host.files import UnfitFileError
from ipujax.host.own_folder import ForeignFolderError, OwnFolder, opened

# Not through `ipujax.log`, so that the command line tools start without its imports.
_logger = logging.getLogger("ipujax")

_VARIABLE = "IPUJAX_RUNTIME_DIR"
_MOST_BYTES = 2**20  # of a file; one of sixteen devices has a few thousand
_SHOWN = 200  # letters of what is wrong with one
_LATEST = 2**53  # seconds since the epoch that are told exactly
_LAST_PID = 2**31 - 1


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
    named = os.environ.get(_VARIABLE)
    return pathlib.Path(named or f"{tempfile.gettempdir()}/ipujax-{_user()}")


def publish(attachments: Sequence[Attachment]) -> None:
    """Says what this process is attached to, in place of what it said before.

    A folder that others have a say in is not used, with a warning: gc-monitor is a convenience, and
    the program can do without.
    """
    command = os.path.basename(sys.executable or "python")
    process = AttachedProcess(os.getpid(), command, _user(), time.time(), tuple(attachments))
    record = {**dataclasses.asdict(process), "started": _start_ticks(process.pid)}
    try:
        with _folder(make=True) as folder:
            folder.write_text(f"{process.pid}.json", json.dumps(record))
        atexit.register(withdraw)
    except ForeignFolderError as error:
        _warn_of_folder("gc-monitor is not told of this process", str(error))
    except OSError as error:
        _logger.debug("could not record the attachment for gc-monitor: %s", error)


def withdraw() -> None:
    """Says that this process is attached to nothing."""
    atexit.unregister(withdraw)
    try:
        with _folder() as folder:
            folder.remove(f"{os.getpid()}.json")
    except (ForeignFolderError, OSError) as error:
        _logger.debug("could not remove the attachment for gc-monitor: %s", error)


def attached_processes() -> list[AttachedProcess]:
    """This user's attached processes by id; files that dead processes left are removed.

    Whatever else is in the folder is passed over, with a warning that says why.
    """
    try:
        with _folder() as folder:
            processes = [_look(folder, name) for name in folder.names() if name.endswith(".json")]
    except ForeignFolderError as error:
        _warn_of_folder("attached processes are not known", str(error))
        return []
    except OSError as error:
        _logger.debug("could not look for attached processes: %s", error)
        return []
    return sorted(filter(None, processes), key=lambda process: process.pid)


def _folder(make: bool = False) -> AbstractContextManager[OwnFolder]:
    # Who names a folder decides who may look into it, but not who may write.
    return opened(runtime_dir(), make=make, private=not os.environ.get(_VARIABLE))


@functools.cache
def _warn_of_folder(what: str, why: str) -> None:
    """Logs a warning, once in a process."""
    remove = "" if os.environ.get(_VARIABLE) else "have it removed, or "
    fix = f"{remove}name a folder of your own, with mode 700, in {_VARIABLE}"
    _logger.warning("%s: %s\n  fix:   %s", what, why, fix)


def _look(folder: OwnFolder, name: str) -> AttachedProcess | None:
    """The living process that a file is of; what a dead one left is removed."""
    try:
        record = json.loads(folder.read_bytes(name, _MOST_BYTES))
        process = _process(record)
        if _is_alive(process.pid, record["started"]):
            return process
        folder.remove(name)
        return None
    except FileNotFoundError:  # taken away meanwhile, by its process
        return None
    except UnfitFileError as error:
        why = str(error)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = "tells of no attached process: " + f"{type(error).__name__}: {error}"[:_SHOWN]
    _logger.warning("%r is passed over, as it %s", str(runtime_dir() / name), why)
    return None


def _process(record: dict[str, Any]) -> AttachedProcess:
    """What a file says.

    Raises:
      KeyError: something is missing.
      TypeError: something is of another type.
      ValueError: a number or a text that cannot be.
    """
    attachments: list[Attachment] = []
    for each in record["attachments"]:
        ipus = tuple(map(_whole, each["ipus"]))
        attachments.append(Attachment(_text(each["device"]), _whole(each["device_id"]), ipus))
    since = record["since"]
    if type(since) not in (int, float) or not 0 <= since < _LATEST:
        raise ValueError(f"{since!r} is no time")
    if type(record["started"]) not in (str, type(None)):
        raise TypeError(f"{record['started']!r} is no time of a start")
    pid = _whole(record["pid"])
    if not 0 < pid <= _LAST_PID:  # others are groups of processes
        raise ValueError(f"{pid} is no process")
    command, user = _text(record["command"]), _text(record["user"])
    return AttachedProcess(pid, command, user, since, tuple(attachments))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if not value.isprintable():  # it goes to a terminal
        raise ValueError(f"{value!r} has letters that cannot be shown")
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _is_alive(pid: int, started: str | None) -> bool:
    if os.name != "posix":
        return True  # elsewhere, asking with signal 0 would interrupt the process
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # it lives, and is somebody else's
    except ProcessLookupError:
        return False
    return started == _start_ticks(pid)


def _start_ticks(pid: int) -> str | None:
    """When a process started, to tell it from a later one of the same id; `None` if unknown."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command, in parentheses, may hold blanks; the start time is the 20th field behind it.
    return stat.rpartition(")")[2].split()[19]


def _user() -> str:
    """Who runs this: by id, as `su` and `sudo` may leave another one's name in the environment."""
    try:
        import pwd
    except ImportError:  # Windows
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.geteuid())
