"""Stages of front ends' pipelines in several processes do what they do in one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipujax.distribution.processes import told_by

for package in ("keras", "onnx", "torch"):
    pytest.importorskip(package, reason=f"{package} is not installed")

SPREAD = ("--spread", "ipus", "--ipus-per-replica", "2")


@pytest.mark.exhaustive
def test_stages_are_in_several_processes() -> None:
    (alone,), told = (told_by("front_ends.py", n, 1, options=SPREAD) for n in (1, 2))
    for each in told:
        for name in ("poptorch", "keras", "popart"):
            processes, *values = each[name]
            assert processes == 2
            np.testing.assert_allclose(values, alone[name][1:], rtol=1e-5, atol=1e-6, err_msg=name)
