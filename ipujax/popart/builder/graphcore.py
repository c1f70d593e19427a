"""The operators of Graphcore's own domain, as a builder has them."""

from __future__ import annotations

import functools

from ipujax.popart.builder.signatures import Operation


@functools.cache
def graphcore_operations() -> dict[str, Operation]:
    """By the names of their methods."""
    return {}
