"""The scope `NameScope`: names for parts of a model that are no modules."""

from __future__ import annotations

from ipujax.doors.torch import current_trace
from ipujax.poptorch.poptorch_checks import check

MARK = "name_scope"
"""The mark of operators in name scopes: the names of the scopes, outer ones first."""


@check.guard
class NameScope:
    """A scope whose name is added to its operators' names in reports, after that of their module.

    Args:
      name: the name.

    Raises:
      Error: the name is no string.
    """

    def __init__(self, name: str):
        self.name = check.require_text(name, "the name of a NameScope")

    def __enter__(self) -> None:
        push_name_scope(self.name)

    def __exit__(self, *_: object) -> None:
        pop_name_scope()


def push_name_scope(name: str) -> None:
    """Opens a name scope; programs call it as `torch.ops.poptorch.push_name_scope`."""
    if (trace := current_trace()) is not None:
        trace.mark(**{MARK: (*trace.current_marks.get(MARK, ()), name)})


def pop_name_scope() -> None:
    """Closes the innermost name scope."""
    if (trace := current_trace()) is not None:
        trace.mark(**{MARK: trace.current_marks.get(MARK, ())[:-1]})
