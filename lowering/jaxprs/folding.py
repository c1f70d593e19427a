"""What tracing makes of conversions of known scalars: literals, and no equations."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.jaxprs.jaxpr import Atom, JaxprEqn, Literal, bind_equation, trace_flat


@dc.dataclass(frozen=True, slots=True)
class _Conversion:
    """A conversion of a known scalar; equal to others with the same result."""

    key: tuple[object, ...]
    eqn: JaxprEqn = dc.field(compare=False)
    value: Any = dc.field(compare=False)


def fold_conversion(eqn: JaxprEqn, operands: Sequence[Atom]) -> list[Atom] | None:
    """Returns the results of an equation on other operands if tracing it gives literals.

    None stands for an equation that stays.
    """
    if eqn.primitive.name != "convert_element_type" or not isinstance(operands[0], Literal):
        return None
    value: object = operands[0].val
    known = np.asarray(value)
    params = tuple(sorted(eqn.params.items(), key=lambda item: item[0]))
    key = str(value.__class__), str(known.dtype), known.tobytes(), params
    result = _trace_conversion(_Conversion(key, eqn, value))
    return None if result is None else [result]


@functools.lru_cache(maxsize=1 << 10)
def _trace_conversion(conversion: _Conversion) -> Literal | None:
    """Returns the literal that tracing makes of a conversion; None for an equation."""
    closed = trace_flat(lambda: bind_equation(conversion.eqn, [conversion.value]), ())
    (result,) = closed.jaxpr.outvars
    return result if isinstance(result, Literal) else None
