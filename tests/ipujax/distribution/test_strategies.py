"""Horovod's functions and the strategies for several workers, with as many processes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import distributed
from ipujax import horovod as hvd
from ipujax.errors import DistributionError, DistributionNotImplementedError, DistributionTypeError
from ipujax.horovod import ipu_horovod_strategy, ipu_multi_replica_strategy
from ipujax.ipu_multi_worker_strategy import IPUMultiWorkerStrategy, ReduceOp
from ipujax.optimizers import CrossReplicaOptimizer
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.ipujax.distribution.processes import told_by

STRATEGIES = (
    IPUMultiWorkerStrategy,
    ipu_horovod_strategy.IPUHorovodStrategy,
    ipu_multi_replica_strategy.IPUMultiReplicaStrategy,
)
MANY = [
    2,
    pytest.param(3, marks=pytest.mark.exhaustive),
    *(pytest.param(count, marks=pytest.mark.complete) for count in (1, 4)),
]


def of(workers: int) -> list[dict[str, Any]]:
    """What each of so many workers tells; they run once."""
    return told_by("strategies.py", workers, workers)


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", MANY)
@pytest.mark.fact("distributed.hvd_collectives")
def test_collectives(count: int) -> None:
    ranks = np.arange(count)
    for rank, told in enumerate(of(count)):
        assert told["allgather"] == ranks.tolist()
        assert told["uneven"] == [[n, n] for n in ranks for _ in range(n + 1)]
        assert (told["sum"], told["mean"]) == (ranks.sum(), ranks.mean())
        assert told["mean of integers"] == {"rank": ranks.mean()}
        assert told["broadcast"] == 0
        assert told["broadcast of last"] == [True]
        assert told["machine"] == [rank, count, True]
        assert told["inside"] == [ranks.mean(), ranks.sum(), count - 1]
        assert count == 1 or "where it would not reach the other processes" in told["in jit"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", MANY)
@pytest.mark.fact("distributed.mw_basic")
@pytest.mark.fact("distributed.multi_replica_config")
def test_what_each_worker_is(count: int) -> None:
    for rank, told in enumerate(of(count)):
        assert told["in sync"] == count
        assert told["chief"] == [rank == 0] * 2
        assert told["config"] == [count, rank]


@pytest.mark.parametrize("count", MANY)
@pytest.mark.fact("distributed.mw_all_reduce")
def test_reduce(count: int) -> None:
    ones = np.arange(count) + 1
    for told in of(count):
        assert told["all reduce"] == (ones**2).sum()
        assert told["all mean"] == pytest.approx((ones**2).mean())
        assert told["over axis"] == [3 * count] * 2
        assert told["reduce inside"] == ones.sum()


@pytest.mark.parametrize("count", MANY)
@pytest.mark.fact("distributed.mw_dataset")
def test_data_sets_are_dealt_in_turn(count: int) -> None:
    rounds = np.arange(11 // count * count).reshape(-1, count)
    for told in of(count):
        assert told["dealt"] == (rounds**2).sum(1).tolist()
    assert of(2)[0]["dealt"][:3] == [1, 13, 41]


@pytest.mark.parametrize("count", MANY)
@pytest.mark.fact("distributed.mw_train")
def test_a_custom_loop_adds_up_gradients(count: int) -> None:
    w, seen, losses = 2.0, [], []
    for x in range(10):
        seen.append(w)
        losses.append(count * w * x)
        w -= 0.5 * count * x
    for told in of(count):
        assert (told["w"], told["losses"]) == (seen, losses)


@pytest.mark.parametrize("count", MANY)
@pytest.mark.fact("distributed.multi_replica_values")
def test_values_of_a_multi_replica_strategy(count: int) -> None:
    for told in of(count):
        assert told["variable"] == 1
        assert told["total"] == 2 * count
        assert "int32, which is not in the list of allowed values" in told["mean of int"]


def pipelined(xs: Any, scale: float) -> list[list[float]]:
    """Weights after each update of the pipeline, whose gradients are summed and scaled."""
    (w0, w1), seen = (1.0, 2.0), []
    for _ in range(4):
        errors = w0 * xs + w1 - 1
        w0, w1 = (
            w0 - 0.5 * scale * 4 * (2 * errors * xs).sum(),
            w1 - 0.5 * scale * 4 * (2 * errors).sum(),
        )
        seen.append([w0, w1])
    return seen


@pytest.mark.parametrize("count", MANY)
@pytest.mark.fact("distributed.mw_pipeline")
def test_a_pipeline_adds_up_gradients(count: int) -> None:
    xs = np.arange(count) + 1.0
    for rank, told in enumerate(of(count)):
        np.testing.assert_allclose(told["pipeline"], pipelined(xs, 1), rtol=1e-5)
        assert told["pipeline of others"] == told["pipeline"]  # from the chief's variables
        np.testing.assert_allclose(told["averaged"], pipelined(xs, 1 / count), rtol=1e-5)
        np.testing.assert_allclose(told["local"], pipelined(xs[rank : rank + 1], 1), rtol=1e-5)
    first, last = [[-31, -18], [817, 506], [-21583, -13338]], [570145, 352370]
    assert of(2)[0]["pipeline"] == [*first, last]


# --- one process ----------------------------------------------------------------------------------


def trained(strategy: Any, optimizer: Any, replicas: int) -> np.ndarray[Any, Any]:
    """What a pipeline makes of a weight in the scope of a strategy, with replicas of its own."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2 * replicas
    config.configure_ipu_system()
    data = [np.float32(n) for n in range(4 * replicas)]
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @ipu.compile
    def train(w: Any) -> Any:
        return pipeline(
            [lambda w, x: w * x, lambda w, y: y],
            4,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
            variables=w,
        )[0]

    with strategy.scope():
        return np.asarray(train(np.float32(0)))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [(IPUMultiWorkerStrategy, 28 / 2), (ipu_multi_replica_strategy.IPUMultiReplicaStrategy, 28)],
)
def test_a_worker_with_replicas(strategy: Any, expected: float) -> None:
    averaging = CrossReplicaOptimizer(optax.sgd(1.0))
    assert trained(strategy(), optax.sgd(1.0), 2) == -expected
    assert trained(strategy(), averaging, 2) == -expected


def test_a_function_is_compiled_for_each_scope() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    seen: list[Any] = []

    @ipu.compile
    def traced(x: Any) -> Any:
        from ipujax.optimizers import worker_summation as summation

        seen.append(summation.get_current_summation())
        return x

    traced(np.float32(1))
    for strategy in STRATEGIES:
        with strategy().scope():
            traced(np.float32(1))
    assert len(set(seen)) == 3  # two of them add up the same


@pytest.mark.parametrize("make", STRATEGIES)
def test_a_strategy_of_one_worker(make: Any) -> None:
    strategy = make()
    with strategy.scope() as entered:
        assert entered is strategy
        doubled = strategy.experimental_run_v2(lambda x, y: x + y, [np.float32(2)], {"y": 3})
        tree = {"sum": strategy.reduce(ReduceOp.SUM, doubled), "of": np.ones(2)}
        assert strategy.reduce("MEAN", tree)["sum"] == 5
    assert strategy.num_replicas_in_sync == 1
    assert list(strategy.experimental_distribute_dataset(lambda: iter("abc"))) == ["a", "b", "c"]
    assert strategy.update_config_proto("a session's") == "a session's"


def test_what_is_refused() -> None:
    strategy = IPUMultiWorkerStrategy()
    with pytest.raises(DistributionError, match="'SUM', 'MEAN'"):
        strategy.reduce("MAX", 1.0)
    with pytest.raises(DistributionTypeError, match="reduce of a strategy was given"):
        strategy.reduce("SUM", "text")
    with pytest.raises(DistributionTypeError, match="fn of experimental_run_v2"):
        strategy.experimental_run_v2(3)
    with pytest.raises(DistributionTypeError, match="variables_on_host"):
        ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=1)
    with pytest.raises(DistributionTypeError, match="config of update_ipu_config"):
        strategy.update_ipu_config({})
    with pytest.raises(DistributionNotImplementedError, match="Adasum reduction is not impl"):
        hvd.allreduce(1.0, op=hvd.Adasum)
    with pytest.raises(DistributionError, match="a number below 1"):
        hvd.broadcast(1.0, 1)
    with pytest.raises(DistributionError, match="give it an axis"):
        hvd.allgather(1.0)
    with pytest.raises(DistributionError, match=r"all_to_all_op\.all_gather"):
        ipu.compile(hvd.allgather)(np.ones(2))


def test_one_process_alone() -> None:
    hvd.init()
    assert (hvd.size(), hvd.rank(), hvd.local_rank(), hvd.local_size()) == (1, 0, 0, 1)
    assert hvd.is_homogeneous()
    values = {"a": np.arange(3, dtype=np.float32), "b": np.int32(3)}
    for op in (None, hvd.Average, hvd.Sum):
        assert jax.tree.map(np.array_equal, hvd.allreduce(values, op), values)["a"]
    np.testing.assert_array_equal(hvd.allgather(values["a"]), values["a"])
    assert hvd.broadcast(values, 0)["b"] == 3
    hvd.shutdown()


def test_the_strategy_under_its_later_name() -> None:
    """What it takes besides changes nothing, or is refused by name."""
    strategy = ipu.horovod.popdist_strategy.PopDistStrategy(enable_dataset_iterators=False)
    assert isinstance(strategy, ipu_multi_replica_strategy.IPUMultiReplicaStrategy)
    assert strategy.num_replicas_in_sync == 1
    with pytest.raises(NotImplementedError, match="enable_keras_extensions is not there"):
        ipu.horovod.popdist_strategy.PopDistStrategy(enable_keras_extensions=False)
    with pytest.raises(TypeError, match="enable_dataset_iterators"):
        ipu.horovod.popdist_strategy.PopDistStrategy(enable_dataset_iterators=1)  # type: ignore


def test_later_releases_names_are_the_same() -> None:
    popdist_strategy = distributed.popdist_strategy
    assert popdist_strategy.PopDistStrategy is hvd.popdist_strategy.PopDistStrategy
    horovod_strategy = distributed.ipu_horovod_strategy
    assert horovod_strategy.IPUHorovodStrategy is ipu_horovod_strategy.IPUHorovodStrategy
    names = set(distributed.__all__) - {"ipu_horovod_strategy", "popdist_strategy"}
    assert all(getattr(distributed, name) is getattr(hvd, name) for name in names)
    assert {"allreduce", "broadcast", "rank", "size"} <= names
