"""`import libpvti` where another package of the SDK stands in for the original."""

from __future__ import annotations

import sys

from ipujax.standin.sdk import install_libpvti

if __name__ == "libpvti":  # as it is called by way of the folder, not of the package
    del sys.modules[__name__]  # this module, for which the import system takes what there is then
    install_libpvti()
