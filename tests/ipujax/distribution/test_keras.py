"""Keras's models in several processes train as one process with all of the batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ipujax.distribution.processes import told_by

pytest.importorskip("keras", reason="the extra `keras` is not installed")

REPLICAS, BATCHES = 4, 16


@pytest.mark.exhaustive
@pytest.mark.parametrize("instances", [2, pytest.param(4, marks=pytest.mark.complete)])
def test_models_train_on_what_all_processes_feed(instances: int, tmp_path: Path) -> None:
    folders = [tmp_path / "alone", tmp_path / "together"]
    for folder in folders:
        folder.mkdir()
    (alone,), told = (
        told_by("keras_training.py", count, REPLICAS, str(folder))
        for count, folder in zip((1, instances), folders, strict=True)
    )
    for each in told:
        for name in ("history", "weights", "again"):
            check_alike(each[name], alone[name])
        assert each["epochs"] == 1  # of three: two were made already, as instance 0 has written
    local = REPLICAS // instances
    assert [each["predicted"][0] for each in told] == [local * (1 + n) for n in range(instances)]
    for refused in told[0]["refused"]:
        assert " is another data set than that of instance 0" in refused
    assert f"+{BATCHES // instances // 2} batches" in told[0]["refused"][0]
    assert len(told[-1]["refused"]) == 2
    assert not alone["refused"]
    assert {file.name for file in folders[1].iterdir()} == {"0", "0.keras", "0.csv"}


def check_alike(found: Any, expected: Any) -> None:
    """Compares histories, by their names, or lists of arrays."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = found.values(), expected.values()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
