"""Keras's own architectures; all of them are run by `python -m tests.keras_applications`."""

from __future__ import annotations

import dataclasses as dc
import json

import pytest

pytest.importorskip("keras")

from tests.keras_applications.__main__ import main
from tests.keras_applications.compare import Result, architectures, build, compare

# Nested models and stochastic depth, dense and residual connections, squeezes and separable layers.
SAMPLE = ["ConvNeXtTiny", "DenseNet121", "MobileNetV3Small", "ResNet50"]


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_step_gives_the_numbers_of_keras(name):
    assert (result := compare(name, build(name))).agrees, result


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("name", ["ConvNeXtTiny", "MobileNet"])
def test_a_pipeline_with_accumulation_gives_the_numbers_of_keras(name):
    assert (result := compare(name, build(name, 2), 2)).agrees, result


def result():
    return Result("VGG16", 1, 33_638_218, 23, 2.0, 2.0, 0.0, True, 4.4, 5.3)


def test_results_of_earlier_runs_are_printed(tmp_path, capsys):
    first, second = result(), dc.replace(result(), name="VGG19", ipu_loss=2.1, same_bits=False)
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(dc.asdict(each)) + "\n" for each in (first, second)))
    assert main(["VGG16", "--results", str(path)]) == 0
    assert main(["VGG16", "VGG19", "--results", str(path)]) == 1
    rows = capsys.readouterr().out.splitlines()
    assert rows[2] == "| VGG16 | 1 | 33.6 M | 23 | 0 | 0 | yes | 4.4 | 5.3 |"
    assert rows[-1] == "| VGG19 | 1 | 33.6 M | 23 | 0.05 | 0 | no | 4.4 | 5.3 |"


def test_names_that_keras_does_not_have_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["VGG17"])
    assert "Keras has no VGG17" in capsys.readouterr().err
    assert len(architectures()) >= 40
