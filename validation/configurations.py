"""`python -m validation.configurations FILE.jsonl`: whether published pipelines fit, by the model.

Each line of the file is a configuration that was published as one that works: the layers of each
IPU, the micro-batch, the available memory proportions, what is off the chip. All of them recompute
with a checkpoint in front of every layer. Those of BERT and ViT are modelled; the others are
skipped, with the reason. What a line does not say is assumed: 384 tokens for question answering, a
seventh of a text masked, LAMB or AdamW, the optimizer's state in streaming memory. State on the
chip is divided among the replicas, as in all of the sources that have it there
(graphcore/examples@3cc8f81f: nlp/bert/pytorch/configs_squad.yml, vision/vit/pytorch/configs.yml).
All of it is in half precision; theirs had second moments in single precision, but updated each part
where it lay, and not whole states, as ours.
"""

from __future__ import annotations

import argparse
import dataclasses as dc
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ipujax.pipelining_ops import PipelineSchedule, RecomputationMode, recomputation_checkpoint
from lowering.machine import IPU2, Profile
from validation.models import bert, vit
from validation.models.layers import cross_entropy, dense, layer_norm
from validation.models.variables import Variables, stage_shapes, struct
from validation.program import predict_program, training_pipeline
from validation.row import SkipError

Stage = Callable[..., Any]
I32, HALF = jnp.int32, jnp.float16
_TINY = bert.Bert(layers=3, width=64, heads=8)  # popliner's demo_tiny_128
_IMAGES, _CLASSES = 224, 1000


@dc.dataclass(frozen=True, kw_only=True)
class Configuration:
    """How a model was divided and trained.

    Attributes:
      stages: of its pipeline.
      element: one micro-batch.
      devices: the IPU of each stage.
      proportions: the available memory proportion of each stage.
      replicas: how many there are.
      offload: whether the optimizer's state is in streaming memory.
      shard: whether the replicas divide state that is on the chip.
      optimizer: an optax transformation.
    """

    stages: Sequence[Stage]
    element: tuple[jax.ShapeDtypeStruct, ...]
    devices: Sequence[int]
    proportions: Sequence[float]
    replicas: int
    offload: bool
    shard: bool
    optimizer: Any

    def model_update(self) -> Profile:
        """Models one update of the variables on GC200s."""
        train = training_pipeline(
            self.stages,
            self.element,
            4 * len(self.stages),
            self.optimizer,
            devices=self.devices,
            proportions=self.proportions,
            pipeline_schedule=PipelineSchedule.Grouped,
            recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
            offload_weight_update_variables=self.offload,
            replicated_optimizer_state_sharding="on_tiles" if self.shard else False,
        )
        variables = stage_shapes(list(self.stages), HALF, *self.element)
        ipus = 1 << max(self.devices).bit_length()
        return predict_program(train, (variables,), IPU2, self.replicas * ipus, recompute=True)


def configuration_of(row: Mapping[str, Any]) -> Configuration:
    """The configuration of a row.

    Raises:
      SkipError: it cannot be expressed.
    """
    text = f"{row['source']} {row['model']}".lower()
    if "bert" in text and ("pretrain" in text or "squad" in text):
        return _bert(row, text)
    if "vision/vit" in text:
        return _vit(row)
    raise SkipError("only the pretraining and question answering of BERT, and ViT, are modelled")


def _bert(row: Mapping[str, Any], text: str) -> Configuration:
    squad, batch = "squad" in text, read_micro_batch(row)
    length = row.get("seq") or row.get("sequence_length") or 384
    split = row.get("layers_per_ipu") or [stage.get("hid", 0) for stage in row["stages"][:-1]]
    sizes = _TINY if "tiny" in text else bert.LARGE if "large" in text else bert.BASE
    masked = max(1, round(length * 0.15))
    sizes = dc.replace(sizes, length=length, masked=masked, layers=sum(split))
    # PyTorch's question answering has its head behind the last layer.
    devices = row.get("device_mapping") or [*range(len(split)), len(split) - 1 if squad else 0]
    labels = [struct(I32, batch), struct(I32, batch)]
    if not squad:
        labels[0] = struct(I32, batch, masked)
    loss = sizes.squad_loss if squad else sizes.pretraining_loss
    return Configuration(
        stages=[
            *stages_of_layers(split, sizes.embed, lambda _, *values: sizes.layer(*values)),
            loss,
        ],
        element=(struct(I32, batch, length), *labels),
        devices=devices,
        proportions=_proportions(row, devices),
        replicas=_replicas(row),
        offload=row.get("optimizer_state_offchip", True),
        shard=_shards_on_chip(row),
        optimizer=optax.adamw(1e-3) if squad else optax.lamb(1e-3),
    )


def _vit(row: Mapping[str, Any]) -> Configuration:
    net, split, batch = vit.VIT_BASE, row["layers_per_ipu"], read_micro_batch(row)

    def embed(v: Variables, images: Any, labels: Any) -> Any:
        return net.embed(v, images), labels

    def layer(number: int, v: Variables, x: Any, labels: Any) -> Any:
        return vit.vit_block(v, x, net.heads), labels

    *first, last = stages_of_layers(split, embed, layer)

    def last_with_loss(v: Variables, *values: Any) -> Any:
        x, labels = last(v, *values)
        return cross_entropy(dense(v / "head", layer_norm(v / "norm", x)[:, 0], _CLASSES), labels)

    devices = list(range(len(split)))
    return Configuration(
        stages=[*first, last_with_loss],
        element=(struct(HALF, batch, _IMAGES, _IMAGES, 4), struct(I32, batch)),
        devices=devices,
        proportions=_proportions(row, devices),
        replicas=_replicas(row),
        offload=row["optimizer_state_offchip"],
        shard=_shards_on_chip(row),
        optimizer=optax.adamw(1e-3),
    )


def stages_of_layers(split: Sequence[int], embed: Stage, layer: Stage) -> list[Stage]:
    """Stages of so many layers, with a checkpoint in front of each; the first embeds."""

    def part(number: int, v: Variables, *values: Any) -> Any:
        if number == 0:
            values = embed(v, *values)
        start = sum(split[:number])
        for index in range(start, start + split[number]):
            x, *others = values
            values = layer(index, v / f"layer{index}", recomputation_checkpoint(x), *others)
        return values

    return [functools.partial(part, number) for number in range(len(split))]


def _shards_on_chip(row: Mapping[str, Any]) -> bool:
    stays = not row.get("optimizer_state_offchip", True)
    return stays and _replicas(row) > 1 and bool(row.get("rts", True))


def read_micro_batch(row: Mapping[str, Any]) -> int:
    return row.get("micro_batch") or row["micro_batch_size"]


def _replicas(row: Mapping[str, Any]) -> int:
    return row.get("replicas") or row["replication_factor"]


def _proportions(row: Mapping[str, Any], devices: Sequence[int]) -> list[float]:
    """The proportion of each stage; a row has one for each IPU, or one for all."""
    given = row.get("amp") or row["matmul_proportion"]
    of_ipus = given if isinstance(given, list) else [given] * (max(devices) + 1)
    return [of_ipus[device] for device in devices]


def describe(row: Mapping[str, Any]) -> list[str]:
    """What the model says of a row: name, fits or does not, KiB of each IPU's fullest tile."""
    name = f"{row['source'].partition('/')[2].split('/')[-1]} {row['model']}"
    try:
        memory = configuration_of(row).model_update().memory
    except SkipError as skip:
        return [name, "skipped", str(skip)]
    fullest = [round(int(peak) / 1024) for peak in memory.tile_peak_bytes.max(axis=1)]
    return [name, "fits" if memory.fits else "does not", ", ".join(map(str, fullest))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads, models and prints, as rows of a table."""
    parser = argparse.ArgumentParser(
        prog="python -m validation.configurations", description=__doc__
    )
    parser.add_argument("file", type=Path, help="configurations, one JSON object a line")
    given = parser.parse_args(arguments)
    print(
        "| configuration | by the model | fullest tile of each IPU, KiB of 624 |",
        "|---|---|---|",
        sep="\n",
    )
    for line in given.file.read_text(encoding="utf-8").splitlines():
        print("|", " | ".join(describe(json.loads(line))), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
