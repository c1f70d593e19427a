"""QR factorizations, by whichever library: `jnp.linalg.qr` on one IPU."""

from __future__ import annotations

import jax.numpy as jnp

from validation.models.variables import struct
from validation.program import device_cycles, predict_program
from validation.row import Prediction, Row, SkipError


def predict(row: Row) -> Prediction | None:
    """Cycles of the factorization, without the host's copies."""
    if not row.text.startswith("qr"):
        return None
    shape = row.workload.get("shape")
    if not (isinstance(shape, list) and len(shape) == 2):
        raise SkipError("the workload has no two-dimensional 'shape'")
    profile = predict_program(jnp.linalg.qr, [struct(jnp.float32, *shape)], row.target)
    return Prediction(cycles=device_cycles(profile), assumptions=("float32",))
