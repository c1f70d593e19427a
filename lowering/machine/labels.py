"""The names that people use for operations: `conv 3x3 16 -> 32`, `matmul 64 x 1024`, `norm`.

Products are named by their extents. Other operations inside a well-known function are named as
that function is, in its backward pass too; all others have a plain word, or a primitive's name in
words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from lowering.ground import word_of_function, word_of_primitive
from lowering.machine.cost import Operation
from lowering.machine.planner.multi_convolution import MULTI_CONV
from lowering.machine.planner.operation import product_without_number_types
from lowering.machine.primitives import ELEMENTWISE

_MOST_WORDS = 3  # of a fused chain

_MOVES = (
    (r"copy OnTileCopy|output", "copy"),
    (r".* slices", "slices of a loop"),
    (r"copy (\d+) -> (\d+)", r"copy IPU \1 -> IPU \2"),
    (r"copy (\d+) -> (\d+)/sync", r"sync of IPU \1 and IPU \2"),
    (r"host copy", "copy from or to the host"),
    (r"stream-in (.*)", r"read queue \1"),
    (r"stream-out (.*)", r"write queue \1"),
    (r"all-gather", "gather over replicas"),
    (r"pipeline transfers", "copies between stages"),
)
"""The labels by patterns of the titles of data moves."""


def label_operations(
    operations: Sequence[Operation], functions: Iterable[str] = (), scope: str = ""
) -> str:
    """Returns the name that people use for operations that run as one.

    Args:
      operations: one, or a fused chain of elementwise ones.
      functions: names of the functions that they are computed in, outermost first.
      scope: the named scopes around them, as `blocks/norm1`.
    """
    last = operations[-1]
    if last.name == MULTI_CONV:
        return f"{len(last.param('parts'))} convs side by side"
    if last.name == "dot_general":
        return _label_matmul(last)
    if last.name == "conv_general_dilated":
        return _label_convolution(last)
    if last.name in ELEMENTWISE or last.name.startswith(("reduce_", "arg", "cum")):
        names = (*functions, scope.rpartition("/")[2])
        function_label = next((label for label in map(word_of_function, names) if label), "")
        return function_label or _label_chain(operations)
    return _word_of_operation(last)


def label_of_move(title: str) -> str:
    """Returns the name that people use for a move of data with this title."""
    for pattern, text in _MOVES:
        match = re.fullmatch(pattern, title)
        if match:
            return match.expand(text)
    return title


def label_of_moved(label: str, move: str) -> str:
    """Returns the label of what a move makes of an operation's result, as `matmul, copy`."""
    return ", ".join(filter(None, (label, move)))


def _label_matmul(op: Operation) -> str:
    """Returns a label as `matmul rows x inner x columns`; a vector has no rows or columns."""
    product = product_without_number_types(op)
    rows, summed, columns = math.prod(product.field), product.in_channels, product.out_channels
    row_words, column_words = [rows] * (rows != 1), [columns] * (columns != 1)
    text = f"matmul {' x '.join(map(str, (*row_words, summed, *column_words)))}"
    if not row_words and not column_words:
        text = f"dot product {summed}"
    return text if product.groups == 1 else f"{text}, batch of {product.groups}"


def _label_convolution(op: Operation) -> str:
    """Returns a label of kernel and channels; a gradient of weights is named by its weights."""
    product = product_without_number_types(op)
    numbers: tuple[tuple[int, ...], ...] = op.param("dimension_numbers")
    _, spec, out_spec = numbers
    weights, result = op.operands[1].dims, op.first_result.dims
    groups = op.param("feature_group_count", 1)
    if product.kind == "weight_update":
        kernel, sources, results = product.field, result[out_spec[0]], result[out_spec[1]]
        groups, suffix = op.param("batch_group_count", 1), ", gradient of weights"
    else:
        kernel, suffix = tuple(weights[axis] for axis in spec[2:]), ""
        sources, results = weights[spec[1]] * groups, weights[spec[0]]
    words = "conv", "x".join(map(str, kernel)), f"{sources} -> {results}"
    grouped = f", {groups} groups" if groups > 1 else ""
    return " ".join(filter(None, words)) + grouped + suffix


def _label_chain(operations: Sequence[Operation]) -> str:
    """Returns the words of a chain, each once; casts only if there is nothing else."""
    words = list(dict.fromkeys(map(_word_of_operation, operations)))
    words = [word for word in words if word != "cast"] or words
    hidden = len(words) - _MOST_WORDS
    return (
        ", ".join(words) if hidden <= 0 else f"{', '.join(words[:_MOST_WORDS])} and {hidden} more"
    )


def _word_of_operation(op: Operation) -> str:
    return word_of_primitive(op.name, op.param("y"))
