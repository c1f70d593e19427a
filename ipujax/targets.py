"""The chips for which programs can be modelled, and how to describe another one.

    from ipujax import targets

    print(executable.report(target="ipu21"))
    small = dataclasses.replace(targets.IPU2, name="half", tiles_per_ipu=736)
    print(executable.report(target=small))

A field that no chip can have is a `TargetError`. Every number of the chips here carries its source
in `lowering/machine/target.py`.
"""

from __future__ import annotations

from ipujax.system import targets as _targets

__all__ = [
    "IPU1",
    "IPU2",
    "IPU21",
    "Links",
    "Target",
    "named",
    "names",
    "target_of",
]


def __dir__() -> list[str]:
    return __all__


IPU1 = _targets.IPU1
IPU2 = _targets.IPU2
IPU21 = _targets.IPU21
Links = _targets.Links
Target = _targets.Target
named = _targets.named
names = _targets.names
target_of = _targets.target_of
