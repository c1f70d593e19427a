"""Other machines: how a command is run there, by ssh, and whether it can be."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from ipujax.distribution.probe import Findings
from ipujax.version import __version__

_SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ControlMaster=no"),  # none that stays in the background and keeps the output open
    *("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=3"),  # one that is gone is noticed
)
_NAMES = ("LD_LIBRARY_PATH", "KERAS_BACKEND", "OMP_NUM_THREADS", "PATH")
_BEGINNINGS = (
    "IPUJAX_",
    "JAX_",
    "NCCL_",
    "POPLAR_",
    "POPART_",
    "POPTORCH_",
    "PYTHON",
    "TF_",
    "XLA_",
)
"""Of the environment, what other machines are told. The rest is theirs."""

_TRIES_SECONDS = 30.0


class HostError(Exception):
    """A machine on which no instance can run."""


def forwarded(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that go to other machines."""
    return {
        name: value
        for name, value in environment.items()
        if name in _NAMES or name.startswith(_BEGINNINGS)
    }


def on_host(host: str, command: Sequence[str]) -> list[str]:
    """What runs a command on another machine, in the folder that is the current one here.

    It reads the environment of the command from its standard input, `greeting_of`: what stands in
    arguments, others on both machines can read.
    """
    read = 'IFS= read -r variables && eval "$variables"'
    there = f"{read} && cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
    return [*_SSH, host, f"exec sh -c {shlex.quote(there)}"]


def greeting_of(environment: Mapping[str, str]) -> str:
    """The line by which `on_host` is told variables; one that a line cannot hold is left out."""
    pairs = [
        f"{name}={shlex.quote(value)}"
        for name, value in environment.items()
        if name.isascii() and name.isidentifier() and "\n" not in value
    ]
    return " ".join(["export", *pairs]) if pairs else ":"


def probed(hosts: Iterable[str], environment: Mapping[str, str]) -> dict[str, Findings]:
    """What each machine says of itself, all asked at once.

    Raises:
      HostError: one that cannot be reached, that lacks the folder, this Python or ipujax, or has
        another version of it.
    """
    command = [sys.executable, "-m", "ipujax.distribution.probe"]
    greeting = greeting_of(environment)
    asked = {host: _start(on_host(host, command), greeting) for host in hosts}
    try:
        return {host: _answer(host, process) for host, process in asked.items()}
    finally:
        for process in asked.values():
            process.kill()
            process.wait()


def _start(command: Sequence[str], greeting: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    except FileNotFoundError as error:
        raise HostError(f"{command[0]} is not installed on this machine") from error
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # its exit status says why
            process.stdin.write(f"{greeting}\n")
            process.stdin.close()
        process.stdin = None  # `communicate` would flush it
    return process


def _answer(host: str, process: subprocess.Popen[str]) -> Findings:
    try:
        told, complaint = process.communicate(timeout=_TRIES_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{host} does not answer within {_TRIES_SECONDS:g} seconds") from error
    if process.returncode:
        raise HostError(f"{host} cannot take part: {complaint.strip() or 'ssh failed'}")
    try:
        findings = Findings(**json.loads(told.splitlines()[-1]))  # a shell may greet before
    except (ValueError, TypeError, IndexError) as error:
        raise HostError(f"{host} answers with something else: {told!r}") from error
    if findings.version != __version__:
        raise HostError(
            f"{host} has ipujax {findings.version}, and this machine has {__version__}: "
            "install the same"
        )
    return findings
