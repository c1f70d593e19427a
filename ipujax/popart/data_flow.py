"""The tensors that a step returns, its anchors, and the number of batches of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ipujax.doors.graphs import select_results
from ipujax.popart.numbered_enum import NumberedEnum
from ipujax.popart.options import ExchangeStrategy, TileSet
from ipujax.popart.popart_checks import check

Array = np.ndarray
_NO_PERIOD = "A return period should not be supplied for this anchor return type"


class AnchorReturnTypeId(NumberedEnum):
    """The choice of which values of an anchor are returned: see `AnchorReturnType`."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


@check.guard
class AnchorReturnType:
    """The choice of which values of a tensor a step returns.

    `Final` returns the value of the last micro-batch, `All` those of all micro-batches, `EveryN`
    those of each `returnPeriod`-th one, `Sum` the sum over batches and accumulation; each for every
    replica.

    Args:
      anchorReturnTypeString: `"Final"`, `"EveryN"`, `"All"` or `"Sum"`, in any case of letters.
      returnPeriod: the period of `EveryN`; may be left out, with a `TileSet` in its position.
      tileSet: the tiles that send the values; changes nothing here, as no tiles are set apart.
      exchangeStrategy: when the values are sent; changes nothing here.

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
        name = check.require_text(anchorReturnTypeString, "the return type of an anchor")
        if name.lower() not in kinds:
            raise check.value_error(
                f"Invalid anchor return type ID supplied: {name}",
                f"say one of {', '.join(kind.name for kind in AnchorReturnTypeId)}",
            )
        self._id = kinds[name.lower()]
        self._period = self._check_period(returnPeriod)
        self._tiles = check.require_instance(tileSet, TileSet, "tileSet")
        self._strategy = check.require_instance(
            exchangeStrategy, ExchangeStrategy, "exchangeStrategy"
        )

    def _check_period(self, period: int | None) -> int:
        if self._id is not AnchorReturnTypeId.EveryN:
            if period is not None:
                raise check.value_error(_NO_PERIOD, f"leave the period of {self._id.name} out")
            return 1
        if period is None:
            raise check.value_error(
                "Must specify return period with option 'EVERYN'",
                'say AnchorReturnType("EveryN", 2)',
            )
        if (number := check.require_integer(period, "the period of an anchor")) < 1:
            raise check.value_error(
                "Anchor return period must be greater than zero", "say 1 or more"
            )
        return number

    def id(self) -> AnchorReturnTypeId:
        """Returns the kind of the return type."""
        return self._id

    def rp(self) -> int:
        """Returns the period of `EveryN`.

        Raises:
          PopARTError: (a `ValueError`) another kind, which has none.
        """
        if self._id is not AnchorReturnTypeId.EveryN:
            raise check.value_error(_NO_PERIOD, "ask for id() first")
        return self._period

    def tileSet(self) -> TileSet:
        """Returns the tile set that was given."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """Returns the exchange strategy that was given."""
        return self._strategy

    def check_divides_batches(self, batches: int) -> None:
        """Checks that the return period divides the number of batches of a step.

        Raises:
          PopARTError: (a `ValueError`) a period that does not divide the batches.
        """
        if self._period > batches:
            raise check.value_error(
                "Return period must be <= to the number of batches per step",
                f"the period is {self._period}, and a step has {batches}",
            )
        if batches % self._period:
            raise check.value_error(
                "Return period must be a factor of the number of batches per step",
                f"the period is {self._period}, and a step has {batches}",
            )

    def leading_dimensions_of_result(
        self, batches: int, accumulation: int, replicas: int
    ) -> tuple[int, ...]:
        """Returns a result's dimensions before the tensor's own; those of size 1 are dropped."""
        sizes = (
            (replicas,)
            if self._returns_one_value
            else (batches // self._period, accumulation, replicas)
        )
        return tuple(size for size in sizes if size != 1)

    @property
    def _returns_one_value(self) -> bool:
        return self._id in (AnchorReturnTypeId.Final, AnchorReturnTypeId.Sum)

    def select_returned_values(self, values: Array) -> Array:
        """Selects or sums the returned values from `[batches, accumulation, replicas, ...]`."""
        batches, accumulation, *replica_shape = values.shape
        rows = values.reshape(batches * accumulation, *replica_shape)
        rows = select_results(rows, self._id.name, self._period)
        if self._returns_one_value:
            return rows[0]
        return rows.reshape(batches // self._period, accumulation, *replica_shape)


@check.guard
class DataFlow:
    """The number of batches of a step, and the anchors: tensors whose values it returns.

    Args:
      batchesPerStep: the number of weight updates, or inferences, of a step.
      anchorTensors: return types by tensor; or a list of tensors.
      anchorReturnType: the return type of all tensors of a list.
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
        self._batches = check.require_integer(batchesPerStep, "batchesPerStep", at_least=0)
        anchors = anchorIds if anchorTensors is None else anchorTensors
        if anchors is not None and not self._batches:
            raise check.value_error("'Batches per step' must be greater than zero", "say 1 or more")
        if isinstance(anchors, Mapping):
            self._anchors = dict(anchors)
        else:
            check.require_instance(
                anchorReturnType, AnchorReturnType, "anchorReturnType", optional=True
            )
            kind = anchorReturnType or AnchorReturnType("All")
            names = (
                () if anchors is None else check.require_iterable(anchors, "anchorTensors", "names")
            )
            self._anchors = {check.require_text(name, "an anchor"): kind for name in names}
        for kind in self._anchors.values():
            check.require_instance(kind, AnchorReturnType, "the return type of an anchor")
            kind.check_divides_batches(self._batches)

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        """Sets the number of batches of a step; existing sessions keep theirs.

        Raises:
          PopARTError: (a `ValueError`) fewer than one, or periods that do not divide them.
        """
        batches = check.require_integer(batchesPerStep, "batchesPerStep", at_least=1)
        for kind in self._anchors.values():
            kind.check_divides_batches(batches)
        self._batches = batches

    def batchesPerStep(self) -> int:
        """Returns the number of batches of a step."""
        return self._batches

    def anchors(self) -> list[str]:
        """Returns the names of the anchors."""
        return list(self._anchors)

    def isAnchored(self, tensor: str) -> bool:
        """Returns whether a step returns a tensor."""
        return tensor in self._anchors

    def nAnchors(self) -> int:
        """Returns the number of anchors."""
        return len(self._anchors)

    def art(self, tensor: str) -> AnchorReturnType:
        """Returns the return type of an anchor.

        Raises:
          PopARTError: (a `ValueError`) the tensor is no anchor.
        """
        if tensor not in self._anchors:
            raise check.value_error(f"{tensor!r} is no anchor", f"the anchors are {self.anchors()}")
        return self._anchors[tensor]
