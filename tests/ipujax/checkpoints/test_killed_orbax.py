"""Processes that are killed while orbax writes leave whole checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.harness import ROOT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no process can be killed and forked")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.complete)])
def test_checkpoints_are_whole_or_not_there(kills: int) -> None:
    pytest.importorskip("orbax.checkpoint")
    module = "tests.ipujax.checkpoints.killed_orbax"
    done = subprocess.run(
        [sys.executable, "-m", module, "--kills", str(kills)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    counts = json.loads(done.stdout)
    assert (counts["kills"], counts["halves"], counts["left"]) == (kills, 0, 0)
    assert counts["unfinished"]  # some moments were the right ones
