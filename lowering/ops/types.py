"""The types that JAX gives to the rules of a primitive, and takes from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from lowering.jaxprs import ad

Array = jax.Array
Arrays = Sequence[jax.Array]
Tangents = Sequence[jax.Array | ad.Zero]
Dims = Sequence[int | None]
"""The mapped axis of each operand."""

Results = tuple[Any, Any]
"""One result or several, and their tangents or their mapped axes."""

Rule = Callable[..., Any]
