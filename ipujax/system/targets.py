"""The chips for which programs can be modelled, and how to describe another one."""

from __future__ import annotations

from ipujax.ground import Checks, TargetError
from lowering import machine

_check = Checks(TargetError, TargetError)

IPU1 = machine.IPU1
IPU2 = machine.IPU2
IPU21 = machine.IPU21
Links = machine.Links
Target = machine.Target
_check.guard(Links)
_check.guard(Target)


def names() -> tuple[str, ...]:
    """Returns the names of the chips that are described here, oldest first."""
    return tuple(machine.TARGETS)


@_check.guard
def named(name: str) -> Target:
    """Returns the chip with a name of `IPUConfig.ipu_model.version`: "ipu1", "ipu2" or "ipu21".

    Raises:
      TargetError: (a `ValueError`) an unknown name.
    """
    if not isinstance(name, str) or name not in machine.TARGETS:
        raise TargetError(
            f"there is no chip {name!r}",
            fix=f"use one of {', '.join(map(repr, names()))}, or a "
            "Target of your own: dataclasses.replace(ipu.targets.IPU2, name=...)",
        )
    return machine.TARGETS[name]


@_check.guard
def target_of(given: str | Target) -> Target:
    """Returns the chip with a name, or the chip that was given.

    Raises:
      TargetError: (a `ValueError`) something that is neither.
    """
    if isinstance(given, Target):
        return given
    return named(given)
