"""Combined batches: their sizes, order, parts for processes and workers, read ahead or not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from ipujax import poptorch
from ipujax.poptorch import DataLoaderMode
from ipujax.poptorch.data.loader_batches import combine_batches, rebatch

pytestmark = [
    # Machines of few cores: the tests need two workers, and torch would rather have one.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]
MODES = tuple(DataLoaderMode)


class Rows(torch.utils.data.Dataset):
    """Row i holds i, and twice as much."""

    def __init__(self, length: int):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index >= self.length:
            raise IndexError
        return torch.full((2,), float(index)), torch.tensor(2 * index)


class Stream(torch.utils.data.IterableDataset):
    """Numbers, of which each worker reads a part."""

    def __init__(self, length: int):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        each = -(-self.length // workers)
        part = range(worker * each, min(self.length, (worker + 1) * each))
        return (torch.tensor(float(index)) for index in part)


class Broken(Rows):
    """Raises at one of its rows."""

    def __init__(self, length: int, at: int):
        super().__init__(length)
        self.at = at

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            raise ArithmeticError(f"row {index} is broken")
        return super().__getitem__(index)


def for_worker(worker: int) -> None:
    """What makes `Stream` say that it divides itself."""


def options_of(iterations: int = 1, replicas: int = 1, accumulation: int = 1) -> Any:
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    return options


def numbers(batches: Any) -> list[list[int]]:
    """The first number of each row of each batch."""
    firsts = ((batch[0] if isinstance(batch, (list, tuple)) else batch) for batch in batches)
    return [batch.reshape(len(batch), -1)[:, 0].int().tolist() for batch in firsts]


def flat(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(1, 60),
    batch_size=st.integers(1, 4),
    iterations=st.integers(1, 3),
    replicas=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([1, 2]),
    accumulation=st.integers(1, 3),
    drop_last=st.booleans(),
    mode=st.sampled_from(MODES),
)
def test_batches_are_torchs_of_the_combined_size(
    length: int,
    batch_size: int,
    iterations: int,
    replicas: int,
    group: int,
    accumulation: int,
    drop_last: bool,
    mode: DataLoaderMode,
) -> None:
    options = options_of(iterations, replicas, accumulation)
    if replicas > 1:
        options.inputReplicaGrouping(group, poptorch.CommGroupType.Consecutive)
    size = batch_size * iterations * accumulation * replicas // options.input_group_size
    if mode != DataLoaderMode.Sync and drop_last and length < size:
        return  # an accessor refuses an empty data set at once
    poptorch.setLogLevel("ERR")  # smaller last batches are warned of
    loader = poptorch.DataLoader(
        options, Rows(length), batch_size=batch_size, drop_last=drop_last, mode=mode
    )
    poptorch.setLogLevel("WARN")
    plain = torch.utils.data.DataLoader(Rows(length), batch_size=size, drop_last=drop_last)
    assert loader.combinedBatchSize == size
    assert len(loader) == len(plain)
    for _ in range(2):
        read = list(loader)
        assert len(read) == len(plain)
        for ours, theirs in zip(read, plain, strict=True):
            assert all(map(torch.equal, ours, theirs))
    loader.terminate()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), max_size=12), size=st.integers(1, 7), drop_last=st.booleans()
)
def test_rebatching_keeps_rows_and_their_order(
    sizes: list[int], size: int, drop_last: bool
) -> None:
    rows = torch.arange(sum(sizes))
    again = list(rebatch(({"rows": part} for part in rows.split(sizes)), size, drop_last=drop_last))
    expected = [part for part in rows.split(size) if len(part) == size or not drop_last]
    assert [batch["rows"].tolist() for batch in again] == [
        part.tolist() for part in expected if len(part)
    ]


def test_combining_joins_every_tensor_of_a_structure() -> None:
    batches = [(torch.tensor([i]), {"b": torch.tensor([[2 * i]])}) for i in range(5)]
    first, second = combine_batches(batches, 2, drop_last=True)
    assert first[0].tolist() == [0, 1]
    assert second[1]["b"].tolist() == [[4], [6]]
    assert [len(batch[0]) for batch in combine_batches(batches, 2, drop_last=False)] == [2, 2, 1]


@pytest.mark.parametrize("mode", MODES)
def test_workers_keep_the_order(mode: DataLoaderMode) -> None:
    loader = poptorch.DataLoader(
        options_of(2), Rows(11), batch_size=2, num_workers=2, mode=mode, drop_last=True
    )
    for _ in range(2):
        assert numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.terminate()


@pytest.mark.exhaustive
def test_rebatching_loses_no_more_of_a_stream_than_one_rest() -> None:
    def loader(mode: DataLoaderMode, **arguments: Any) -> Any:
        return poptorch.DataLoader(
            options_of(),
            Stream(11),
            batch_size=4,
            num_workers=2,
            worker_init_fn=for_worker,
            mode=mode,
            **arguments,
        )

    assert sorted(flat(numbers(loader(DataLoaderMode.Sync)))) == [0, 1, 2, 3, 6, 7, 8, 9]
    for worker_size in (1, 3, None):
        rebatched = loader(DataLoaderMode.AsyncRebatched, rebatched_worker_size=worker_size)
        read = numbers(rebatched)
        assert len(rebatched) == 2
        assert [len(batch) for batch in read] == [4, 4]
        assert len(set(flat(read))) == 8
    whole = loader(DataLoaderMode.AsyncRebatched, drop_last=False)
    assert sorted(flat(numbers(whole))) == list(range(11))
    with pytest.raises(poptorch.Error, match="rebatched_worker_size is 5"):
        loader(DataLoaderMode.AsyncRebatched, rebatched_worker_size=5)


@pytest.mark.parametrize("mode", MODES)
def test_a_sampler_of_batches_decides(mode: DataLoaderMode) -> None:
    sampler = [[0, 3], [5, 2], [1, 4], [6, 0], [2, 2]]
    loader = poptorch.DataLoader(options_of(2), Rows(7), batch_sampler=sampler, mode=mode)
    assert numbers(loader) == [[0, 3, 5, 2], [1, 4, 6, 0]]
    for wrong in ({"batch_size": 2}, {"shuffle": True}):
        with pytest.raises(poptorch.Error, match="mutually exclusive"):
            poptorch.DataLoader(options_of(), Rows(7), batch_sampler=sampler, **wrong)


def test_without_a_batch_size_elements_are_batches() -> None:
    loader = poptorch.DataLoader(options_of(3), Stream(4), batch_size=None)
    assert [element.item() for element in loader] == [0.0, 1.0, 2.0, 3.0]
    assert loader.combinedBatchSize is None


@pytest.mark.parametrize("drop_last", [True, False])
def test_processes_read_parts_that_do_not_overlap(drop_last: bool) -> None:
    read: list[list[int]] = []
    for process in range(3):
        options = options_of(2)
        options.Distributed.configureProcessId(process, 3)
        loader = poptorch.DataLoader(options, Rows(23), batch_size=2, drop_last=drop_last)
        assert len(loader) == (1 if drop_last else 2)
        read.append(flat(numbers(loader)))
    assert flat(read) == list(range(12 if drop_last else 23))


def test_processes_shuffle_the_same_whole() -> None:
    epochs: list[list[list[int]]] = [[], []]
    for process in range(3):
        options = options_of().randomSeed(7)
        options.Distributed.configureProcessId(process, 3)
        loader = poptorch.DataLoader(
            options, Rows(24), batch_size=4, shuffle=True, num_workers=process
        )
        for epoch in epochs:
            epoch.append(flat(numbers(loader)))
    for epoch in epochs:
        assert sorted(flat(epoch)) == list(range(24))
    assert epochs[0] != epochs[1]


def test_what_processes_cannot_share_is_refused() -> None:
    def loader(dataset: Any = None, processes: int = 2, **arguments: Any) -> Any:
        options = options_of()
        options.Distributed.configureProcessId(0, processes)
        return poptorch.DataLoader(options, dataset or Rows(8), **arguments)

    with pytest.raises(poptorch.Error, match="randomSeed"):
        loader(shuffle=True)
    with pytest.raises(poptorch.Error, match="batch_size=None not allowed"):
        loader(batch_size=None)
    with pytest.raises(poptorch.Error, match="not supported for IterableDataset"):
        loader(Stream(8))
    with pytest.raises(poptorch.Error, match="less than one combined batch"):
        loader(processes=9)
    assert len(loader(auto_distributed_partitioning=False)) == 8


def test_options_are_fixed_and_shown() -> None:
    options = options_of()
    loader = poptorch.DataLoader(options, Rows(4))
    assert loader.options is options
    with pytest.raises(poptorch.Error, match="Can't modify frozen Options"):
        options.deviceIterations(2)
    with pytest.raises(poptorch.Error, match=r"poptorch\.Options"):
        poptorch.DataLoader({}, Rows(4))


@pytest.mark.parametrize("drop_last", [True, False])
def test_too_few_rows_are_warned_of(drop_last: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Neither value of drop_last gives the model a batch that it takes: none is advised."""
    options = options_of(iterations=3)
    options.Training.gradientAccumulation(2)
    loader = poptorch.DataLoader(options, Rows(23), batch_size=4, drop_last=drop_last)
    assert len(loader) == (0 if drop_last else 1)
    assert "has 23 elements, and one call of the model takes 24 (batch_size x" in caplog.text
    assert "deviceIterations(3) x replicationFactor(1) x gradientAccumulation(2)" in caplog.text
    assert "fewer deviceIterations, less gradientAccumulation or a smaller batch" in caplog.text
    assert "switch to" not in caplog.text
    caplog.clear()
    poptorch.DataLoader(options, Rows(24), batch_size=4, drop_last=drop_last)
    assert not caplog.text


def test_a_smaller_last_batch_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    poptorch.DataLoader(options_of(), Rows(7), batch_size=4, drop_last=False)
    assert "will have a batch size of 3" in caplog.text
    caplog.clear()
    poptorch.DataLoader(options_of(), Stream(7), num_workers=2)
    assert "will return 2 times each element" in caplog.text


def test_what_workers_cannot_get_is_named() -> None:
    class Local(Rows):
        pass

    loader = poptorch.DataLoader(
        options_of(), Local(4), num_workers=1, multiprocessing_context="spawn"
    )
    with pytest.raises(poptorch.Error, match=r"DataLoader's dataset cannot be pickled") as caught:
        next(iter(loader))
    assert "top of a module" in str(caught.value)


def test_an_error_of_a_worker_keeps_its_traceback_and_ends_it() -> None:
    loader = poptorch.DataLoader(
        options_of(), Broken(4, at=1), num_workers=1, mode=DataLoaderMode.Async
    )
    elements = iter(loader)
    next(elements)
    with pytest.raises(poptorch.Error, match=r"(?s)Original Traceback.*row 1 is broken") as caught:
        next(elements)
    assert isinstance(caught.value.__cause__, ArithmeticError)
    (worker,) = vars(loader)["_iterator"]._workers
    del loader, elements, caught  # no garbage collector is needed, which would end it by force
    assert worker.exitcode == 0


def test_forking_workers_warns_of_nothing() -> None:
    import jax

    jax.numpy.zeros(1).block_until_ready()  # JAX warns of forks only once it has begun
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        list(poptorch.DataLoader(options_of(), Rows(4), num_workers=1))
