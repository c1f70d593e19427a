"""The loader `poptorch.DataLoader`: torch's, with batches for all that one call of a model runs."""

from __future__ import annotations

import contextlib
import pickle
import warnings
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch.utils.data

from ipujax.ground import PyTree
from ipujax.poptorch.data import loader_batches
from ipujax.poptorch.data.accessor import AsynchronousDataAccessor
from ipujax.poptorch.data.dataset_partition import ADVICE_FOR_FEW_ROWS, Partition
from ipujax.poptorch.enums import DataLoaderMode
from ipujax.poptorch.options import Options
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger

_FORKED = r"os\.fork\(\) was called"  # how JAX begins its warning


@check.guard
class DataLoader(torch.utils.data.DataLoader[Any]):
    """A torch data loader whose batches hold all data of one call of a wrapped model.

    A combined batch has `batch_size * device_iterations * gradient_accumulation *
    replication_factor / input_group_size` elements of the data set. The loader freezes
    the options.

    Where `options.Distributed` says that there are several processes, each reads its own part of
    the data set, shuffled in the same way by `options.randomSeed`.

    Workers are started as torch does it: on Linux they are forked from a process in which JAX has
    threads, so a data set must not call JAX in a worker, unless
    `multiprocessing_context="forkserver"` is given.

    Args:
      options: the model's options.
      dataset: the data set to read; with a length, or an `IterableDataset`.
      batch_size: the batch size of one run; None for elements that are batches already.
      shuffle: whether each epoch has another order.
      num_workers: processes that read; 0 for none beside this one.
      drop_last: whether a last batch of fewer elements than a combined batch is dropped.
      persistent_workers: whether workers live from one epoch to the next; None for yes.
      auto_distributed_partitioning: False if the data set is this process's part already.
      mode: whether batches are read ahead.
      async_options: arguments of the `AsynchronousDataAccessor` that reads ahead.
      rebatched_worker_size: the batch size of workers in the mode `AsyncRebatched`; None for a
        combined batch.
      batch_sampler: a sampler of the indices of each batch, instead of batch_size and shuffle.
      kwargs: further arguments of `torch.utils.data.DataLoader`.

    Attributes:
      rebatched_drop_last: whether rebatching drops a smaller last batch.
      has_own_sampler: whether a batch_sampler was given.

    Raises:
      Error: arguments contradict one another.
    """

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Mapping[str, object] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        **kwargs: Any,
    ):
        self._accessor = None  # first: whatever is wrong, terminate() is called in the end
        check.require_instance(options, Options, "options", "poptorch.Options")
        check.require_instance(mode, DataLoaderMode, "mode", "a poptorch.DataLoaderMode")
        if batch_size is not None:
            check.require_integer(batch_size, "batch_size", at_least=1)
        check.require_integer(num_workers, "num_workers", at_least=0)
        check.require_flag(drop_last, "drop_last")
        check.require_optional_flag(persistent_workers, "persistent_workers")
        if persistent_workers and not num_workers:
            raise check.value_error("persistent_workers needs workers", "give num_workers, too")
        persists = num_workers > 0 if persistent_workers is None else persistent_workers
        options._freeze()  # pyright: ignore[reportPrivateUsage]
        self._options = options
        self.has_own_sampler = batch_sampler is not None
        if batch_sampler is not None:
            _check_batch_sampler_arguments(
                options, batch_size, shuffle, auto_distributed_partitioning
            )
            batch_size = getattr(batch_sampler, "batch_size", batch_size)
        self._batches_per_call = _count_batches_per_call(options)
        self._combined_batch_size = (
            None if batch_size is None else batch_size * self._batches_per_call
        )
        if isinstance(dataset, torch.utils.data.IterableDataset):
            _check_iterable_dataset(options, auto_distributed_partitioning, num_workers, kwargs)
        elif options.Distributed.numProcesses > 1 and auto_distributed_partitioning:
            dataset = self._select_partition(dataset, drop_last, bool(shuffle))
            shuffle = False
        self.rebatched_drop_last = drop_last
        rebatched_size = self._find_rebatched_size(mode, drop_last)
        is_sampled = self.has_own_sampler or kwargs.get("sampler") is not None
        if not is_sampled and not isinstance(dataset, torch.utils.data.IterableDataset):
            self._warn_of_missing_rows(len(dataset), drop_last, rebatched_size)
        size = self._worker_batch_size(rebatched_size, rebatched_worker_size)
        super().__init__(
            dataset,
            batch_size=size,
            shuffle=None if self.has_own_sampler else bool(shuffle),
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            # Where batches are combined later, that step drops the smaller last batch.
            drop_last=drop_last and not rebatched_size and bool(size) and not self.has_own_sampler,
            persistent_workers=persists,
            **kwargs,
        )
        if mode != DataLoaderMode.Sync:
            self._accessor = _create_accessor(self, async_options, rebatched_size)

    def _worker_batch_size(
        self, rebatched_size: int | None, rebatched_worker_size: int | None
    ) -> int | None:
        """Returns how many elements each worker puts into a batch."""
        if self.has_own_sampler:
            return 1  # torch's word for a sampler that decides
        if rebatched_size is None or rebatched_worker_size is None:
            return self._combined_batch_size
        size = check.require_integer(rebatched_worker_size, "rebatched_worker_size", at_least=1)
        if size > rebatched_size:
            raise check.value_error(
                f"rebatched_worker_size is {size}, but the combined batch size {rebatched_size}"
            )
        return size

    def _select_partition(self, dataset: object, drop_last: bool, shuffle: bool) -> Partition:
        """Returns the part of a data set that this process reads."""
        options = self._options
        if self._combined_batch_size is None:
            raise check.value_error(
                "batch_size=None not allowed when using auto_distributed_partitioning",
                "give batch_size, or auto_distributed_partitioning=False",
            )
        if shuffle and not options.exists("random_seed"):
            raise check.value_error(
                "shuffling a data set that several processes share needs the same seed in all",
                "call options.randomSeed(...) before",
            )
        process = options.Distributed.processId, options.Distributed.numProcesses
        seed = options.random_seed if shuffle else None
        step = self._combined_batch_size
        return Partition(dataset, step, process, drop_last=drop_last, seed=seed)

    def _find_rebatched_size(self, mode: DataLoaderMode, drop_last: bool) -> int | None:
        """Returns the size of batches that are combined after the workers; None if none are."""
        size = self._combined_batch_size
        if size is None or size == 1 or self.has_own_sampler:
            return None
        # Workers would each end with a smaller batch, in between.
        has_smaller_batches = mode == DataLoaderMode.Async and not drop_last
        return size if mode == DataLoaderMode.AsyncRebatched or has_smaller_batches else None

    def _warn_of_missing_rows(self, rows: int, drop_last: bool, rebatched_size: int | None) -> None:
        """Warns of a data set without a combined batch, and of a smaller last batch.

        The model is compiled for the combined batch's size, and takes no smaller ones.
        """
        size = self._combined_batch_size or 1
        if rows < size:
            logger.warning(
                "The data set has %d elements, and one call of the model takes %d (batch_size x "
                "%s): %s. To train or infer with them, %s",
                rows,
                size,
                _describe_batches_per_call(self._options),
                "drop_last=True leaves no batch" if drop_last else "their only batch is too small",
                ADVICE_FOR_FEW_ROWS,
            )
        elif rows % size and not drop_last and rebatched_size is None:
            logger.warning(
                "The number of elements in the dataset (%d) is not divisible by the number of "
                "elements processed per step (%d) and drop_last=False. The last tensor will have "
                "a batch size of %d. To avoid having to handle this special case switch to "
                "drop_last=True.",
                rows,
                size,
                rows % size,
            )

    @property
    def combinedBatchSize(self) -> int | None:
        """The number of elements that one call of a model takes; None without batch_size."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options of the loader's model, which are frozen."""
        return self._options

    def terminate(self) -> None:
        """Ends the thread that reads ahead, if there is one."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __len__(self) -> int:
        if self._accessor is None or self._accessor.rebatched_size is None:
            return super().__len__()
        rows, size = len(self.dataset), self._accessor.rebatched_size  # type: ignore[arg-type]
        return rows // size if self.rebatched_drop_last else -(-rows // size)

    def __iter__(self) -> Any:
        return (
            self._own_batches()
            if self._accessor is None
            else _iterate_and_hold_loader(self, self._accessor)
        )

    def _own_batches(self) -> Iterator[PyTree]:
        """Iterates over the batches without reading them ahead."""
        if isinstance(self.dataset, Partition):
            self.dataset.start_epoch()
        with self._explain_pickle_errors():
            elements = super().__iter__()
        if not self.has_own_sampler or self._batches_per_call == 1:
            return elements
        drop_last = self.rebatched_drop_last
        return loader_batches.combine_batches(elements, self._batches_per_call, drop_last=drop_last)

    @contextlib.contextmanager
    def _explain_pickle_errors(self) -> Generator[None]:
        """Names what cannot be pickled for workers in errors; hides JAX's warning of forks."""
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", _FORKED, RuntimeWarning)
                warnings.filterwarnings("ignore", "Got pickle error", UserWarning)  # said below
                yield
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            names = [name for name in _SENT_TO_WORKERS if not _is_picklable(getattr(self, name))]
            if not self.num_workers or not names:
                raise
            raise check.value_error(
                f"the DataLoader's {' and '.join(names)} cannot be pickled, as its workers need: "
                f"{error}",
                "define its class and functions at the top of a module (no lambda, no class in a "
                "function), use num_workers=0, or multiprocessing_context='fork'",
            ) from error


_SENT_TO_WORKERS = ("dataset", "collate_fn", "worker_init_fn")


def _is_picklable(value: object) -> bool:
    try:
        ForkingPickler.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _iterate_and_hold_loader(
    loader: DataLoader, accessor: AsynchronousDataAccessor
) -> Iterator[PyTree]:
    """Yields an accessor's elements and keeps the loader alive: nobody else may hold it."""
    yield from accessor
    del loader


def _count_batches_per_call(options: Options) -> int:
    groups = options.replication_factor // options.input_group_size
    return options.device_iterations * groups * options.Training.gradient_accumulation


def _describe_batches_per_call(options: Options) -> str:
    factors = (
        f"deviceIterations({options.device_iterations}) x "
        f"replicationFactor({options.replication_factor}) x "
        f"gradientAccumulation({options.Training.gradient_accumulation})"
    )
    group_size = options.input_group_size
    return factors + (f" / inputReplicaGrouping({group_size})" if group_size > 1 else "")


def _create_accessor(
    loader: DataLoader, async_options: Mapping[str, Any] | None, rebatched_size: int | None
) -> AsynchronousDataAccessor:
    arguments = dict(async_options or {})
    if "rebatched_size" in arguments:
        raise check.value_error(
            "async_options has rebatched_size, but a DataLoader's own batches have its size",
            "leave it out",
        )
    # In a cycle, torch's iterator would be freed after its queues, and wait for its workers.
    return AsynchronousDataAccessor(
        weakref.proxy(loader), **arguments, rebatched_size=rebatched_size
    )


def _check_batch_sampler_arguments(
    options: Options, batch_size: int | None, shuffle: bool | None, is_partitioned: bool
) -> None:
    if batch_size != 1 or shuffle:
        raise check.value_error(
            "`batch_sampler` option is mutually exclusive with batch_size, shuffle",
            "leave these out: the sampler defines the batches",
        )
    if options.Distributed.numProcesses > 1 and is_partitioned:
        raise check.value_error(
            "`batch_sampler` option is mutually exclusive with auto_distributed_partitioning=True",
            "have the sampler give this process's own indices, and "
            "auto_distributed_partitioning=False",
        )


def _check_iterable_dataset(
    options: Options, is_partitioned: bool, worker_count: int, arguments: Mapping[str, object]
) -> None:
    if options.Distributed.numProcesses > 1 and is_partitioned:
        raise check.value_error(
            "auto_distributed_partitioning not supported for IterableDataset: nobody can divide it",
            "give each process its own part, and auto_distributed_partitioning=False",
        )
    if worker_count > 1 and "worker_init_fn" not in arguments:
        logger.warning(
            "IterableDataset used with num_workers=%d but no worker_init_fn specified: as a result "
            "the DataLoader will return %d times each element in the dataset (See "
            "torch.utils.data.IterableDataset's documentation for more information)",
            worker_count,
            worker_count,
        )
