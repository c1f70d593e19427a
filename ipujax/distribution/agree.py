"""Checks that all processes are about to run the same program."""

from __future__ import annotations

import difflib
import hashlib
from itertools import islice

import numpy as np
from jax.experimental import multihost_utils

from ipujax.distribution.meeting import connect_processes
from ipujax.ground import DistributionError

_SHOWN_LINES = 6
_SAME = "start all instances with the same files, arguments and configuration"


def check_same_in_all_processes(
    name: str, text: str, noun: str = "program", fix: str = _SAME
) -> None:
    """Raises unless the program, or another text, is the same in all processes.

    All processes have to call it, each with its own text; all of them raise.

    Args:
      name: the program's name.
      text: the program's text.
      noun: the word for the text in errors.
      fix: the fix in the error where they differ.

    Raises:
      DistributionError: (a `ValueError`) texts that differ; the message shows how.
    """
    connect_processes()
    digests = gather_from_processes(np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8))
    differing_instances = [
        instance for instance, digest in enumerate(digests) if (digest != digests[0]).any()
    ]
    if not differing_instances:
        return
    texts = [
        bytes(row).rstrip(b"\0").decode() for row in gather_from_processes(_pad_to_longest(text))
    ]
    first_lines, other_lines = (texts[n].splitlines() for n in (0, differing_instances[0]))
    difference = difflib.unified_diff(first_lines, other_lines, n=0, lineterm="")
    changed_lines = [line for line in difference if not line.startswith(("---", "+++", "@@"))]
    raise DistributionError(
        f"`{name}` of instance {differing_instances[0]} is another {noun} than that of instance 0, "
        "whose lines begin with -:\n" + "\n".join(islice(changed_lines, _SHOWN_LINES)),
        fix=fix,
    )


def gather_from_processes(array: object) -> np.ndarray:
    """Returns the arrays of all processes, `[processes, ...]`; all of them have to call it."""
    return np.asarray(multihost_utils.process_allgather(array))


def _pad_to_longest(text: str) -> np.ndarray:
    data = np.frombuffer(text.encode(), np.uint8)
    longest = int(gather_from_processes(np.int32(len(data))).max())
    return np.pad(data, (0, longest - len(data)))
