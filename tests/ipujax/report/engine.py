"""The simulator of the playground's page, run by Node or, where there is none, by Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.browser.looking import start_chromium

Evaluate = Callable[[str], Any]

_ALL = """JSON.stringify(SETTINGS.map(settings => {
  try { return playground.simulate(settings); }
  catch (error) { if (error instanceof RangeError) return null; throw error; }
}))"""


def evaluate(script: str, expression: str) -> Any:
    """The value of an expression of JSON after a script; skips where nothing can run it."""
    if node := shutil.which("node"):
        source = f"{script}\nprocess.stdout.write({expression});"
        run = subprocess.run([node, "-"], input=source, capture_output=True, text=True, check=True)
        return json.loads(run.stdout)
    with start_chromium() as browser:
        if browser is None:
            pytest.skip("neither node nor Chromium is installed")
        tab = browser.new_page()
        return json.loads(tab.evaluate(f"() => {{ {script}\nreturn {expression}; }}"))


def simulate_all(script: str, settings: Sequence[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """What the simulator gives for each of some settings; None where it refuses."""
    return evaluate(script, _ALL.replace("SETTINGS", json.dumps(settings)))
