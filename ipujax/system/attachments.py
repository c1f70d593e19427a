"""Records which processes are attached to which IPUs, one small file for each process.

`gc-monitor` reads the files of this user. Virtual IPUs are not exclusive, so nothing is locked, and
an error with these files never stops a program: it is logged, at level DEBUG unless somebody else
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

from ipujax.ground import ForeignFolderError, Json, OwnFolder, UnfitFileError, open_own_folder

# Not through `ipujax.log`, so that the command line tools start without its imports.
_logger = logging.getLogger("ipujax")

_VARIABLE = "IPUJAX_RUNTIME_DIR"
_MOST_BYTES = 2**20  # of a file; one of sixteen devices has a few thousand
_SHOWN = 200  # characters of an error
_LATEST = 2**53  # seconds since the epoch that a float holds exactly
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
    """A living process and its logical devices.

    Attributes:
      pid: its process id.
      command: its program, without the folder.
      user: the user that runs it.
      since: when it attached, in seconds since the epoch.
      attachments: its logical devices.
    """

    pid: int
    command: str
    user: str
    since: float
    attachments: tuple[Attachment, ...]


def runtime_dir() -> pathlib.Path:
    """Returns the folder of the files: `IPUJAX_RUNTIME_DIR`, or a temporary one of this user."""
    configured_dir = os.environ.get(_VARIABLE)
    return pathlib.Path(configured_dir or f"{tempfile.gettempdir()}/ipujax-{_current_user_name()}")


def publish_attachments(attachments: Sequence[Attachment]) -> None:
    """Records which devices this process is attached to, replacing what it recorded before.

    A folder that others may change is not used, with a warning: gc-monitor is a convenience, and
    the program runs without it.
    """
    command = os.path.basename(sys.executable or "python")
    process = AttachedProcess(
        os.getpid(), command, _current_user_name(), time.time(), tuple(attachments)
    )
    record = {**dataclasses.asdict(process), "started": _read_start_time(process.pid)}
    try:
        with _open_runtime_folder(create=True) as folder:
            folder.write_text(f"{process.pid}.json", json.dumps(record))
        atexit.register(withdraw_attachments)
    except ForeignFolderError as error:
        _warn_of_folder("gc-monitor is not told of this process", str(error))
    except OSError as error:
        _logger.debug("could not record the attachment for gc-monitor: %s", error)


def withdraw_attachments() -> None:
    """Removes the record of this process."""
    atexit.unregister(withdraw_attachments)
    try:
        with _open_runtime_folder() as folder:
            folder.remove_file(f"{os.getpid()}.json")
    except (ForeignFolderError, OSError) as error:
        _logger.debug("could not remove the attachment for gc-monitor: %s", error)


def list_attached_processes() -> list[AttachedProcess]:
    """Returns this user's attached processes by id; removes files that dead processes left.

    Other files in the folder are passed over, with a warning that says why.
    """
    try:
        with _open_runtime_folder() as folder:
            processes = [
                _read_live_process(folder, name)
                for name in folder.list_names()
                if name.endswith(".json")
            ]
    except ForeignFolderError as error:
        _warn_of_folder("attached processes are not known", str(error))
        return []
    except OSError as error:
        _logger.debug("could not look for attached processes: %s", error)
        return []
    return sorted(filter(None, processes), key=lambda process: process.pid)


def _open_runtime_folder(create: bool = False) -> AbstractContextManager[OwnFolder]:
    # A folder that the user names may be readable by others, but not writable.
    return open_own_folder(runtime_dir(), create=create, is_private=not os.environ.get(_VARIABLE))


@functools.cache
def _warn_of_folder(consequence: str, reason: str) -> None:
    """Logs a warning about the runtime folder, once in a process."""
    remove = "" if os.environ.get(_VARIABLE) else "have it removed, or "
    fix = f"{remove}name a folder of your own, with mode 700, in {_VARIABLE}"
    _logger.warning("%s: %s\n  fix:   %s", consequence, reason, fix)


def _read_live_process(folder: OwnFolder, name: str) -> AttachedProcess | None:
    """Returns the living process that a file records; removes the file of a dead one."""
    try:
        record = json.loads(folder.read_bytes(name, _MOST_BYTES))
        process = _parse_process_record(record)
        if _is_alive(process.pid, record["started"]):
            return process
        folder.remove_file(name)
        return None
    except FileNotFoundError:  # taken away meanwhile, by its process
        return None
    except UnfitFileError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = "records no attached process: " + f"{type(error).__name__}: {error}"[:_SHOWN]
    _logger.warning("%r is passed over, as it %s", str(runtime_dir() / name), reason)
    return None


def _parse_process_record(record: Json) -> AttachedProcess:
    """Parses the record of a process.

    Raises:
      KeyError: something is missing.
      TypeError: something is of another type.
      ValueError: a number or a text that cannot be.
    """
    attachments: list[Attachment] = []
    for attachment_record in record["attachments"]:
        ipus = tuple(map(_check_int, attachment_record["ipus"]))
        attachments.append(
            Attachment(
                _check_printable_text(attachment_record["device"]),
                _check_int(attachment_record["device_id"]),
                ipus,
            )
        )
    since = record["since"]
    if type(since) not in (int, float) or not 0 <= since < _LATEST:
        raise ValueError(f"{since!r} is no time")
    if type(record["started"]) not in (str, type(None)):
        raise TypeError(f"{record['started']!r} is no time of a start")
    pid = _check_int(record["pid"])
    if not 0 < pid <= _LAST_PID:  # other numbers stand for groups of processes
        raise ValueError(f"{pid} is no process")
    command, user = _check_printable_text(record["command"]), _check_printable_text(record["user"])
    return AttachedProcess(pid, command, user, since, tuple(attachments))


def _check_printable_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if not value.isprintable():  # it will be printed on a terminal
        raise ValueError(f"{value!r} has characters that cannot be printed")
    return value


def _check_int(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _is_alive(pid: int, started: str | None) -> bool:
    if os.name != "posix":
        return True  # elsewhere, asking with signal 0 would interrupt the process
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # it lives, and belongs to another user
    except ProcessLookupError:
        return False
    return started == _read_start_time(pid)


def _read_start_time(pid: int) -> str | None:
    """Returns when a process started, to tell it from a later one of the same id, or None."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command, in parentheses, may hold blanks; the start time is the 20th field behind it.
    return stat.rpartition(")")[2].split()[19]


def _current_user_name() -> str:
    """Returns the name of the process's user, by id as the environment may name another one."""
    try:
        import pwd
    except ImportError:  # Windows
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.geteuid())
