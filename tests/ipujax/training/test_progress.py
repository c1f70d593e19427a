"""The progress bar: tqdm's, or a line of our own."""

from __future__ import annotations

import sys

import numpy as np
import optax
import pytest

from ipujax.training import Progress, Training, progress_bar
from tests.ipujax.training.regression import batches, loss_of

ZEROS = np.zeros(3, np.float32)


def shown(capfd: pytest.CaptureFixture[str], steps: int | None) -> str:
    training = Training(loss_of, optax.sgd(0.1), accumulation=2, steps_per_loop=2)
    training.fit(training.init(ZEROS), lambda: batches(8), steps, [Progress("learning")])
    return capfd.readouterr().err.replace("\r", "\n")


def test_tqdm_counts_results(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    text = shown(capfd, 4)
    assert "learning: 100%" in text
    assert "8/8" in text
    assert ", loss " in text


def test_without_tqdm_there_is_a_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert "learning: 100% loss" in shown(capfd, 4)
    assert "learning: 8 loss" in shown(capfd, None)


def test_the_line_stays_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setenv("COLUMNS", "30")
    bar = progress_bar(2, "a title of many words")
    for note in ("a long note about it", "short"):
        bar.set_postfix_str(note)
        bar.update()
    first, second = capfd.readouterr().err.split("\r")[1:]
    assert len(first) == 29
    assert second.strip() == "a title of many words: 100% short"[:29]
