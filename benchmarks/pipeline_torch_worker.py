"""One process of the pipeline in torch: `python -m benchmarks.pipeline_torch_worker RANK DIR`.

Runs under any Python with torch and NumPy; it needs neither JAX nor ipujax. `DIR` holds the weights
and the data. Each line on standard input is a command, answered by one line of JSON.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

PROCESSES = 2


class Layers(nn.Module):
    """A stage of the multi-layer perceptron."""

    def __init__(self, weights: dict[str, np.ndarray]):
        super().__init__()
        self.dense0 = _linear(weights, "dense0")
        self.dense1 = _linear(weights, "dense1")

    def forward(self, x: Any) -> Any:
        return F.relu(self.dense1(F.relu(self.dense0(x))))


class Block(nn.Module):
    """A pre-LN block of the transformer."""

    def __init__(self, weights: dict[str, np.ndarray], heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(len(weights["norm1.weight"]))
        self.qkv = _linear(weights, "qkv")
        self.out = _linear(weights, "out")
        self.norm2 = nn.LayerNorm(len(weights["norm2.weight"]))
        self.up = _linear(weights, "up")
        self.down = _linear(weights, "down")

    def forward(self, x: Any) -> Any:
        x = x + self.out(self._attention(self.qkv(self.norm1(x))))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    def _attention(self, qkv: Any) -> Any:
        sequences, length, _ = qkv.shape
        q, k, v = qkv.view(sequences, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(sequences, length, -1)


class Blocks(nn.Module):
    """A stage of the transformer: a block, and the embedding or the head where there is one."""

    def __init__(self, weights: dict[str, np.ndarray], heads: int):
        super().__init__()
        self.tokens = self.positions = self.head = None
        if "tokens.weight" in weights:
            self.tokens = nn.Embedding(*weights["tokens.weight"].shape)
            self.positions = nn.Embedding(*weights["positions.weight"].shape)
        self.block = Block(_below(weights, "block"), heads)
        if "head.weight" in weights:
            self.norm = nn.LayerNorm(len(weights["norm.weight"]))
            self.head = _linear(weights, "head")

    def forward(self, x: Any) -> Any:
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions.weight
        x = self.block(x)
        return x if self.head is None else self.head(self.norm(x))


def _linear(weights: dict[str, np.ndarray], name: str) -> nn.Linear:
    return nn.Linear(*weights[f"{name}.weight"].shape)


def _below(weights: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    dotted = f"{name}."
    return {k.removeprefix(dotted): v for k, v in weights.items() if k.startswith(dotted)}


def _half(weights: dict[str, np.ndarray], rank: int, stages: int, heads: int) -> nn.Module:
    """The consecutive stages of one process, with their weights."""
    share = stages // PROCESSES
    half = nn.Sequential()
    for number in range(rank * share, (rank + 1) * share):
        own = _below(weights, str(number))
        half.add_module(str(number), Blocks(own, heads) if heads else Layers(own))
    with torch.no_grad():
        for name, parameter in half.named_parameters():
            parameter.copy_(_layout(half, name, torch.from_numpy(weights[name])))
    return half


def _layout(half: nn.Module, name: str, weight: Any) -> Any:
    """A weight from our layout to torch's, or back: `nn.Linear` has outputs first."""
    owner, _, kind = name.rpartition(".")
    is_linear = isinstance(half.get_submodule(owner), nn.Linear)
    return weight.T if is_linear and kind == "weight" else weight


def _mean_squared_error(output: Any, target: Any) -> Any:
    return F.mse_loss(output, target)


def _cross_entropy(output: Any, target: Any) -> Any:
    return F.cross_entropy(output.flatten(0, 1), target.flatten().long())


def main(rank: int, folder: Path) -> None:
    """Steps as often as asked for; rank 0 feeds the pipeline, the last rank knows the losses."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES
    )
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    with np.load(folder / "weights.npz") as file:
        half = _half(dict(file), rank, settings["stages"], settings["heads"])
    with np.load(folder / "data.npz") as file:
        x, y = (torch.from_numpy(file[name]) for name in "xy")

    stage = PipelineStage(half, rank, PROCESSES, torch.device("cpu"))
    loss = _cross_entropy if settings["heads"] else _mean_squared_error
    count = settings["micro_batches"]
    schedule = Schedule1F1B(stage, count, loss_fn=loss, scale_grads=False)
    optimizer = torch.optim.SGD(half.parameters(), lr=settings["learning_rate"])

    for command in sys.stdin:
        losses: list[Any] = []
        if command.strip() == "step":
            optimizer.zero_grad()
            if rank == 0:
                schedule.step(x)
            else:
                schedule.step(target=y, losses=losses, return_outputs=False)
            optimizer.step()
        else:
            parameters = half.named_parameters()
            arrays = {name: _layout(half, name, p.detach()).numpy() for name, p in parameters}
            np.savez(folder / f"parameters{rank}.npz", **arrays)
        print(json.dumps([value.item() for value in losses]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
