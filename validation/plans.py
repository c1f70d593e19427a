"""`python -m validation.plans FILE.jsonl`: whether plans are as fast as experts' published cuts.

Each line of the file is a configuration, as for `validation.configurations`. Its loss is planned
for the IPUs of one replica, with the published micro-batch, and the published cut is considered: a
grouped schedule with recomputation. Both may use an IPU's memory, or what the published cut needs
by the model, if that is more. GPT-2's head is beside its embedding; what else cannot be rebuilt is
skipped, with the reason.
"""

from __future__ import annotations

import argparse
import dataclasses as dc
import functools
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import ipujax as ipu
from ipujax.planning import Considered
from lowering.machine import IPU2
from validation.configurations import configuration_of, read_micro_batch, stages_of_layers
from validation.models import vit
from validation.models.layers import cross_entropy, layer_norm
from validation.models.variables import Variables, stage_shapes, struct
from validation.row import SkipError

_MEMORY = IPU2.tiles_per_ipu * IPU2.usable_bytes_per_tile
_UNLIMITED = 1e15
_SECONDS = 30.0  # for each plan
_MOST_MICRO_BATCHES = 160
_GPT2 = {"small": (768, 12), "medium": (1024, 16), "large": (1280, 20)}
"""Widths, and heads."""
_WORDS = 50_257


@dc.dataclass(frozen=True)
class PublishedCut:
    """A loss, and how experts divided it.

    Attributes:
      stages: its parts, the last of which gives the loss.
      element: one micro-batch.
      devices: the IPU of each stage.
    """

    stages: Sequence[Callable[..., Any]]
    element: tuple[jax.ShapeDtypeStruct, ...]
    devices: Sequence[int]

    @property
    def micro_batches(self) -> int:
        """As many as the schedules of both numbers of stages can have, and not too many."""
        fewest = math.lcm(2 * len(self.stages), 2 * (max(self.devices) + 1))
        if fewest > _MOST_MICRO_BATCHES:
            fewest = 2 * len(self.stages)
        return fewest * max(1, _MOST_MICRO_BATCHES // 4 // fewest)

    def loss(self, variables: Mapping[str, Any], *values: Any) -> Any:
        """The loss of a micro-batch; the parts are named scopes."""
        for number, stage in enumerate(self.stages):
            with jax.named_scope(f"part{number}"):
                values = stage(Variables(jnp.float16, variables), *values)
            values = values if isinstance(values, tuple) else (values,)
        return values[0].astype(jnp.float32)

    def plan(self, memory: float, **choices: Any) -> tuple[ipu.planning.Plan, Considered]:
        """The plan for its IPUs, and what is considered of the published cut."""
        variables = stage_shapes([*self.stages], jnp.float16, *self.element)
        batch = [
            struct(x.dtype, self.micro_batches * x.shape[0], *x.shape[1:]) for x in self.element
        ]
        given = {
            "stages": self._cut_points(variables, batch),
            "schedule": "grouped",
            "recompute": True,
            "device_mapping": [*self.devices],
        }
        plan = ipu.plan(
            self.loss,
            variables,
            *batch,
            ipus=max(self.devices) + 1,
            micro_batches=self.micro_batches,
            memory=memory,
            budget_seconds=_SECONDS,
            consider=[given],
            **choices,
        )
        (row,) = [row for row in plan.considered if row.why.startswith("given")]
        return plan, row

    def _cut_points(self, variables: Any, batch: Sequence[Any]) -> list[int]:
        segments = ipu.planning.segments(
            self.loss, variables, *batch, micro_batches=self.micro_batches
        )
        parts = [int(re.findall(r"part(\d+)", segment.scope)[0]) for segment in segments]
        return [parts.index(number) for number in range(1, len(self.stages))]


def published_cut_of(row: Mapping[str, Any]) -> PublishedCut:
    """The cut of a row.

    Raises:
      SkipError: its loss cannot be rebuilt, or it is no pipeline.
    """
    if "gpt2" in row["model"] and "train" in row["model"]:
        return _gpt2(row)
    configuration = configuration_of(row)
    return PublishedCut(configuration.stages, configuration.element, configuration.devices)


def _gpt2(row: Mapping[str, Any]) -> PublishedCut:
    width, heads = next(sizes for word, sizes in _GPT2.items() if word in row["model"])
    length = 512 if "sl512" in row["model"] else 1024
    split, batch = row["layers_per_ipu"], int(read_micro_batch(row))

    def embed(v: Variables, tokens: Any, labels: Any) -> Any:
        return v("embedding", _WORDS, width)[tokens] + v("positions", length, width), labels

    def layer(_: int, v: Variables, x: Any, labels: Any) -> Any:
        return vit.vit_block(v, x, heads), labels

    def head(v: Variables, x: Any, labels: Any) -> Any:
        return cross_entropy(layer_norm(v / "norm", x) @ v("embedding", _WORDS, width).T, labels)

    return PublishedCut(
        [*stages_of_layers(split, embed, layer), head],
        (struct(jnp.int32, batch, length), struct(jnp.int32, batch, length)),
        [*range(len(split)), 0],
    )


@functools.cache
def _compare(text: str) -> list[str]:
    """What both take, by the model."""
    cut = published_cut_of(json.loads(text))
    _, row = cut.plan(_UNLIMITED, schedules="sequential")
    memory = max(row.fullest_bytes, float(_MEMORY))
    plan, row = cut.plan(memory)
    stages = f"{len(plan.stages)} stages on {len(plan.peak_bytes)} IPUs"
    seconds = row.seconds or math.inf
    return [
        f"{seconds * 1e3:.4g} ms",
        f"{plan.seconds * 1e3:.4g} ms",
        f"{seconds / plan.seconds:.2f} times",
        f"{plan.schedule}, {stages}{', recomputing' * plan.recompute}",
        f"{plan.gap:.1%}",
        f"{memory / 1e6:.0f} MB",
    ]


def describe(row: Mapping[str, Any]) -> list[str]:
    """A row of the table."""
    name = f"{row['source'].partition('/')[2].split('/')[-1]} {row['model']}"
    try:
        published_cut_of(row)
        return [name, *_compare(json.dumps(row))]
    except SkipError as skip:
        return [name, "skipped", str(skip)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads, plans and prints, as rows of a table."""
    parser = argparse.ArgumentParser(prog="python -m validation.plans", description=__doc__)
    parser.add_argument("file", type=Path, help="configurations, one JSON object a line")
    given = parser.parse_args(arguments)
    print(
        "| configuration | published | plan | faster | plan's | gap | memory of an IPU |",
        "|---|---|---|---|---|---|---|",
        sep="\n",
    )
    for line in given.file.read_text(encoding="utf-8").splitlines():
        print("|", " | ".join(describe(json.loads(line))), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
