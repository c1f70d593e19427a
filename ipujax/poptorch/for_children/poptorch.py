"""`import poptorch` in a process that another one has started, which had called `install()`."""

from __future__ import annotations

import sys

from ipujax.poptorch.install import install

del sys.modules[__name__]  # this module, for which the import system takes what `install` finds
install()
