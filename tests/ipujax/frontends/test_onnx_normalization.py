"""What normalizations of ONNX refuse."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

from ipujax.doors.onnx.operators.normalization import batch_normalization
from ipujax.errors import FrontendError


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_numbers_that_are_not_of_the_channels(place: int) -> None:
    given = [np.ones((2, 3, 4), np.float32), *np.ones((4, 3), np.float32)]
    given[place] = given[place][:1]
    name = ["scale", "B", "mean", "var"][place - 1]
    with pytest.raises(FrontendError, match=rf"shape of {name} is to be \[3\].* not \[1\]"):
        batch_normalization(*given)  # type: ignore
