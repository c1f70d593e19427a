"""Large products in parts, where they set the peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ipujax.report.advice.change import Case, Change
from ipujax.report.words import counted
from lowering import machine, serialized

_DIMENSIONS = {"m": "a_columns", "k": "a_rows_b_columns", "n": "b_rows"}
"""Of `serialized_matmul`, by what they cut of `[m, k] @ [k, n]`."""

_PARTS = (2, 8, 16, 32, 64)  # so many, or the next number of them that divides the dimension
_MOST_LINES = 2
_LEAST_SHARE = 0.05  # of what is there at the step that needs most


def changes(case: Case, profile: machine.Profile) -> list[Change]:
    """Products to be made in parts: those whose operands, results or work space fill a tile most.

    Args:
      case: the program.
      profile: what the model says of it, or of it after other changes.
    """
    ipu, _ = profile.memory.worst
    found: list[Change] = []
    if case.source is None:
        return found
    for line in _lines(profile.liveness[ipu]):
        product = serialized.product_at(case.source.closed, line)
        if product is not None and len(found) < _MOST_LINES:
            found += _of_line(product, _PARTS)
    return found


def _lines(liveness: machine.Liveness) -> list[str]:
    """Where products are made that need most at the worst step, that step's own first."""
    step = liveness.worst
    least = _LEAST_SHARE * int(liveness.bytes[step]) if len(liveness.bytes) else 0
    lines = [liveness.origins[step]] if liveness.names[step : step + 1] else []
    alive = (tensor for tensor in liveness.alive_at(step) if tensor.total_bytes >= least)
    lines += [tensor.origin for tensor in alive if tensor.operation == "dot_general"]
    return [line for line in dict.fromkeys(lines) if line]


def _of_line(product: serialized.Product, parts: Sequence[int]) -> Iterator[Change]:
    """Along the longest dimension: what is there for a part shrinks most with that.

    Of several numbers of parts it is the first, and behind it the others.
    """
    letter = max("nmk", key=product.largest.__getitem__)
    extent = product.extents[letter]
    factor = _divisor(extent, parts[0]) if parts else 0
    if factor:
        yield Change(
            "serialized_matmul",
            f"make the product {product.shape} of {product.line} in {counted(factor, 'part')}: "
            f"ipu.math_ops.serialized_matmul(..., serialization_factor={factor}, "
            f'serialization_dimension="{_DIMENSIONS[letter]}")',
            f"serialized_matmul in {factor} parts ({_DIMENSIONS[letter]}, {product.line})",
            _serializing(product.line, letter, factor),
            line=product.line,
            make_stronger=lambda: next(_of_line(product, [n for n in parts if n > factor]), None),
        )


def _serializing(line: str, letter: str, factor: int) -> Callable[[Case], Case]:
    return lambda case: case.traced(
        lambda closed: serialized.with_serialized(closed, line, letter, factor)
    )


def _divisor(extent: int, least: int) -> int:
    """The smallest number of equal parts that are at least so many; 0 for want of any."""
    return next((n for n in range(least, min(extent, 64 * least) + 1) if extent % n == 0), 0)
