"""What a session returns of its tensors, and how many batches it makes a step of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ipujax.popart.checks import check
from ipujax.popart.numbered import NumberedEnum
from ipujax.popart.options import ExchangeStrategy, TileSet

Array = np.ndarray[Any, Any]
_NO_PERIOD = "A return period should not be supplied for this anchor return type"


class AnchorReturnTypeId(NumberedEnum):
    """Which values of an anchor are returned: see `AnchorReturnType`."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


@check.guard
class AnchorReturnType:
    """Which values of a tensor a step returns.

    `Final` is that of the last micro-batch, `All` that of every one, `EveryN` those of each
    `returnPeriod`-th micro-batch, `Sum` the sum over batches and accumulation; each of every
    replica.

    Args:
      anchorReturnTypeString: `"Final"`, `"EveryN"`, `"All"` or `"Sum"`, in any case of letters.
      returnPeriod: for `EveryN`; a `TileSet` in this place is the one that follows.
      tileSet: which tiles send it; it changes nothing here, where no tiles are set apart for that.
      exchangeStrategy: when it is sent; it changes nothing here.

    Raises:
      PopARTError: (a `ValueError`) another text, or a period that is missing.
    """

    def __init__(
        self,
        anchorReturnTypeString: str,
        returnPeriod: int | TileSet | None = None,
        tileSet: TileSet | ExchangeStrategy = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ):
        if isinstance(returnPeriod, TileSet):
            strategy = tileSet if isinstance(tileSet, ExchangeStrategy) else exchangeStrategy
            returnPeriod, tileSet, exchangeStrategy = None, returnPeriod, strategy
        kinds = {kind.name.lower(): kind for kind in AnchorReturnTypeId}
        name = check.text(anchorReturnTypeString, "the return type of an anchor")
        if name.lower() not in kinds:
            raise check.refuse(
                f"Invalid anchor return type ID supplied: {name}",
                f"say one of {', '.join(kind.name for kind in AnchorReturnTypeId)}",
            )
        self._id = kinds[name.lower()]
        self._period = self._checked(returnPeriod)
        self._tiles = check.instance(tileSet, TileSet, "tileSet")
        self._strategy = check.instance(exchangeStrategy, ExchangeStrategy, "exchangeStrategy")

    def _checked(self, period: int | None) -> int:
        if self._id is not AnchorReturnTypeId.EveryN:
            if period is not None:
                raise check.refuse(_NO_PERIOD, f"leave the period of {self._id.name} out")
            return 1
        if period is None:
            raise check.refuse(
                "Must specify return period with option 'EVERYN'",
                'say AnchorReturnType("EveryN", 2)',
            )
        if (number := check.integer(period, "the period of an anchor")) < 1:
            raise check.refuse("Anchor return period must be greater than zero", "say 1 or more")
        return number

    def id(self) -> AnchorReturnTypeId:
        """The kind."""
        return self._id

    def rp(self) -> int:
        """The period of `EveryN`.

        Raises:
          PopARTError: (a `ValueError`) another kind, which has none.
        """
        if self._id is not AnchorReturnTypeId.EveryN:
            raise check.refuse(_NO_PERIOD, "ask for id() first")
        return self._period

    def tileSet(self) -> TileSet:
        """What it was given."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """What it was given."""
        return self._strategy

    def check(self, batches: int) -> None:
        """Whether a step of so many batches can have it.

        Raises:
          PopARTError: (a `ValueError`) a period that does not divide the batches.
        """
        if self._period > batches:
            raise check.refuse(
                "Return period must be <= to the number of batches per step",
                f"the period is {self._period}, and a step has {batches}",
            )
        if batches % self._period:
            raise check.refuse(
                "Return period must be a factor of the number of batches per step",
                f"the period is {self._period}, and a step has {batches}",
            )

    def lead(self, batches: int, accumulation: int, replicas: int) -> tuple[int, ...]:
        """The dimensions of a result before the tensor's own; those of 1 are left out."""
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
                batches, accumulation, *rest = values.shape
                rows = values.reshape(batches * accumulation, *rest)[
                    self._period - 1 :: self._period
                ]
                return rows.reshape(batches // self._period, accumulation, *rest)


@check.guard
class DataFlow:
    """Batches of a step, and the anchors: tensors whose values it returns.

    Args:
      batchesPerStep: weight updates, or inferences, of a step.
      anchorTensors: return types by tensor; or tensors, which all have the type that follows.
      anchorReturnType: of a list of tensors.
      anchorIds: another name of `anchorTensors`, for lists.

    Raises:
      PopARTError: (a `ValueError`) fewer than one batch, or a period that does not divide them.
    """

    def __init__(
        self,
        batchesPerStep: int = 0,
        anchorTensors: Mapping[str, AnchorReturnType] | Iterable[str] | None = None,
        anchorReturnType: AnchorReturnType | None = None,
        *,
        anchorIds: Iterable[str] | None = None,
    ):
        self._batches = check.integer(batchesPerStep, "batchesPerStep", at_least=0)
        given = anchorIds if anchorTensors is None else anchorTensors
        if given is not None and not self._batches:
            raise check.refuse("'Batches per step' must be greater than zero", "say 1 or more")
        if isinstance(given, Mapping):
            self._anchors = dict(given)
        else:
            check.instance(anchorReturnType, AnchorReturnType, "anchorReturnType", optional=True)
            kind = anchorReturnType or AnchorReturnType("All")
            names = () if given is None else check.iterable(given, "anchorTensors", "names")
            self._anchors = {check.text(name, "an anchor"): kind for name in names}
        for kind in self._anchors.values():
            check.instance(kind, AnchorReturnType, "the return type of an anchor")
            kind.check(self._batches)

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        """Says another number of batches; a session keeps the one that it was made with.

        Raises:
          PopARTError: (a `ValueError`) fewer than one, or periods that do not divide them.
        """
        batches = check.integer(batchesPerStep, "batchesPerStep", at_least=1)
        for kind in self._anchors.values():
            kind.check(batches)
        self._batches = batches

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
