"""Whether all processes are about to run the same program."""

from __future__ import annotations

import difflib
import hashlib
from itertools import islice
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from ipujax.distribution.meeting import connect_processes
from ipujax.errors import DistributionError

_SHOWN_LINES = 6
_SAME = "start all instances with the same files, arguments and configuration"


def check_agreement(name: str, text: str, kind: str = "program", fix: str = _SAME) -> None:
    """Refuses a program, or the like, that other processes do not have as it is here.

    All processes have to ask, each with its own; all of them raise.

    Args:
      name: of the program.
      text: the program.
      kind: what it is.
      fix: what to do where they differ.

    Raises:
      DistributionError: (a `ValueError`) it says what differs.
    """
    connect_processes()
    digests = of_all(np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8))
    others = [n for n, digest in enumerate(digests) if (digest != digests[0]).any()]
    if not others:
        return
    texts = [bytes(row).rstrip(b"\0").decode() for row in of_all(_padded(text))]
    first, other = (texts[n].splitlines() for n in (0, others[0]))
    difference = difflib.unified_diff(first, other, n=0, lineterm="")
    shown = [line for line in difference if not line.startswith(("---", "+++", "@@"))]
    raise DistributionError(
        f"`{name}` of instance {others[0]} is another {kind} than that of instance 0, whose lines "
        "begin with -:\n" + "\n".join(islice(shown, _SHOWN_LINES)),
        fix=fix,
    )


def of_all(array: Any) -> np.ndarray[Any, Any]:
    """What all processes have, `[processes, ...]`; all of them have to ask."""
    return np.asarray(multihost_utils.process_allgather(array))


def _padded(text: str) -> np.ndarray[Any, Any]:
    data = np.frombuffer(text.encode(), np.uint8)
    longest = int(of_all(np.int32(len(data))).max())
    return np.pad(data, (0, longest - len(data)))
