"""The checks of single arguments of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipujax.ground import ArrayChecks, PipelineError, PipelineTypeError

check = ArrayChecks(PipelineTypeError, PipelineError)


def check_accumulation_count(count: Any) -> int:
    """Checks a gradient_accumulation_count, and returns it as an integer."""
    if count is None or (
        isinstance(count, (int, np.integer)) and count == 0 and count is not False
    ):
        raise PipelineError(
            "gradient_accumulation_count must be specified, as at least 1: the number of "
            f"micro-batches of one weight update; it is {count}"
        )
    return check.require_integer(count, "gradient_accumulation_count", 1)


def check_outfeed_mask(flags: Any) -> tuple[bool, ...] | None:
    """Checks an outfeed_mask, and returns it as a tuple; None if it is empty."""
    if flags is None:
        return None
    entries = check.require_sequence(flags, "outfeed_mask", "booleans")
    return tuple(check.require_flag(entry, "an entry of outfeed_mask") for entry in entries) or None
