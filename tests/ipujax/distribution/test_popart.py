"""PopART's sessions in several processes do what a session with all of the replicas does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipujax.distribution.processes import told_by

pytest.importorskip("onnx", reason="PopART needs the extra `onnx`")

REPLICAS = 4


@pytest.mark.exhaustive
@pytest.mark.parametrize("instances", [2, pytest.param(4, marks=pytest.mark.complete)])
def test_sessions_train_on_what_all_processes_feed(instances: int) -> None:
    (alone,), told = (told_by("popart_sessions.py", n, REPLICAS) for n in (1, instances))
    for number, expected in enumerate(alone["trained"]):
        found = [each["trained"][number] for each in told]
        for each in found:
            np.testing.assert_allclose(each["weights"], expected["weights"], rtol=1e-5)
        losses = np.concatenate([each["losses"] for each in found], axis=1)
        np.testing.assert_allclose(losses, expected["losses"], rtol=1e-5)
    assert alone["trained"][0]["weights"] != alone["trained"][1]["weights"]
    # Of the rows 0 1, 2 3, 4 5 and 6 7, one for each replica.
    for each in told:
        assert each["summed"] == [12.0, 16.0] * (REPLICAS // instances)
        assert f"but this is instance {each['index']} of {instances}" in each["refused"]
