"""`python -m validation.configurations`: what it builds of published pipelines, and prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from validation import configurations
from validation.configurations import configuration_of, describe
from validation.row import SkipError

TINY: dict[str, Any] = {
    "source": "graphcore/examples@3cc8f81f nlp/bert/pytorch/configs_pretraining.yml",
    "model": "demo_tiny_128",
    "sequence_length": 128,
    "layers_per_ipu": [0, 1, 1, 1],
    "micro_batch_size": 1,
    "replication_factor": 1,
    "matmul_proportion": 0.6,
    "optimizer_state_offchip": True,
}
BASE: dict[str, Any] = {
    "source": "graphcore/examples@3cc8f81f nlp/bert/tensorflow2/configs/pretrain_base_128.json",
    "model": "BERT h768 L12",
    "seq": 128,
    "stages": [{"emb": 1}, {"hid": 4}, {"hid": 4}, {"hid": 4}, {"heads": 1}],
    "device_mapping": [0, 1, 2, 3, 0],
    "micro_batch": 32,
    "replicas": 16,
    "amp": [0.28, 0.26, 0.27, 0.25],
}
VIT: dict[str, Any] = {
    "source": "graphcore/examples@3cc8f81f vision/vit/pytorch/configs.yml",
    "model": "b16_imagenet1k",
    "layers_per_ipu": [3, 3, 3, 3],
    "micro_batch_size": 17,
    "replication_factor": 4,
    "matmul_proportion": [0.3, 0.2, 0.3, 0.3],
    "optimizer_state_offchip": False,
}


def test_stages_have_the_proportion_of_their_ipu() -> None:
    base, image = configuration_of(BASE), configuration_of(VIT)
    assert (base.devices, base.proportions) == ([0, 1, 2, 3, 0], [0.28, 0.26, 0.27, 0.25, 0.28])
    assert (image.devices, image.proportions) == ([0, 1, 2, 3], [0.3, 0.2, 0.3, 0.3])
    assert [each.offload for each in (base, image)] == [True, False]
    assert [each.shard for each in (base, image)] == [False, True]
    assert not configuration_of({**VIT, "replication_factor": 1}).shard
    assert [shape.shape for shape in base.element] == [(32, 128), (32, 19), (32,)]
    assert image.element[0].shape == (17, 224, 224, 4)


def test_question_answering_has_its_head_behind_the_last_layer() -> None:
    squad = {**TINY, "source": TINY["source"].replace("pretraining", "squad")}
    assert configuration_of(squad).devices == [0, 1, 2, 3, 3]
    assert configuration_of(TINY).devices == [0, 1, 2, 3, 0]


def test_others_are_skipped() -> None:
    with pytest.raises(SkipError, match="are modelled"):
        configuration_of({**TINY, "source": "graphcore/examples@3cc8f81f vision/cnns/configs.yml"})


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps(TINY)}\n{json.dumps({**TINY, 'source': 'a/b', 'model': 'c'})}\n")
    assert configurations.main([str(file)]) == 0
    _, line, tiny, skipped = capsys.readouterr().out.splitlines()
    assert line == "|---|---|---|"
    assert tiny.startswith("| configs_pretraining.yml demo_tiny_128 | fits | ")
    assert len(tiny.split(",")) == 4
    assert skipped.startswith("| b c | skipped | ")


@pytest.mark.exhaustive
def test_bert_base_fits_with_its_micro_batch_and_not_with_twice_as_many() -> None:
    assert describe(BASE)[1] == "fits"
    assert describe({**BASE, "micro_batch": 64})[1] == "does not"
