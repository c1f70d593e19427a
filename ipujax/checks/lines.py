"""The user's line: errors and reports name it, and never a line of ours; the demo is a user."""

from __future__ import annotations

import os
from pathlib import Path

from lowering import jaxpr

_PACKAGE = Path(__file__).parents[1]
jaxpr.hide_frames_of(f"{_PACKAGE}{os.sep}", but=f"{_PACKAGE / 'demo'}{os.sep}")

current_user_line = jaxpr.current_user_line
