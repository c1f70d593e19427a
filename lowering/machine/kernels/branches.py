"""Branches that return an operand unchanged."""

from __future__ import annotations

from collections import Counter

from lowering.machine.kernels.items import Choice, without_literals
from lowering.machine.kernels.layouts import Layouts


def find_returned_operands(choice: Choice, layouts: Layouts) -> dict[int, int]:
    """Maps each result that a branch returns unchanged to the operand that it is."""
    owners = Counter(map(layouts.memory_owner, without_literals(choice.reads)))
    old: dict[int, int] = {}
    for branch in choice.branches:
        operands = {value: i for i, value in enumerate(branch.operands)}
        for i, result in enumerate(branch.results):
            operand = None if result is None else operands.get(result)
            source = None if operand is None else choice.reads[operand]
            if operand is None or source is None or not layouts.has_all_elements(source):
                continue
            if owners[layouts.memory_owner(source)] == 1 and operand not in old.values():
                old.setdefault(i, operand)
    return old
