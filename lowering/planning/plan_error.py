"""The error of a pipeline that cannot be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowering.ground import LoweringError

if TYPE_CHECKING:
    from lowering.planning.plan import Plan


class PlanError(LoweringError):
    """Costs or limits that no plan can be made with, or a plan of something else.

    Attributes:
      nearest: where no plan fits in memory, the one that lacks least; None otherwise.
      lacks: the bytes that its fullest IPU lacks; 0 otherwise.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        fix: str | None = None,
        nearest: Plan | None = None,
        lacks: float = 0,
    ):
        super().__init__(what, where=where, fix=fix)
        self.nearest, self.lacks = nearest, lacks
