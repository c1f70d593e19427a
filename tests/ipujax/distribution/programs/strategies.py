"""Collectives and strategies: what each process gets."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ipujax as ipu
from ipujax import horovod as hvd
from ipujax.horovod import ipu_horovod_strategy, ipu_multi_replica_strategy
from ipujax.ipu_multi_worker_strategy import IPUMultiWorkerStrategy, ReduceOp
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline

rank, size = hvd.rank(), hvd.size()
told: dict[str, Any] = {"index": rank}


def tell(name: str, value: Any) -> None:
    told[name] = jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), value)


def configure(ipus: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    strategy.update_ipu_config(config)
    config.configure_ipu_system()


def collectives() -> None:
    value = jnp.float32(rank)
    tell("allgather", hvd.allgather(value[None]))
    tell("uneven", hvd.allgather(np.full((rank + 1, 2), rank, np.int32)))
    tell("sum", hvd.allreduce(value, op=hvd.Sum))
    tell("mean", hvd.allreduce(value))
    tell("mean of integers", hvd.allreduce({"rank": rank}))
    tell("broadcast", hvd.broadcast(value, root_rank=0))
    tell("broadcast of last", hvd.broadcast(np.array([rank == size - 1]), size - 1))
    tell("machine", [hvd.local_rank(), hvd.local_size(), hvd.is_homogeneous()])

    @ipu.compile
    def inside(x: jax.Array) -> list[jax.Array]:
        return [hvd.allreduce(x), hvd.allreduce(x, hvd.Sum), hvd.broadcast(x, size - 1)]

    tell("inside", inside(value))
    try:
        tell("in jit", jax.jit(hvd.allreduce)(value))
    except ValueError as error:
        tell("in jit", str(error))


def basics() -> None:
    extended = strategy.extended
    tell("in sync", strategy.num_replicas_in_sync)
    tell("chief", [extended.should_checkpoint, extended.should_save_summary])
    config = strategy.update_ipu_config(ipu.config.IPUConfig())
    processes = config.experimental.multi_replica_distribution
    tell("config", [processes.process_count, processes.process_index])
    with strategy.scope():
        y = strategy.experimental_run_v2(lambda x: x * x, [np.float32(rank + 1)])
        tell("all reduce", strategy.reduce(ReduceOp.SUM, y))
        tell("all mean", strategy.reduce("mean", y))
        tell("over axis", strategy.reduce("SUM", np.ones((3, 2), np.float32), axis=0))
        inside = strategy.run(lambda x: strategy.reduce("SUM", x), [np.float32(rank + 1)])
        tell("reduce inside", inside)
    dealt = strategy.experimental_distribute_dataset(np.arange(11, dtype=np.float32))
    squares = [strategy.run(jnp.square, [x]) for x in dealt]
    tell("dealt", [strategy.reduce("SUM", square) for square in squares])


def replicas() -> None:
    strategy = ipu_multi_replica_strategy.IPUMultiReplicaStrategy()
    with strategy.scope():
        v = hvd.broadcast(np.float32(rank + 1), 0)
        tell("variable", v)
        tell("total", strategy.reduce("SUM", strategy.run(lambda x: v * x, [np.float32(2)])))
        try:
            strategy.reduce("MEAN", 1)
        except TypeError as error:
            tell("mean of int", str(error))


def trained_by_hand() -> None:
    """Fact distributed.mw_train: L = w * x, whose gradients the program adds up itself."""

    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, gradient = jax.value_and_grad(lambda w: w * x)(w)
        return w - 0.5 * hvd.allreduce(gradient, hvd.Sum), loss

    w, seen, losses = np.float32(2), [], []
    for x in range(10):
        seen.append(w)
        w, loss = strategy.experimental_run_v2(step, [w, np.float32(x)])
        losses.append(strategy.reduce("SUM", loss))
    tell("w", seen)
    tell("losses", losses)


def pipelined(strategy: Any, w0: float, optimizer: Any = None) -> Any:
    """Fact distributed.mw_pipeline."""
    data = [(np.float32(rank + 1), np.float32(1))] * 16
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    opt = optimizer or optax.sgd(0.5)

    def first(v: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return v["w0"] * x, y

    def second(v: Any, partial: jax.Array, y: jax.Array) -> jax.Array:
        return (partial + v["w1"] - y) ** 2

    @ipu.compile
    def train(v: Any) -> Any:
        return pipeline(
            [first, second],
            4,
            repeat_count=1,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(opt, loss),
            variables=v,
        )[0]

    v, seen = {"w0": np.float32(w0), "w1": np.float32(2)}, []
    for _ in range(4):
        v = strategy.experimental_run_v2(train, [v])
        seen.append([v["w0"], v["w1"]])
    return seen


strategy = IPUMultiWorkerStrategy(None)
configure(1)
collectives()
basics()
replicas()
trained_by_hand()
strategy = ipu_horovod_strategy.IPUHorovodStrategy()
configure(2)
tell("pipeline", pipelined(strategy, 1.0))
tell("pipeline of others", pipelined(strategy, 1.0 + rank))
averaged = ipu.optimizers.CrossReplicaOptimizer(optax.sgd(0.5))
tell(
    "averaged",
    pipelined(
        ipu_multi_replica_strategy.IPUMultiReplicaStrategy("/device:IPU:0", False), 1.0, averaged
    ),
)
tell(
    "local",
    pipelined(
        ipu_multi_replica_strategy.IPUMultiReplicaStrategy(add_ipu_cross_replica_reductions=False),
        1.0,
    ),
)
print(json.dumps(told), flush=True)
