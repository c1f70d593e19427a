"""A module of PyTorch that is trained by PopTorch's wrapper in each process, and what it reads."""

from __future__ import annotations

import json
from typing import Any

import torch

import ipujax as ipu
import ipujax.horovod.torch as hvd
import ipujax.poptorch as poptorch
from ipujax.popdist.poptorch import Options

ROWS, WIDTH = 64, 3
index, count = ipu.popdist.getInstanceIndex(), ipu.popdist.getNumInstances()
generator = torch.Generator().manual_seed(0)
X, Y = (torch.randn(ROWS, width, generator=generator) for width in (WIDTH, 1))


class Model(torch.nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, 1)
        self.norm = torch.nn.BatchNorm1d(WIDTH) if norm else torch.nn.Identity()

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        out = self.linear(self.norm(x))
        if y is None:
            return out
        return out, poptorch.identity_loss(((out - y) ** 2).mean(), reduction="mean")


def trained(mode: poptorch.DataLoaderMode) -> dict[str, Any]:
    """Weights before and after, and the rows and losses of each call."""
    torch.manual_seed(index)
    model = Model()  # other weights in each process
    options = poptorch.Options().randomSeed(index).deviceIterations(2)
    options.Training.gradientAccumulation(2)
    options.outputMode(poptorch.OutputMode.All)
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (index, count)
    assert options.replication_factor == ipu.popdist.getNumLocalReplicas()
    shuffled = options.clone()
    shuffled.randomSeed(5)
    rows = torch.utils.data.TensorDataset(torch.arange(ROWS), X, Y)
    loader = poptorch.DataLoader(shuffled, rows, batch_size=2, shuffle=True, mode=mode)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    training = poptorch.trainingModel(model, options, optimizer)
    calls: list[Any] = []
    for _ in range(2):
        for numbers, x, y in loader:
            _, losses = training(x, y)
            calls.append([numbers.tolist(), losses.tolist()])
    loader.terminate()
    momenta = [each["momentum_buffer"] for each in optimizer.state_dict()["state"].values()]
    return {
        "before": flat(before),
        "after": flat(training.state_dict().values()),
        "momenta": flat(momenta),
        "calls": calls,
        "drawn": training.rng_state[1],
    }


def statistics() -> list[float]:
    """What becomes of a normalization's buffers."""
    torch.manual_seed(0)
    model = Model(norm=True)
    training = poptorch.trainingModel(model, poptorch.Options())
    local = len(X) // count
    mine = slice(index * local, (index + 1) * local)
    training(X[mine], Y[mine])
    return flat(training.state_dict().values())


def alone() -> list[float]:
    """What process 0 infers, and process 1 trains, without the other."""
    torch.manual_seed(0)
    model, options = Model(), poptorch.Options().replicationFactor(1)
    if index == 0:
        return flat([poptorch.inferenceModel(model, options)(X)])
    options.Distributed.disable()
    training = poptorch.trainingModel(model, options)
    training(X, Y)
    return flat(training.state_dict().values())


def gathered() -> dict[str, list[float]]:
    """What Horovod's functions make of tensors of the processes."""
    own, large = torch.tensor([1.0, 2.0]) * (index + 1), torch.tensor(2**40 + index)
    module = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(module.weight, 5.0 + index)
    hvd.broadcast_parameters(module.state_dict(), root_rank=1)
    mean, total = hvd.grouped_allreduce([own, own.to(torch.bfloat16)])
    return {
        "mean": flat([mean, total, hvd.allreduce(own)]),
        "sum": [
            *flat([hvd.allreduce(own, average=False)]),
            hvd.allreduce(large, op=hvd.Sum).item(),
        ],
        "rows": flat([hvd.allgather(own[None][: 1 + index].expand(1 + index, 2))]),
        "broadcast": [*flat([hvd.broadcast_(own, 1), module.weight]), hvd.rank(), hvd.size()],
    }


def refused() -> list[str]:
    said: list[str] = []
    for options, name in (
        (poptorch.Options(), "Distributed.configureProcessId"),
        (Options(), "Distributed.disable"),
    ):
        try:
            getattr(options.Distributed, name.partition(".")[2])(*[0, 3][: 2 * ("Id" in name)])
        except poptorch.Error as error:
            said.append(str(error))
    return said


def flat(tensors: Any) -> list[float]:
    return torch.cat([tensor.detach().float().flatten() for tensor in tensors]).tolist()


if __name__ == "__main__":
    told = {
        "index": index,
        "sync": trained(poptorch.DataLoaderMode.Sync),
        "ahead": trained(poptorch.DataLoaderMode.Async),
        "statistics": statistics(),
        "alone": alone(),
        "gathered": gathered(),
        "refused": refused(),
    }
    print(json.dumps(told), flush=True)
