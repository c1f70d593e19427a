"""What branches leave of what they read."""

from __future__ import annotations

from collections import Counter

from lowering.machine.kernels.items import Choice, values
from lowering.machine.kernels.layouts import Layouts


def handed_on(choice: Choice, layouts: Layouts) -> dict[int, int]:
    """By result, the operand that a branch gives back as it is, in memory of its own."""
    owners = Counter(map(layouts.owner, values(choice.reads)))
    old: dict[int, int] = {}
    for branch in choice.branches:
        operands = {value: i for i, value in enumerate(branch.operands)}
        for i, result in enumerate(branch.results):
            operand = None if result is None else operands.get(result)
            source = None if operand is None else choice.reads[operand]
            if operand is None or source is None or not layouts.is_whole(source):
                continue
            if owners[layouts.owner(source)] == 1 and operand not in old.values():
                old.setdefault(i, operand)
    return old
