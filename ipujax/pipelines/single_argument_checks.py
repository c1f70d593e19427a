"""The checks of single arguments of a pipeline."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ipujax.ground import ArrayChecks, PipelineError, PipelineTypeError

check = ArrayChecks(PipelineTypeError, PipelineError)

StateSharding: TypeAlias = bool | Literal["on_tiles"]
ON_TILES: Final = "on_tiles"
"""The optimizer's state is sharded over the replicas, and stays on their tiles."""


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


def check_state_sharding(sharding: object) -> StateSharding | None:
    """Returns a replicated_optimizer_state_sharding: True, False, None or "on_tiles"."""
    if isinstance(sharding, str) and sharding == ON_TILES:
        return ON_TILES
    if sharding is not None and not isinstance(sharding, (bool, np.bool_)):
        name, expected = "replicated_optimizer_state_sharding", 'True, False or "on_tiles"'
        raise check.wrong_type_error(expected, sharding, name)
    return sharding if sharding is None else bool(sharding)


def check_outfeed_mask(flags: Any) -> tuple[bool, ...] | None:
    """Checks an outfeed_mask, and returns it as a tuple; None if it is empty."""
    if flags is None:
        return None
    entries = check.require_sequence(flags, "outfeed_mask", "booleans")
    return tuple(check.require_flag(entry, "an entry of outfeed_mask") for entry in entries) or None
