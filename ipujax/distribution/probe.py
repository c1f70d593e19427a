"""Asks a machine whether instances can run there: `python -m ipujax.distribution.probe`."""

from __future__ import annotations

import dataclasses as dc
import ipaddress
import json
import socket

from ipujax.version import __version__


@dc.dataclass(frozen=True)
class Findings:
    """What a machine says of itself.

    Attributes:
      version: of its ipujax.
      port: one that is free now.
      name: its own.
      is_hidden: whether this name leads to its loopback device, where others do not reach it.
    """

    version: str
    port: int
    name: str
    is_hidden: bool


def probe() -> Findings:
    """Asks this machine."""
    name = socket.gethostname()
    return Findings(__version__, free_port(), name, _is_loopback(name))


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as trial:
        trial.bind(("", 0))
        return trial.getsockname()[1]


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(socket.gethostbyname(name)).is_loopback
    except OSError:  # a name that leads nowhere; gloo takes the loopback device then
        return True


if __name__ == "__main__":
    print(json.dumps(dc.asdict(probe())))
