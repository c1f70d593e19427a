"""Probes a machine for running instances: `python -m ipujax.distribution.probe`."""

from __future__ import annotations

import dataclasses as dc
import ipaddress
import json
import socket

from ipujax.ground import __version__


@dc.dataclass(frozen=True)
class Findings:
    """The version, name and a free port of a machine.

    Attributes:
      version: the version of its ipujax.
      port: a port that is free now.
      name: its host name.
      is_hidden: whether this name leads to its loopback device, where others do not reach it.
    """

    version: str
    port: int
    name: str
    is_hidden: bool


def probe_machine() -> Findings:
    """Returns the findings of this machine."""
    name = socket.gethostname()
    return Findings(__version__, find_free_port(), name, _is_loopback(name))


def find_free_port() -> int:
    """Returns a port that no process listens at now."""
    with socket.socket() as trial:
        trial.bind(("", 0))
        return trial.getsockname()[1]


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(socket.gethostbyname(name)).is_loopback
    except OSError:  # a name that leads nowhere; gloo takes the loopback device then
        return True


if __name__ == "__main__":
    print(json.dumps(dc.asdict(probe_machine())))
