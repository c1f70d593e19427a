"""`import tessellate_ipu` in a process that one which called `install()` has started."""

from __future__ import annotations

import sys

from ipujax.tessellate.install import install

if __name__ == "tessellate_ipu":  # as it is called by way of the folder, not of the package
    del sys.modules[__name__]  # this module, for which the import system takes what there is then
    install()
