"""Runs commands on other machines by ssh, and checks whether instances can run there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from ipujax.distribution.probe import Findings
from ipujax.ground import __version__

_SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ControlMaster=no"),  # no process in the background that keeps the output open
    *("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=3"),  # notices lost connections
)
_NAMES = ("LD_LIBRARY_PATH", "KERAS_BACKEND", "OMP_NUM_THREADS", "PATH")
_BEGINNINGS = (
    "IPUJAX_",
    "IPUOF_",
    "JAX_",
    "NCCL_",
    "POPLAR_",
    "POPART_",
    "POPTORCH_",
    "PYTHON",
    "TF_",
    "XLA_",
)
"""The beginnings of the names of variables that other machines get from this environment."""

_TRIES_SECONDS = 30.0


class HostError(Exception):
    """An error of a machine on which no instance can run."""


def select_forwarded_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables of the environment that go to other machines."""
    return {
        name: value
        for name, value in environment.items()
        if name in _NAMES or name.startswith(_BEGINNINGS)
    }


def build_ssh_command(host: str, command: Sequence[str]) -> list[str]:
    """Returns the command that runs another one by ssh, in the folder that is current here.

    It reads the environment of the command from its standard input (`format_environment_line`), as
    others on both machines can read arguments.
    """
    read_variables = 'IFS= read -r variables && eval "$variables"'
    remote_script = (
        f"{read_variables} && cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
    )
    return [*_SSH, host, f"exec sh -c {shlex.quote(remote_script)}"]


def format_environment_line(environment: Mapping[str, str]) -> str:
    """Formats variables as the line that `build_ssh_command` reads, without multi-line ones."""
    pairs = [
        f"{name}={shlex.quote(value)}"
        for name, value in environment.items()
        if name.isascii() and name.isidentifier() and "\n" not in value
    ]
    return " ".join(["export", *pairs]) if pairs else ":"


def probe_hosts(hosts: Iterable[str], environment: Mapping[str, str]) -> dict[str, Findings]:
    """Probes all machines at once, and returns the findings of each.

    Raises:
      HostError: one that cannot be reached, that lacks the folder, this Python or ipujax, or has
        another version of it.
    """
    command = [sys.executable, "-m", "ipujax.distribution.probe"]
    greeting = format_environment_line(environment)
    process_of_host = {
        host: _start_remote_command(build_ssh_command(host, command), greeting) for host in hosts
    }
    try:
        return {host: _read_findings(host, process) for host, process in process_of_host.items()}
    finally:
        for process in process_of_host.values():
            process.kill()
            process.wait()


def _start_remote_command(command: Sequence[str], greeting: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    except FileNotFoundError as error:
        raise HostError(f"{command[0]} is not installed on this machine") from error
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # its exit status shows the reason
            process.stdin.write(f"{greeting}\n")
            process.stdin.close()
        process.stdin = None  # `communicate` would flush it
    return process


def _read_findings(host: str, process: subprocess.Popen[str]) -> Findings:
    try:
        output, error_output = process.communicate(timeout=_TRIES_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{host} does not answer within {_TRIES_SECONDS:g} seconds") from error
    if process.returncode:
        raise HostError(f"{host} cannot take part: {error_output.strip() or 'ssh failed'}")
    try:
        findings = Findings(**json.loads(output.splitlines()[-1]))  # a shell may greet before
    except (ValueError, TypeError, IndexError) as error:
        raise HostError(f"{host} answers with something else: {output!r}") from error
    if findings.version != __version__:
        raise HostError(
            f"{host} has ipujax {findings.version}, and this machine has {__version__}: "
            "install the same"
        )
    return findings
