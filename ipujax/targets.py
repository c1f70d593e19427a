"""The chips for which programs can be modelled, and how to describe another one.

    from ipujax import targets

    print(executable.report(target="ipu21"))
    small = dataclasses.replace(targets.IPU2, name="half", tiles_per_ipu=736)
    print(executable.report(target=small))

A field that no chip can have is a `TargetError`. Every number of the chips here carries its source
in `lowering/machine/target.py`.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
