"""Which chip a report is about."""

from __future__ import annotations

import dataclasses as dc

from ipujax.system.config_schema import assigned_names
from ipujax.system.options import SystemOptions
from ipujax.targets import Target, named, target_of


def chip_of(config: SystemOptions, target: str | Target | None) -> Target:
    """The chip that was asked for: a description, a name, or None for the configuration's.

    The configuration's is `ipu_model.version`; where only `device_connection.version` was
    assigned, the chip to compile for, it is that one.

    Raises:
      TargetError: (a `ValueError`) a target that does not exist.
    """
    if target is not None:
        return target_of(target)
    model, connection = config.ipu_model, config.device_connection
    version = model.version
    if connection.version and "version" not in assigned_names(model):
        version = connection.version
    chip = named(version)
    return dc.replace(chip, tiles_per_ipu=model.tiles_per_ipu) if model.tiles_per_ipu else chip
