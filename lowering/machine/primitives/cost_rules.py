"""The cost rules of all primitives, and the default for one that has none."""

from __future__ import annotations

import functools

from lowering.ground import import_modules_beside
from lowering.machine.cost import Cost, Operation
from lowering.machine.primitives import elementwise_cost
from lowering.machine.primitives.rule_helpers import Rule, merge_rule_tables
from lowering.machine.target import Target

RULES: dict[str, Rule] = merge_rule_tables(
    *(getattr(module, "RULES", {}) for module in import_modules_beside(__name__))
)
"""The rules by the names of the primitives: those of every module here that has a table `RULES`."""


@functools.lru_cache(maxsize=65536)
def cost_of_operation(op: Operation, target: Target) -> Cost:
    """Returns the cost of an operation on one IPU.

    A primitive without a rule is taken for an elementwise one of ten cycles per element over the
    largest array that it reads or writes; its source is "default".

    Args:
      op: the operation.
      target: the chip.

    Returns:
      Its cost; `operands` and `results` are empty where any layout is right.
    """
    return RULES.get(op.name, elementwise_cost.elementwise_cost)(op, target)
