"""Matrix products computed in parts, one after the other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from ipujax.ground import PyTree, check

# Which dimension each name splits, and where it is in a, in b and in the product (counted from
# the end). The names are the original's (fact math.dims_meaning).
_DIMENSIONS = {
    "a_columns": ("m", -2, None, -2),
    "a_rows_b_columns": ("k", -1, -2, None),
    "b_rows": ("n", None, -1, -1),
}
_DTYPES = ("float16", "float32", "int32")


@check.guard
def serialized_matmul(
    a: ArrayLike,
    b: ArrayLike,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Multiplies matrices in parts, one after the other (seed 001, 18.14.5).

    The program holds the code of one part, in a loop, and has the temporaries of one part at a
    time; so have its derivatives. It equals `jnp.matmul` but for rounding.

    Args:
      a: `[..., m, k]` after its transposition; float16, float32 or int32.
      b: `[..., k, n]` after its transposition, of the same dtype; dimensions in front of the
        matrices broadcast as in `jnp.matmul`.
      serialization_factor: how many parts; must divide the dimension.
      serialization_dimension: which dimension is split: `"a_columns"` m, `"a_rows_b_columns"` k
        (products of parts are added, halves in float32), `"b_rows"` n.
      transpose_a: swap the last two dimensions of `a` first.
      transpose_b: swap the last two dimensions of `b` first.
      name: a named scope for the operation.

    Returns:
      `[..., m, n]`.

    Raises:
      OperatorError: (a `ValueError`) for operands of other dtypes, ranks or shapes that do not
        fit, a factor that does not divide, and an unknown dimension.
      ConfigTypeError: (a `TypeError`) for arguments of wrong types.
    """
    matrix_a = _check_matrix(a, "a", transpose_a)
    matrix_b = _check_matrix(b, "b", transpose_b)
    _check_pair(matrix_a, matrix_b)
    if serialization_dimension not in tuple(_DIMENSIONS):
        raise check.value_error(
            f"serialized_matmul has no serialization_dimension {serialization_dimension!r}",
            f"use one of {', '.join(_DIMENSIONS)}",
        )
    letter, *_ = _DIMENSIONS[serialization_dimension]
    extent = {"m": matrix_a.shape[-2], "k": matrix_a.shape[-1], "n": matrix_b.shape[-1]}[letter]
    factor = check.require_integer(
        serialization_factor, "the serialization_factor of serialized_matmul"
    )
    if factor < 1 or extent % factor:
        raise check.value_error(
            f"the serialization_factor of serialized_matmul is {factor}, but "
            f"{serialization_dimension} splits {letter}, which is {extent}",
            f"use a divisor of {extent}",
        )
    with check.operator_scope(name):
        if factor == 1:
            return jnp.matmul(matrix_a, matrix_b)
        return _multiply_in_parts(matrix_a, matrix_b, factor, serialization_dimension)


def _multiply_in_parts(a: jax.Array, b: jax.Array, factor: int, dimension: str) -> jax.Array:
    # Parts go through the loop as its inputs and outputs: their derivatives then are parts, too.
    _, of_a, of_b, of_product = _DIMENSIONS[dimension]
    parts_a = None if of_a is None else _split_axis(a, of_a, factor)
    parts_b = None if of_b is None else _split_axis(b, of_b, factor)

    def multiply_part(total: PyTree, parts: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        part_a, part_b = parts
        product = jnp.matmul(a if part_a is None else part_a, b if part_b is None else part_b)
        return (total, product) if total is None else (total + product, None)

    if of_product is not None:
        _, products = lax.scan(multiply_part, None, (parts_a, parts_b))
        return _merge_axis(products, of_product)
    shape = (*jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    wide = jnp.float32 if a.dtype == jnp.float16 else a.dtype
    total, _ = lax.scan(multiply_part, jnp.zeros(shape, wide), (parts_a, parts_b))
    return total.astype(a.dtype)


def _split_axis(x: jax.Array, axis: int, factor: int) -> jax.Array:
    """Splits an axis, counted from the end, into parts `[factor, ...]`."""
    axis += x.ndim
    extents = *x.shape[:axis], factor, x.shape[axis] // factor, *x.shape[axis + 1 :]
    return jnp.moveaxis(x.reshape(extents), axis, 0)


def _merge_axis(parts: jax.Array, axis: int) -> jax.Array:
    """Merges the parts of an axis: the inverse of `_split_axis`."""
    axis += parts.ndim - 1
    extents = list(parts.shape[1:])
    extents[axis] *= len(parts)
    return jnp.moveaxis(parts, 0, axis).reshape(extents)


def _check_matrix(x: ArrayLike, name: str, transpose: bool) -> jax.Array:
    matrix = check.require_array(x, f"the {name} of serialized_matmul")
    if matrix.dtype.name not in _DTYPES:
        raise check.value_error(
            f"the {name} of serialized_matmul is {matrix.dtype}", f"use one of {', '.join(_DTYPES)}"
        )
    if matrix.ndim < 2:
        raise check.value_error(
            f"the {name} of serialized_matmul has shape {list(matrix.shape)}",
            "give it at least two dimensions",
        )
    swap = check.require_flag(transpose, f"the transpose_{name} of serialized_matmul")
    return jnp.swapaxes(matrix, -1, -2) if swap else matrix


def _check_pair(a: jax.Array, b: jax.Array) -> None:
    shapes = f"{list(a.shape)} and {list(b.shape)}, after transpositions,"
    if a.dtype != b.dtype:
        raise check.value_error(
            f"serialized_matmul got {a.dtype} and {b.dtype}", "cast one of them"
        )
    if a.shape[-1] != b.shape[-2]:
        raise check.value_error(
            f"the shapes {shapes} do not multiply", "a is [..., m, k] and b [..., k, n]"
        )
    try:
        jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise check.value_error(
            f"the shapes {shapes} do not fit in front of their matrices",
            "give both the same batch dimensions",
        ) from None
