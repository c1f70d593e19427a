"""PopART's operators of connectionist temporal classification, against PyTorch and all readings."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("torch", reason="the extra torch is not installed")

import torch

from ipujax.doors.graphs import Call, Node
from ipujax.doors.onnx.operators import graphcore_ctc as ctc
from ipujax.errors import FrontendError

DRAW = np.random.default_rng(0)
CALL = Call(Node("", results=("loss",)), 0, {}, None)
BOTH = Call(Node("", results=("loss", "gradient")), 0, {}, None)


def logs_of(*shape: int) -> np.ndarray:
    logits = DRAW.normal(size=shape).astype(np.float32)
    return np.asarray(jax.nn.log_softmax(logits))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("reduction", "blank"), [("Mean", 0), ("Sum", 3), ("None", 2)])
def test_loss(reduction: str, blank: int) -> None:
    logits = DRAW.normal(size=(6, 5, 4)).astype(np.float32)
    labels = np.array([c for c in range(4) if c != blank])
    targets = labels[DRAW.integers(0, 3, (5, 4))]
    targets[0, :2] = labels[0]  # the same twice
    lengths, counts = np.array([6, 5, 4, 6, 6]), np.array([3, 2, 1, 0, 4])
    tensor = torch.tensor(logits, requires_grad=True)
    expected = torch.nn.functional.ctc_loss(
        tensor.log_softmax(2), *map(torch.tensor, (targets, lengths, counts)),
        blank, reduction.lower(),
    )  # fmt: skip
    expected.sum().backward()

    def loss(logits: Any) -> tuple[Any, Any]:
        found: Any = ctc.ctc_loss(
            CALL, jax.nn.log_softmax(logits), targets, lengths, counts, reduction, blank
        )  # type: ignore
        return found.sum(), found

    gradient, found = jax.grad(loss, has_aux=True)(logits)
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-4)
    wanted: Any = tensor.grad
    np.testing.assert_allclose(gradient, wanted.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.exhaustive
def test_labels_that_do_not_fit() -> None:
    logs, targets = logs_of(3, 2, 4), np.array([[1, 1, 1], [1, 2, 3]])
    given = logs, targets, np.array([3, 3]), np.array([3, 3])
    endless: Any = ctc.ctc_loss(CALL, *given, reduction="None")  # type: ignore
    assert np.isinf(endless[0])
    assert endless[1] == pytest.approx(-logs[[0, 1, 2], 1, [1, 2, 3]].sum(), rel=1e-5)
    loss, gradient = ctc.ctc_loss(BOTH, *given, reduction="None", zeroInfinity=1)  # type: ignore
    assert loss[0] == 0
    assert not gradient[:, 0].any()
    expected = np.zeros((3, 4))
    expected[[0, 1, 2], [1, 2, 3]] = -1
    np.testing.assert_allclose(gradient[:, 1], expected, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("blank", [0, 2])
def test_a_wide_search_finds_the_likeliest_of_all_readings(blank: int) -> None:
    logs, length = logs_of(5, 2, 3), [5, 3]
    probabilities, counts, labels = ctc.ctc_beam_search_decoder(
        logs, np.array(length, np.uint32), blank, 60, 4
    )  # type: ignore
    for sample in range(2):
        total: dict[tuple[int, ...], float] = {}
        for path in itertools.product(range(3), repeat=length[sample]):
            read = tuple(c for c, _ in itertools.groupby(path) if c != blank)
            chance = np.exp(logs[range(len(path)), sample, path].sum())
            total[read] = total.get(read, 0.0) + chance
        likeliest = sorted(total.items(), key=lambda item: -item[1])[:4]
        for place, (read, chance) in enumerate(likeliest):
            assert probabilities[sample, place] == pytest.approx(np.log(chance), rel=1e-4)
            assert tuple(labels[sample, place, : counts[sample, place]]) == read


def test_more_paths_than_beams_are_refused() -> None:
    with pytest.raises(FrontendError, match="top_paths is 3"):
        ctc.ctc_beam_search_decoder(logs_of(2, 1, 3), np.array([2]), 0, 2, 3)  # type: ignore
