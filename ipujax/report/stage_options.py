"""The Poplar options of pipeline stages, which ride in the program."""

from __future__ import annotations

from ipujax.system.poplar_options import planner_options
from lowering import ir


def check_stage_options(program: ir.Program) -> None:
    """Checks them as those of the configuration are checked.

    Raises:
      ConfigError: (a `ValueError`) options that the planner cannot work with.
    """
    for node in ir.walk(program.body):
        if isinstance(node, ir.Task):
            stage = "the weight update" if node.spec.stage < 0 else f"stage {node.spec.stage}"
            for group, pairs in node.spec.options:
                planner_options(dict(pairs), f"{node.spec.kind} {group} of {stage}")
