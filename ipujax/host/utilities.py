"""General utilities: device queries, seeds, synthetic data, event traces and data export."""

# Callers need not be type-checked: what the signatures say is checked again.
# pyright: reportUnnecessaryIsInstance=false
from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from ipujax.ground import (
    Checks,
    ConfigError,
    ConfigTypeError,
    FeedError,
    IpuTraceEvent,
    IpuTraceEventType,
    OutOfRangeError,
    files,
)
from ipujax.system import SYSTEM, SyntheticDataCategory, read_poplar_flags

_check = Checks(ConfigTypeError, ConfigError)
_feeds = Checks(ConfigTypeError, FeedError)


@_feeds.guard
def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Returns how many IPUs a logical device has; one if nothing is configured.

    Args:
      ipu_device: its name, such as `/device:IPU:0`.
      device: the host's device; there is but one, and nothing depends on it.

    Raises:
      DeviceError: if there is no such device.
    """
    return SYSTEM.device(ipu_device).num_ipus


@_feeds.guard
def running_on_ipu_model() -> bool:
    """Returns whether `TF_POPLAR_FLAGS` has `--use_ipu_model`."""
    return read_poplar_flags().use_ipu_model


@_feeds.guard
def use_synthetic_data_for(synthetic_data_category: SyntheticDataCategory) -> bool:
    """Returns whether data of a category is made on the device, not sent by the host.

    `TF_POPLAR_FLAGS` says so: `--use_synthetic_data` for all categories, or
    `--synthetic_data_categories=infeed,outfeed` for some.
    """
    _check.require_instance(
        synthetic_data_category, SyntheticDataCategory, "synthetic_data_category"
    )
    return read_poplar_flags().is_synthetic(synthetic_data_category)


@_feeds.guard
def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Sets the seed of a device's random numbers, for draws without a seed and for rounding.

    Runs after it draw what they drew after it was last set to the same seed.

    Args:
      seed: where they start; any integer of 64 bits.
      device: the name of the logical device.
      cpu_device: the host's device; there is but one, and nothing depends on it.
      experimental_identical_replicas: let all replicas draw the same numbers.

    Raises:
      ConfigTypeError: (a `TypeError`) if the seed is no integer, or the switch no bool.
      ConfigError: (a `ValueError`) if the seed does not fit into 64 bits.
      DeviceError: if there is no such device.
    """
    number = _check.require_integer(seed, "the seed")
    if not -(2**63) <= number < 2**64:
        raise ConfigError(f"the seed is {number}, but must fit into 64 bits")
    _check.require_flag(experimental_identical_replicas, "experimental_identical_replicas")
    SYSTEM.set_seed(number, device, experimental_identical_replicas)


@_feeds.guard
def move_variable_initialization_to_cpu(graph: None = None) -> None:
    """Does nothing: JAX initialises parameters wherever the program does so, outside any graph.

    Kept so that programs port unchanged. To initialise on the host, call the initialiser under
    `jax.default_device`, or at least outside the function that `ipu.compile` wraps.

    Args:
      graph: must be `None`; JAX has no graphs.
    """
    if graph is not None:
        raise ConfigTypeError(
            f"move_variable_initialization_to_cpu() got a graph, {graph!r}, but JAX has none; "
            "leave the argument out"
        )


@_feeds.guard
def extract_all_events(events: Iterable[IpuTraceEvent]) -> list[IpuTraceEvent]:
    """Returns the events of a trace that `ipujax.events.record` made, as a list.

    Raises:
      ConfigTypeError: (a `TypeError`) if something among them is no event.
    """
    listed = list(_check.require_instance(events, Iterable, "events", "what events.record() gives"))
    for event in listed:
        _check.require_instance(
            event, IpuTraceEvent, "an event", "an IpuTraceEvent of events.record()"
        )
    return listed


@_feeds.guard
def extract_all_strings_from_event_trace(events: Iterable[IpuTraceEvent]) -> str:
    """Returns the data of all events of a trace as one string."""
    return "".join(event.data for event in extract_all_events(events))


@_feeds.guard
def extract_all_types_from_event_trace(events: Iterable[IpuTraceEvent]) -> list[IpuTraceEventType]:
    """Returns the type of each event of a trace."""
    return [event.type for event in extract_all_events(events)]


@_feeds.guard
def export_dataset_to_file(
    dataset_or_infeed: object,
    output_filename: str | os.PathLike[str],
    num_elements: int,
    feed_name: str = "",
    apply_options: bool = True,
) -> None:
    """Writes the first elements of a data set to files, as raw numbers.

    A file holds one array of each element, one after the other, in C order and little-endian,
    with nothing in front or between: `np.fromfile(name, dtype).reshape(num_elements, *shape)`
    reads it back. If elements have several arrays, there is a file for each, in the order of
    `jax.tree.leaves`: `data.bin` becomes `data.0.bin`, `data.1.bin` and so on.

    Args:
      dataset_or_infeed: an iterable, or zero-argument callable that gives one, of pytrees of
        arrays; or an `IPUInfeedQueue`.
      output_filename: where to write.
      num_elements: how many elements to write, at least 1.
      feed_name: not used: the format has no place for a name.
      apply_options: not used: data sets are read as they are.

    Raises:
      OutOfRangeError: if the data set ends earlier; what was there before stays.
      FeedError: (a `ValueError`) if elements differ in structure, shapes or types.
    """
    _feeds.require_path(output_filename, "output_filename")
    _feeds.require_integer(num_elements, "num_elements", 1)
    elements = _iterate_leaves(dataset_or_infeed, num_elements)
    first = next(elements, None)
    if first is None:
        raise _data_ended_error(num_elements, 0)
    signature, count = _describe_leaves(first), 0
    with contextlib.ExitStack() as stack:
        files = _open_output_files(stack, output_filename, len(first))
        for leaves in itertools.chain([first], elements):
            if _describe_leaves(leaves) != signature:
                raise FeedError(
                    f"element {count} has arrays {_describe_leaves(leaves)}, but element 0 has "
                    f"{signature}; with batches, set drop_remainder"
                )
            _write_arrays(files, leaves)
            count += 1
        if count < num_elements:
            raise _data_ended_error(num_elements, count)


@_feeds.guard
def export_inputs_to_file(
    inputs: Sequence[object],
    output_filename: str | os.PathLike[str],
    feed_dict: Mapping[object, object],
) -> None:
    """Writes a program's inputs to files, in the format of `export_dataset_to_file`.

    Args:
      inputs: which inputs to write: keys of `feed_dict`. With several, each has its own file,
        numbered in this order.
      output_filename: where to write.
      feed_dict: the inputs' values.

    Raises:
      FeedError: (a `ValueError`) if there is no input, or one has no value.
    """
    _feeds.require_path(output_filename, "output_filename")
    _feeds.require_instance(feed_dict, Mapping, "feed_dict", "a dict of the inputs' values")
    _feeds.require_sequence(inputs, "inputs", "keys of feed_dict")
    missing = [name for name in inputs if name not in feed_dict]
    if missing or not inputs:
        raise FeedError(
            f"feed_dict has no value for {missing}" if missing else "no inputs to write"
        )
    with contextlib.ExitStack() as stack:
        files = _open_output_files(stack, output_filename, len(inputs))
        _write_arrays(files, [np.asarray(feed_dict[name]) for name in inputs])


def _iterate_leaves(dataset: Any, count: int) -> Iterator[list[np.ndarray]]:
    # Late: they need JAX, and the module serves tools too.
    import jax

    from ipujax.host.elements import convert_leaf_to_array, iterate_dataset
    from ipujax.host.keys import keys_to_words

    if hasattr(dataset, "_export_elements"):
        elements = dataset._export_elements(count)
    else:
        elements = iterate_dataset(dataset)
    for element in itertools.islice(elements, count):
        yield [convert_leaf_to_array(leaf) for leaf in jax.tree.leaves(keys_to_words(element))]


def _describe_leaves(leaves: list[np.ndarray]) -> list[str]:
    return [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]


def _open_output_files(
    stack: contextlib.ExitStack, filename: str | os.PathLike[str], count: int
) -> list[BinaryIO]:
    path = pathlib.Path(filename)
    names = [path.with_suffix(f".{index}{path.suffix}") for index in range(count)]
    if count == 1:
        names = [path]
    return [stack.enter_context(files.replace_file(name)) for name in names]


def _write_arrays(files: list[BinaryIO], arrays: list[np.ndarray]) -> None:
    for file, array in zip(files, arrays, strict=True):
        file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())


def _data_ended_error(requested: int, available: int) -> OutOfRangeError:
    return OutOfRangeError(
        f"the data set ended after {available} elements, but {requested} were to be exported",
        requested=requested,
        available=available,
    )
