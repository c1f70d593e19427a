"""Conversions of known scalars."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lowering.jaxprs import jaxpr
from lowering.jaxprs.folding import fold_conversion
from tests.lowering.samples import S, trace


def conversion(dtype: Any) -> Any:
    (eqn,) = trace(lambda x: lax.convert_element_type(x, dtype), S).jaxpr.eqns
    return eqn


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "bool", "complex64"])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, np.float32(2.5)])
def test_a_known_scalar_becomes_the_literal_that_tracing_makes(dtype, value):
    eqn = conversion(dtype)
    operand = jaxpr.Literal(value, eqn.invars[0].aval)
    folded = next(iter(fold_conversion(eqn, [operand]) or ()))
    assert folded.aval == eqn.outvars[0].aval
    expected = np.asarray(value, np.float32).astype(jnp.dtype(dtype))
    assert np.asarray(folded.val).tobytes() == expected.tobytes()


def test_other_equations_stay():
    eqn = conversion("float16")
    assert fold_conversion(eqn, eqn.invars) is None
    (sine,) = trace(jnp.sin, S).jaxpr.eqns
    assert fold_conversion(sine, [jaxpr.Literal(1.0, sine.invars[0].aval)]) is None
