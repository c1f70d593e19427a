"""A context that sets the schedule of all pipelines traced in it, whatever they ask for.

    with schedule_override(schedules.gpipe):
        lowered = ipu.compile(step).lower(*args)

It is part of the keys of JAX's caches, so a pipeline in a jitted function is traced again.
"""

from __future__ import annotations

from typing import Any

import jax

schedule_override: Any = jax.make_user_context(default_value=None)
