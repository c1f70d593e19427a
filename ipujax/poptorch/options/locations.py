"""Where tensors are kept: on the IPUs' tiles or off the chip, whole or shared out to replicas."""

from __future__ import annotations

from typing import Any

from ipujax.poptorch.checks import check
from ipujax.poptorch.options.store import OptionsDict

_TILES = range(32, 193, 2)


@check.guard
class TensorLocationSettings(OptionsDict):
    """Where one kind of tensors is kept.

    The settings are checked and kept, and nothing more: the numbers are the same wherever tensors
    are, and the machine model counts all of a wrapped model's as on the chip.
    """

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """Tensors of fewer elements stay on the chip."""
        number = check.integer(min_elements, "minElementsForOffChip", at_least=0)
        self.createOrSet(minElementsForOffChip=number)
        return self

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """Tensors of fewer elements are held whole by each replica."""
        name = "minElementsForReplicatedTensorSharding"
        self.createOrSet(**{name: check.integer(min_elements, name, at_least=0)})
        return self

    def useOnChipStorage(self, use: bool | None = True) -> TensorLocationSettings:
        """Whether tensors stay on the chip between uses; None leaves it open."""
        if use is None:
            self.deleteIfExists("onChip")
            return self
        return self._set_flag("onChip", use, "useOnChipStorage")

    def useReplicatedTensorSharding(self, use: bool = True) -> TensorLocationSettings:
        """Whether each replica holds a part of every tensor only: of weights, optimizer states."""
        return self._set_flag("useReplicatedTensorSharding", use)

    def useIOTilesToLoad(self, use: bool = True) -> TensorLocationSettings:
        """Whether tiles of their own load tensors; nothing here: no tiles are set apart."""
        return self._set_flag("useIOTilesToLoad", use)

    def useIOTilesToStore(self, use: bool = True) -> TensorLocationSettings:
        """Whether tiles of their own store tensors; nothing here: no tiles are set apart."""
        return self._set_flag("useIOTilesToStore", use)

    def _set_flag(self, name: str, use: bool, method: str = "") -> TensorLocationSettings:
        self.createOrSet(**{name: int(check.flag(use, method or name))})
        return self


@check.guard
class TensorLocationOptions(OptionsDict):
    """`Options.TensorLocations`: the places of each kind of tensors.

    Attributes:
      location_activation, location_weight, location_optimizer, location_accumulator: what has been
        set of the `TensorLocationSettings`, as a dictionary; absent until then.
      numIOTiles: absent until it is set. (The method of this name hides it: read it by `toDict()`.)
    """

    location_activation: dict[str, Any]
    location_weight: dict[str, Any]
    location_optimizer: dict[str, Any]
    location_accumulator: dict[str, Any]

    def numIOTiles(self, num_tiles: int) -> TensorLocationOptions:
        """How many tiles do nothing but copy; nothing here: no tiles are set apart.

        Raises:
          Error: it is odd, or not between 32 and 192.
        """
        number = check.integer(num_tiles, "numIOTiles")
        if number not in _TILES:
            wrong = f"numIOTiles must be an even number between 32 and 192, but is {number}"
            raise check.refuse(wrong)
        self.createOrSet(numIOTiles=number)
        return self

    def setActivationLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Where activations are kept between forward and backward pass."""
        return self._set_location("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Where weights are kept."""
        return self._set_location("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Where the optimizer's state is kept."""
        return self._set_location("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Where accumulated gradients are kept."""
        return self._set_location("location_accumulator", location)

    def _set_location(self, name: str, location: TensorLocationSettings) -> TensorLocationOptions:
        check.instance(location, TensorLocationSettings, name)
        self.createOrSet(**{name: location.toDict()})
        return self
