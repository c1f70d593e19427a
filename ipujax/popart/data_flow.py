"""What a session returns of its tensors, and how many batches it makes a step of."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ipujax.popart.checks import check

Array = np.ndarray[Any, Any]


class AnchorReturnTypeId(enum.Enum):
    """Which values of an anchor are returned: see `AnchorReturnType`."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class AnchorReturnType:
    """Which values of a tensor a step returns.

    `Final` is that of the last micro-batch, `All` that of every one, `EveryN` those of each
    `returnPeriod`-th batch, `Sum` the sum over batches and accumulation; each of every replica.

    Args:
      artString: `"Final"`, `"EveryN"`, `"All"` or `"Sum"`, in any case of letters.
      returnPeriod: for `EveryN`.

    Raises:
      PopARTError: (a `ValueError`) another text, or a period that is missing.
    """

    def __init__(self, artString: str, returnPeriod: int | None = None):
        kinds = {kind.name.lower(): kind for kind in AnchorReturnTypeId}
        name = check.text(artString, "the return type of an anchor")
        self._id = kinds[check.one_of(name.lower(), tuple(kinds), "the return type of an anchor")]
        if self._id is AnchorReturnTypeId.EveryN:
            if returnPeriod is None:
                raise check.refuse("EveryN has no period", 'say AnchorReturnType("EveryN", 2)')
            returnPeriod = check.integer(returnPeriod, "the period of an anchor", at_least=1)
        elif returnPeriod is not None:
            raise check.refuse(f"{self._id.name} has no period", "leave returnPeriod out")
        self._period = returnPeriod or 1

    def id(self) -> AnchorReturnTypeId:
        """The kind."""
        return self._id

    def rp(self) -> int:
        """The period; 1 for other kinds than `EveryN`."""
        return self._period

    def lead(self, batches: int, accumulation: int, replicas: int) -> tuple[int, ...]:
        """The dimensions that a step's result has before the tensor's own; those of 1 are left out.

        Raises:
          PopARTError: (a `ValueError`) a period that does not divide the batches.
        """
        if batches % self._period:
            raise check.refuse(
                f"an anchor of each {self._period} batches, and a step has {batches}: Invalid "
                "anchor period, is not divisble by batchesPerStep",
                "give a period that divides batchesPerStep",
            )
        one = self._id in (AnchorReturnTypeId.Final, AnchorReturnTypeId.Sum)
        sizes = (replicas,) if one else (batches // self._period, accumulation, replicas)
        return tuple(size for size in sizes if size != 1)

    def reduced(self, values: Array) -> Array:
        """What is returned of `[batches, accumulation, replicas, ...]`."""
        match self._id:
            case AnchorReturnTypeId.Final:
                return values[-1, -1]
            case AnchorReturnTypeId.Sum:
                return values.sum((0, 1), dtype=values.dtype)
            case _:
                return values[self._period - 1 :: self._period]


class DataFlow:
    """Batches of a step, and the anchors: tensors whose values it returns.

    Args:
      batchesPerStep: weight updates, or inferences, of a step.
      anchorTensors: return types by tensor; or tensors, which all have the type that follows.
      art: return type of a list of tensors.

    Raises:
      PopARTError: (a `ValueError`) fewer than one batch.
    """

    def __init__(
        self,
        batchesPerStep: int = 0,
        anchorTensors: Mapping[str, AnchorReturnType] | Iterable[str] = (),
        art: AnchorReturnType | None = None,
    ):
        self._batches = check.integer(batchesPerStep, "batchesPerStep", at_least=0)
        if isinstance(anchorTensors, Mapping):
            self._anchors = dict(anchorTensors)
        else:
            art = art or AnchorReturnType("All")
            self._anchors = {check.text(name, "an anchor"): art for name in anchorTensors}
        for kind in self._anchors.values():
            check.instance(kind, AnchorReturnType, "the return type of an anchor")

    def batchesPerStep(self) -> int:
        """Batches of a step."""
        return self._batches

    def anchors(self) -> list[str]:
        """The tensors."""
        return list(self._anchors)

    def isAnchored(self, tensor: str) -> bool:
        """Whether a tensor is returned."""
        return tensor in self._anchors

    def nAnchors(self) -> int:
        """How many there are."""
        return len(self._anchors)

    def art(self, tensor: str) -> AnchorReturnType:
        """The return type of an anchor.

        Raises:
          PopARTError: (a `ValueError`) it is none.
        """
        if tensor not in self._anchors:
            raise check.refuse(f"{tensor!r} is no anchor", f"the anchors are {self.anchors()}")
        return self._anchors[tensor]
