"""Repeated sequences of operations, such as the layers of a model, as functions that are called."""

from __future__ import annotations

from collections.abc import Sequence

# A choice, without a source: shorter than the forward pass of a transformer's layer, and longer
# than what repeats by chance.
SHORTEST_FUNCTION = 16

_CALL = -1


def count_calls(operations: Sequence[int]) -> int:
    """Counts the calls in the code of a program, in which repeated sequences are functions.

    The code is written from the start. Where the next operations repeat at least
    `SHORTEST_FUNCTION` that the code has in one piece already, one call runs them again.

    Args:
      operations: the number of each operation, equal for equal ones, in the order of the program.
    """
    code: list[int] = []
    start_of: dict[tuple[int, ...], int] = {}  # of so many operations as a function has at least
    next_operation = 0
    while next_operation < len(operations):
        coming = operations[next_operation : next_operation + SHORTEST_FUNCTION]
        start = start_of.get(tuple(coming))
        if start is None:
            code.append(operations[next_operation])
            if len(code) >= SHORTEST_FUNCTION:
                last = tuple(code[-SHORTEST_FUNCTION:])
                start_of.setdefault(last, len(code) - SHORTEST_FUNCTION)
            next_operation += 1
        else:
            next_operation += _count_equal(code, start, operations, next_operation)
            code.append(_CALL)
    return len(code)


def _count_equal(
    code: Sequence[int], start: int, operations: Sequence[int], next_operation: int
) -> int:
    """Counts the operations that are the same from here on."""
    longest = min(len(code) - start, len(operations) - next_operation)
    return next(
        (i for i in range(longest) if code[start + i] != operations[next_operation + i]), longest
    )
