"""A context that sets the schedule of all pipelines traced in it, whatever they ask for.

    with schedule_override(schedules.gpipe):
        lowered = ipu.compile(step).lower(*args)

It is part of the keys of JAX's caches, so a pipeline in a jitted function is traced again.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax


@functools.cache
def _make_context() -> Any:
    """Returns the context of JAX; made when first used, since JAX then forgets what it traced."""
    return jax.make_user_context(default_value=None)


class _ScheduleOverride:
    """The context, and the schedule that it sets now."""

    def __call__(self, schedule: Any) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which all pipelines have a schedule."""
        return _make_context()(schedule)

    @property
    def value(self) -> Any:
        """The schedule of the innermost context; None outside of all."""
        return _make_context().value if _make_context.cache_info().currsize else None


schedule_override = _ScheduleOverride()
