"""The user's source line for errors and reports; hides ipujax's own frames, but for the demo."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from lowering import jaxpr

_PACKAGE = Path(__file__).parents[1]
jaxpr.hide_frames_of(f"{_PACKAGE}{os.sep}", shown_folder=f"{_PACKAGE / 'demo'}{os.sep}")
# JAX_TRACEBACK_FILTERING=off shows them all the same.
for _folder in (_PACKAGE, Path(jaxpr.__file__).parents[1]):
    jaxpr.leave_out_of_tracebacks(f"{_folder}{os.sep}")


@functools.cache
def hide_package_lines(package: Path) -> None:
    """Counts a package's source lines as not the user's, for packages that call user code."""
    jaxpr.hide_frames_of(f"{package}{os.sep}")


current_user_line = jaxpr.current_user_line
# Above a function that users call: what is raised below shows their frames, and none of ours.
api_boundary = jaxpr.api_boundary
