"""`import horovod` in a process that another one has started, which had called `install()`."""

from __future__ import annotations

import sys

from ipujax.standin.sdk import install_popdist

if __name__ == "horovod":  # as it is called by way of the folder, not of the package
    del sys.modules[__name__]  # this module, for which the import system takes what there is then
    install_popdist()
