"""Less optimization by XLA: most of the tests' time is its, and their programs are small."""

from __future__ import annotations

import importlib.metadata

_QUICK = "--xla_backend_optimization_level=0"

# An XLA that does not know it would end the process.
FLAGS = _QUICK if importlib.metadata.version("jaxlib").startswith("0.10.") else ""
"""What `XLA_FLAGS` should be before JAX starts, unless somebody has set it."""
