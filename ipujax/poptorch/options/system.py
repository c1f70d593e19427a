"""The options of which IPUs a model runs on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Self

from ipujax.poptorch.enums import ConnectionType, SyncPattern
from ipujax.poptorch.options.option_store import OptionsDict
from ipujax.poptorch.poptorch_checks import check

_IPU = re.compile(r"IPU(\d+)")

_latest_use_of_ipu_model = [False]  # what the process's options were last told


def is_ipu_model_used() -> bool:
    """Returns whether virtual IPUs stand for the IPU Model.

    That is what `useIpuModel` was last told, or the environment: `POPTORCH_IPU_MODEL=1`.
    """
    in_environment = os.environ.get("POPTORCH_IPU_MODEL", "0") not in ("", "0")
    return in_environment or _latest_use_of_ipu_model[0]


class SystemOptions(OptionsDict):
    """The options of a model's IPUs: which ones, when to attach, how much free memory.

    Attributes:
      auto_round_num_ipus: whether a number of IPUs that is no power of two is rounded up.
      available_memory_proportion: the proportions by the IPU's index.
      connection_type: when a model attaches to its IPUs.
      sync_pattern: kept, without effect.
      use_model, ipu_id, ipu_version: absent until they are set (see `exists`).
    """

    auto_round_num_ipus: bool
    available_memory_proportion: dict[int, float]
    connection_type: ConnectionType
    sync_pattern: SyncPattern
    use_model: bool
    ipu_id: int
    ipu_version: int

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Self:
        """Stores whether the number of IPUs is rounded up to a power of two; it always is.

        Nothing here depends on it: virtual IPUs cost nothing, so the number is always rounded up.
        """
        self.set(auto_round_num_ipus=check.require_flag(auto_round_num_ipus, "autoRoundNumIPUs"))
        return self

    def setAvailableMemoryProportion(
        self, available_memory_proportion: Mapping[str, float]
    ) -> Self:
        """Sets how much of each IPU's memory matmuls and look-ups may use temporarily.

        It changes what the machine model reports, never the numbers. All IPUs use the least
        proportion that is set for any.

        Args:
          available_memory_proportion: parts of the memory, from 0 to 1, by "IPU0", "IPU1", ..

        Raises:
          Error: a key names no IPU, or a part is no number from 0 to 1.
        """
        proportions: dict[int, float] = {}
        entries = check.require_instance(
            available_memory_proportion, Mapping, "available_memory_proportion"
        )
        for name, part in entries.items():
            match = _IPU.fullmatch(name) if isinstance(name, str) else None
            if match is None:
                fix = 'write it as {"IPU0": 0.5}'
                raise check.value_error(f"available memory proportion: {name!r} is no IPU", fix)
            description = f"the available memory proportion of {name}"
            number = check.require_number(part, description, "give a number from 0 to 1")
            if not 0.0 <= number <= 1.0:
                raise check.value_error(f"{description} is {number}, but must be from 0 to 1")
            proportions[int(match[1])] = number
        self.set(available_memory_proportion=proportions)
        return self

    def useIpuModel(self, use_model: bool) -> Self:
        """Sets whether virtual IPUs stand for the IPU Model, or for hardware.

        They compute alike. From here on, `ipuHardwareIsAvailable()` says what they stand for.
        """
        self.createOrSet(use_model=check.require_flag(use_model, "useIpuModel"))
        _latest_use_of_ipu_model[:] = [use_model]
        return self

    def useIpuId(self, ipu_id: int) -> Self:
        """Sets the id of the device to attach to, as `gc-info -l` shows them."""
        self.createOrSet(ipu_id=check.require_integer(ipu_id, "ipu_id", at_least=0))
        return self

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:
        """Has the model only be compiled, for a chip of some version: running it is an error.

        Args:
          ipu_version: the version of the chip in reports: 1, 2, or 21 for one with 8-bit floats.
        """
        version = check.require_integer(ipu_version, "ipu_version")
        if version not in (1, 2, 21):
            raise check.value_error(f"ipu_version is {version}", "give 1, 2 or 21")
        self.connectionType(ConnectionType.Never)
        self.createOrSet(ipu_version=version)
        return self

    def connectionType(self, connection_type: ConnectionType) -> Self:
        """Sets when the model attaches to its IPUs; with `Never`, running it is an error."""
        expected = "a poptorch.ConnectionType"
        check.require_instance(connection_type, ConnectionType, "connection_type", expected)
        self.set(connection_type=connection_type)
        return self

    def syncPattern(self, sync_pattern: SyncPattern) -> Self:
        """Stores which IPUs wait for one another; no effect: virtual IPUs need no waiting."""
        check.require_instance(sync_pattern, SyncPattern, "sync_pattern", "a poptorch.SyncPattern")
        self.set(sync_pattern=sync_pattern)
        return self
