"""Checks of single arguments of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipujax.checks.arrays import ArrayChecks
from ipujax.errors import PipelineError, PipelineTypeError

check = ArrayChecks(PipelineTypeError, PipelineError)


def micro_batches(count: Any) -> int:
    """A gradient_accumulation_count."""
    if count is None or (
        isinstance(count, (int, np.integer)) and count == 0 and count is not False
    ):
        raise PipelineError(
            "gradient_accumulation_count must be specified, as at least 1: the number of "
            f"micro-batches of one weight update; it is {count}"
        )
    return check.integer(count, "gradient_accumulation_count", 1)


def mask(flags: Any) -> tuple[bool, ...] | None:
    """An outfeed_mask; an empty one is none."""
    if flags is None:
        return None
    entries = check.sequence(flags, "outfeed_mask", "booleans")
    return tuple(check.flag(entry, "an entry of outfeed_mask") for entry in entries) or None
