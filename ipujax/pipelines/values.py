"""Checks of single arguments of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipujax.checks.arrays import ArrayChecks
from ipujax.errors import PipelineError, PipelineTypeError

check = ArrayChecks(PipelineTypeError, PipelineError)


def micro_batches(given: Any) -> int:
    """A gradient_accumulation_count."""
    if given is None or (
        isinstance(given, (int, np.integer)) and given == 0 and given is not False
    ):
        raise PipelineError(
            "gradient_accumulation_count must be specified, as at least 1: the number of "
            f"micro-batches of one weight update; it is {given}"
        )
    return check.integer(given, "gradient_accumulation_count", 1)


def mask(given: Any) -> tuple[bool, ...] | None:
    """An outfeed_mask; an empty one is none."""
    if given is None:
        return None
    entries = check.sequence(given, "outfeed_mask", "booleans")
    return tuple(check.flag(entry, "an entry of outfeed_mask") for entry in entries) or None
