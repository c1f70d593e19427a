"""The options for where tensors are stored: on chip or off chip, whole or sharded over replicas."""

from __future__ import annotations

from ipujax.poptorch.options.option_store import OptionsDict
from ipujax.poptorch.poptorch_checks import check

_TILES = range(32, 193, 2)


@check.guard
class TensorLocationSettings(OptionsDict):
    """The storage settings of one kind of tensors.

    The settings are checked and kept, and nothing more: the numbers are the same wherever tensors
    are, and the machine model counts all of a wrapped model's as on the chip.
    """

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """Sets below how many elements a tensor stays on the chip."""
        number = check.require_integer(min_elements, "minElementsForOffChip", at_least=0)
        self.createOrSet(minElementsForOffChip=number)
        return self

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """Sets below how many elements each replica holds a whole tensor."""
        name = "minElementsForReplicatedTensorSharding"
        self.createOrSet(**{name: check.require_integer(min_elements, name, at_least=0)})
        return self

    def useOnChipStorage(self, use: bool | None = True) -> TensorLocationSettings:
        """Sets whether tensors stay on the chip between uses; None leaves it open."""
        if use is None:
            self.deleteIfExists("onChip")
            return self
        return self._set_flag("onChip", use, "useOnChipStorage")

    def useReplicatedTensorSharding(self, use: bool = True) -> TensorLocationSettings:
        """Sets whether each replica holds only a part of every weight or optimizer state."""
        return self._set_flag("useReplicatedTensorSharding", use)

    def useIOTilesToLoad(self, use: bool = True) -> TensorLocationSettings:
        """Stores whether I/O tiles load tensors; no effect: no tiles are set apart."""
        return self._set_flag("useIOTilesToLoad", use)

    def useIOTilesToStore(self, use: bool = True) -> TensorLocationSettings:
        """Stores whether I/O tiles store tensors; no effect: no tiles are set apart."""
        return self._set_flag("useIOTilesToStore", use)

    def _set_flag(self, name: str, use: bool, method: str = "") -> TensorLocationSettings:
        self.createOrSet(**{name: int(check.require_flag(use, method or name))})
        return self


@check.guard
class TensorLocationOptions(OptionsDict):
    """The settings of `Options.TensorLocations`: where each kind of tensors is stored.

    Attributes:
      location_activation, location_weight, location_optimizer, location_accumulator: what has been
        set of the `TensorLocationSettings`, as a dictionary; absent until then.
      numIOTiles: absent until it is set. (The method of this name hides it: read it by `toDict()`.)
    """

    location_activation: dict[str, object]
    location_weight: dict[str, object]
    location_optimizer: dict[str, object]
    location_accumulator: dict[str, object]

    def numIOTiles(self, num_tiles: int) -> TensorLocationOptions:
        """Stores the number of I/O tiles; no effect: no tiles are set apart.

        Raises:
          Error: it is odd, or not between 32 and 192.
        """
        number = check.require_integer(num_tiles, "numIOTiles")
        if number not in _TILES:
            wrong = f"numIOTiles must be an even number between 32 and 192, but is {number}"
            raise check.value_error(wrong)
        self.createOrSet(numIOTiles=number)
        return self

    def setActivationLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Sets where activations are stored between forward and backward pass."""
        return self._set_location("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Sets where weights are stored."""
        return self._set_location("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Sets where the optimizer's state is stored."""
        return self._set_location("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> TensorLocationOptions:
        """Sets where accumulated gradients are stored."""
        return self._set_location("location_accumulator", location)

    def _set_location(self, name: str, location: TensorLocationSettings) -> TensorLocationOptions:
        check.require_instance(location, TensorLocationSettings, name)
        self.createOrSet(**{name: location.toDict()})
        return self
