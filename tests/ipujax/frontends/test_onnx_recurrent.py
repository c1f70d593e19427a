"""What recurrent layers of ONNX refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

from ipujax.doors.onnx.operators.recurrent import rnn
from ipujax.errors import FrontendError

X, W, R = np.ones((3, 2, 4), "f"), np.ones((1, 5, 4), "f"), np.ones((1, 5, 5), "f")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"hidden_size": 4}, "hidden_size is 4, which does not match weights of 5 units"),
        ({"activations": []}, r"only supports 1 activation\(s\).*is given 0"),
        ({"activations": ["Tanh"] * 2}, "is given 2"),
        ({"activation_alpha": [0.5]}, "activation_alpha is not supported by the activations Tanh"),
        ({"activations": ["Elu"], "activation_beta": [0.5]}, "activation_beta is not supported"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(FrontendError, match=message):
        rnn(X, W, R, **attributes)  # type: ignore


@pytest.mark.exhaustive
def test_attributes_that_fit() -> None:
    outputs, last = rnn(X, W, R, activations=["Elu"], activation_alpha=[0.5], hidden_size=5)  # type: ignore
    assert outputs.shape == (3, 1, 2, 5)
    np.testing.assert_array_equal(outputs[-1], last)
