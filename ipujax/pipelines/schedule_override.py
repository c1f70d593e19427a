"""A schedule that holds for all pipelines traced within a `with`, whatever they ask for.

    with schedule_override(schedules.gpipe):
        lowered = ipu.compile(step).lower(*args)

JAX's own caches know of it, so a pipeline inside a function that was jitted before is traced anew.
"""

from __future__ import annotations

from typing import Any

import jax

schedule_override: Any = jax.make_user_context(default_value=None)
