"""The primitive of a function that is linear in its last operands, with a transpose of its own.

It is a call, which compiling replaces by its body. Its derivative is that of the body; where JAX
transposes it, the given function says what comes of that, and may be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowering.jaxprs import Aval, ClosedJaxpr, Effect, effects_of, function_of_jaxpr, typed_jax
from lowering.ops.define import define_primitive_with_body
from lowering.ops.types import Array, Arrays

Transpose = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]
"""The first operands, and the results' cotangents -> the last operands' cotangents."""


def _effects_of_map(*_: Aval, body: ClosedJaxpr, **params: object) -> set[Effect]:
    return effects_of(body)


def _function_of_map(*, body: ClosedJaxpr, **params: object) -> Callable[..., list[Array]]:
    return function_of_jaxpr(body)


def _transpose_map(
    _: object,
    cotangents: Arrays,
    *operands: Any,
    body: ClosedJaxpr,
    num_fixed: int,
    transpose: Transpose,
) -> list[Array | None]:
    given = [typed_jax.instantiate_zeros(cotangent) for cotangent in cotangents]
    return [None] * num_fixed + list(transpose(operands[:num_fixed], given))


linear_map_p = define_primitive_with_body(
    "ipu_linear_map", _effects_of_map, _function_of_map, transpose=_transpose_map
)
