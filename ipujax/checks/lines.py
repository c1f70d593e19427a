"""The user's line: errors and reports name it, and never a line of ours; the demo is a user."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from lowering import jaxpr

_PACKAGE = Path(__file__).parents[1]
jaxpr.hide_frames_of(f"{_PACKAGE}{os.sep}", but=f"{_PACKAGE / 'demo'}{os.sep}")
# JAX_TRACEBACK_FILTERING=off shows them all the same.
for _folder in (_PACKAGE, Path(jaxpr.__file__).parent):
    jaxpr.leave_out_of_tracebacks(f"{_folder}{os.sep}")


@functools.cache
def hide_lines_of(package: Path) -> None:
    """Takes a package's lines, too, for none of the user's; for one that calls what users write."""
    jaxpr.hide_frames_of(f"{package}{os.sep}")


current_user_line = jaxpr.current_user_line
# Above a function that users call: what is raised below shows their frames, and none of ours.
api_boundary = jaxpr.api_boundary
