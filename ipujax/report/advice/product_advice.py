"""Finds large products that could be split into parts where they set the peak of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ipujax.ground import count_with_noun
from ipujax.report.advice.change import Case, Change
from lowering import machine, serialized

_DIMENSIONS = {"m": "a_columns", "k": "a_rows_b_columns", "n": "b_rows"}
"""The `serialization_dimension` that cuts each dimension of `[m, k] @ [k, n]`."""

_PARTS = (2, 8, 16, 32, 64)  # the numbers of parts to try, or the next divisors of the dimension
_MOST_LINES = 2
_LEAST_SHARE = 0.05  # of the bytes at the step that needs most


def list_product_changes(case: Case, profile: machine.Profile) -> list[Change]:
    """Returns changes that split the products that fill a tile most at the worst step.

    Args:
      case: the program.
      profile: its modelled profile, or that after other changes.
    """
    ipu, _ = profile.memory.worst
    changes: list[Change] = []
    if case.source is None:
        return changes
    for line in _lines_of_large_products(profile.liveness[ipu]):
        product = serialized.find_product_at_line(case.source.closed, line)
        if product is not None and len(changes) < _MOST_LINES:
            changes += _list_splits_of_product(product, _PARTS)
    return changes


def _lines_of_large_products(liveness: machine.Liveness) -> list[str]:
    """Returns the lines of the products that need most at the worst step, that step's own first."""
    step = liveness.worst
    least_bytes = _LEAST_SHARE * int(liveness.bytes[step]) if len(liveness.bytes) else 0
    lines = [liveness.origins[step]] if liveness.names[step : step + 1] else []
    large_tensors = (
        tensor for tensor in liveness.alive_at(step) if tensor.total_bytes >= least_bytes
    )
    lines += [tensor.origin for tensor in large_tensors if tensor.operation == "dot_general"]
    return [line for line in dict.fromkeys(lines) if line]


def _list_splits_of_product(
    product: serialized.Product, part_counts: Sequence[int]
) -> Iterator[Change]:
    """Offers to split a product along its longest dimension, which shrinks a part most.

    Offers the first number of parts; `make_stronger` offers the next ones.
    """
    dimension = max("nmk", key=product.largest.__getitem__)
    extent = product.extents[dimension]
    factor = _smallest_divisor_from(extent, part_counts[0]) if part_counts else 0
    if factor:
        yield Change(
            "serialized_matmul",
            f"make the product {product.shape} of {product.line} in "
            f"{count_with_noun(factor, 'part')}: ipu.math_ops.serialized_matmul(..., "
            f"serialization_factor={factor}, "
            f'serialization_dimension="{_DIMENSIONS[dimension]}")',
            f"serialized_matmul in {factor} parts ({_DIMENSIONS[dimension]}, {product.line})",
            _change_to_serialized_product(product.line, dimension, factor),
            line=product.line,
            make_stronger=lambda: next(
                _list_splits_of_product(product, [n for n in part_counts if n > factor]), None
            ),
        )


def _change_to_serialized_product(line: str, dimension: str, factor: int) -> Callable[[Case], Case]:
    return lambda case: case.with_function_change(
        lambda closed: serialized.serialize_products(closed, line, dimension, factor)
    )


def _smallest_divisor_from(extent: int, minimum: int) -> int:
    """Returns the smallest divisor of `extent` from `minimum` to 64 times that; 0 if none."""
    return next((n for n in range(minimum, min(extent, 64 * minimum) + 1) if extent % n == 0), 0)
