"""Less work for XLA, which most of the tests' time is: their programs are small, and many."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

_QUICK = "--xla_backend_optimization_level=0"

# An XLA that does not know it would end the process.
FLAGS = _QUICK if importlib.metadata.version("jaxlib").startswith("0.10.") else ""
"""What `XLA_FLAGS` should be before JAX starts, unless somebody has set it."""

KERNELS = Path(__file__).resolve().parents[1] / ".pytest_cache" / "xla"

ENVIRONMENT = {
    "XLA_FLAGS": FLAGS,
    # What an earlier run compiled is loaded; for JAX's events, and so for tests that count them,
    # that is a compilation all the same.
    "JAX_COMPILATION_CACHE_DIR": str(KERNELS),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""Variables to set before JAX starts, unless somebody has set them."""
