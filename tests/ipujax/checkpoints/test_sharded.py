"""State over eight devices is saved from where it is and restored to there, shard by shard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import RunWithDevices
from tests.ipujax.checkpoints.trees import KINDS
from tests.ipujax.distribution.processes import told_by

PROGRAM = Path(__file__).parent / "sharded_trees.py"


def test_no_device_gets_more_than_its_shards(run_with_devices: RunWithDevices) -> None:
    pytest.importorskip("orbax.checkpoint")
    checks = run_with_devices(8, PROGRAM).splitlines()
    assert len(checks) == len(KINDS) * PROGRAM.read_text().count("\ndef check_")


def test_each_process_restores_the_shards_of_its_devices(tmp_path: Path) -> None:
    chief, other = told_by("global_checkpoint.py", 2, 2, str(tmp_path))
    assert "leaf `rows` lies in part on devices of other processes" in chief.pop("error")
    assert other.pop("path of half") is None
    numbers = np.arange(8.0).reshape(4, 2)
    for index, told in enumerate((chief, other)):
        assert told.pop("index") == index
        rows, columns = numbers[2 * index :][:2].tolist(), numbers[:, index : index + 1].tolist()
        assert told.pop("arrays") == {"rows": [rows], "everywhere": [numbers.tolist()]}
        assert told.pop("columns") == {"rows": [columns], "everywhere": [columns]}
        whole = [numbers.tolist()] if index == 0 else []
        assert told.pop("first") == {"rows": whole, "everywhere": whole}
        assert not told
