"""The options that say which IPUs a model runs on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from ipujax.poptorch.checks import check
from ipujax.poptorch.enums import ConnectionType, SyncPattern
from ipujax.poptorch.options.store import OptionsDict

_IPU = re.compile(r"IPU(\d+)")


class SystemOptions(OptionsDict):
    """Which IPUs, when a model attaches to them, and what they have free.

    Attributes:
      auto_round_num_ipus: whether a number of IPUs that is no power of two is rounded up.
      available_memory_proportion: by number of the IPU.
      connection_type: when a model attaches.
      sync_pattern: kept, and nothing more.
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
        """Whether more IPUs are taken than needed, where their number must be a power of two.

        Nothing here: virtual IPUs cost nothing, so the number is always rounded up.
        """
        self.set(auto_round_num_ipus=check.flag(auto_round_num_ipus, "autoRoundNumIPUs"))
        return self

    def setAvailableMemoryProportion(
        self, available_memory_proportion: Mapping[str, float]
    ) -> Self:
        """How much memory products and look-ups may take for a while, of each IPU.

        It changes what the machine model says, never the numbers. All IPUs have what is least on
        any.

        Args:
          available_memory_proportion: parts of the memory, from 0 to 1, by "IPU0", "IPU1", ..

        Raises:
          Error: a key or a part is none.
        """
        proportions: dict[int, float] = {}
        given = check.instance(available_memory_proportion, Mapping, "available_memory_proportion")
        for name, part in given.items():
            found = _IPU.fullmatch(name) if isinstance(name, str) else None
            if found is None:
                fix = 'write it as {"IPU0": 0.5}'
                raise check.refuse(f"available memory proportion: {name!r} is no IPU", fix)
            what = f"the available memory proportion of {name}"
            number = check.number(part, what, "give a number from 0 to 1")
            if not 0.0 <= number <= 1.0:
                raise check.refuse(f"{what} is {number}, but must be from 0 to 1")
            proportions[int(found[1])] = number
        self.set(available_memory_proportion=proportions)
        return self

    def useIpuModel(self, use_model: bool) -> Self:
        """Nothing: the IPUs are virtual either way, and have a machine model."""
        self.createOrSet(use_model=check.flag(use_model, "useIpuModel"))
        return self

    def useIpuId(self, ipu_id: int) -> Self:
        """The id of the device to attach to, as `gc-info -l` shows them."""
        self.createOrSet(ipu_id=check.integer(ipu_id, "ipu_id", at_least=0))
        return self

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:
        """Has the model be compiled only: running it is an error.

        Args:
          ipu_version: of the chip that reports are about: 1, 2, or 21 for one with 8-bit floats.
        """
        version = check.integer(ipu_version, "ipu_version")
        if version not in (1, 2, 21):
            raise check.refuse(f"ipu_version is {version}", "give 1, 2 or 21")
        self.connectionType(ConnectionType.Never)
        self.createOrSet(ipu_version=version)
        return self

    def connectionType(self, connection_type: ConnectionType) -> Self:
        """When the model attaches to its IPUs; with `Never`, running it is an error."""
        wanted = "a poptorch.ConnectionType"
        check.instance(connection_type, ConnectionType, "connection_type", wanted)
        self.set(connection_type=connection_type)
        return self

    def syncPattern(self, sync_pattern: SyncPattern) -> Self:
        """Which IPUs wait for one another; nothing here: virtual IPUs need no waiting."""
        check.instance(sync_pattern, SyncPattern, "sync_pattern", "a poptorch.SyncPattern")
        self.set(sync_pattern=sync_pattern)
        return self
