"""General utilities."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax import config, utils
from ipujax.errors import DeviceError, FeedError, OutOfRangeError
from ipujax.events import IpuTraceEventType as Type
from ipujax.ground import events
from ipujax.system import SYSTEM
from ipujax.system.devices import DeviceSeed


@pytest.mark.fact("devices.num_ipus")
def test_number_of_ipus_of_each_device():
    cfg = config.IPUConfig()
    cfg.auto_select_ipus = [2, 4]
    utils.configure_ipu_system(cfg)
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 2
    assert utils.get_num_of_ipus_in_device("/device:IPU:1") == 4
    with pytest.raises(DeviceError):
        utils.get_num_of_ipus_in_device("/device:IPU:2")


def test_without_configuration_there_is_one_ipu():
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 1


def test_seed():
    utils.reset_ipu_seed(5, experimental_identical_replicas=True)
    assert SYSTEM.seed_of_device() == DeviceSeed(5, True)
    utils.reset_ipu_seed(cast(int, np.int64(6)))
    assert SYSTEM.seed_of_device() == DeviceSeed(6)


@pytest.mark.parametrize(
    ("seed", "error"), [(1.5, TypeError), (True, TypeError), (2**64, ValueError)]
)
def test_seeds_that_are_none(seed: Any, error: type[Exception]):
    with pytest.raises(error, match="the seed is"):
        utils.reset_ipu_seed(seed)


def test_synthetic_data_takes_a_category():
    with pytest.raises(TypeError, match="SyntheticDataCategory"):
        utils.use_synthetic_data_for(cast(Any, "Infeed"))


def test_there_are_no_variables_to_move():
    utils.move_variable_initialization_to_cpu()
    with pytest.raises(TypeError, match="JAX has none"):
        utils.move_variable_initialization_to_cpu(graph=cast(Any, object()))


def test_names_that_never_were():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(utils, "nothing")  # noqa: B009 - what is tested is the lookup itself


def test_event_traces():
    with events.record() as trace:
        events.emit(Type.COMPILE_BEGIN, "module", "a")
        events.emit(Type.COMPILE_END, "module", "b")
    assert utils.extract_all_events(iter(trace)) == trace
    assert utils.extract_all_strings_from_event_trace(trace) == "ab"
    assert utils.extract_all_types_from_event_trace(trace) == [
        Type.COMPILE_BEGIN,
        Type.COMPILE_END,
    ]
    with pytest.raises(TypeError, match="must be an IpuTraceEvent"):
        utils.extract_all_events(cast(Any, [b"event"]))


def elements(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {"a": np.full((2, 3), i, ">f4"), "b": jnp.full((), i, jnp.bfloat16)}


def test_a_data_set_is_exported_array_by_array(tmp_path: pathlib.Path):
    utils.export_dataset_to_file(lambda: elements(9), tmp_path / "data.x.bin", 4)
    a = np.fromfile(tmp_path / "data.x.0.bin", "<f4").reshape(4, 2, 3)
    b = np.fromfile(tmp_path / "data.x.1.bin", jnp.bfloat16)
    np.testing.assert_array_equal(a, np.broadcast_to(np.arange(4)[:, None, None], (4, 2, 3)))
    np.testing.assert_array_equal(b, np.arange(4))
    assert len(list(tmp_path.iterdir())) == 2


def test_one_array_gets_the_name_itself(tmp_path: pathlib.Path):
    fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
    utils.export_dataset_to_file([fortran, fortran], str(tmp_path / "data"), 2, "feed", False)
    read = np.fromfile(tmp_path / "data", fortran.dtype).reshape(2, 2, 3)
    np.testing.assert_array_equal(read, [fortran, fortran])


def test_an_infeed_queue_exports_its_own_elements(tmp_path: pathlib.Path):
    class Queue:
        def _export_elements(self, n: int) -> Iterator[Any]:
            return (np.float32(i) for i in range(n))

    utils.export_dataset_to_file(Queue(), tmp_path / "data.bin", 3)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "data.bin", np.float32), [0, 1, 2])


@pytest.mark.parametrize("available", [0, 2])
def test_a_data_set_that_is_too_short(available: int, tmp_path: pathlib.Path):
    with pytest.raises(OutOfRangeError) as error:
        utils.export_dataset_to_file(elements(available), tmp_path / "data.bin", 3)
    assert (error.value.requested, error.value.available) == (3, available)
    assert not list(tmp_path.iterdir())


def test_unequal_elements(tmp_path: pathlib.Path):
    with pytest.raises(FeedError, match="drop_remainder"):
        utils.export_dataset_to_file([np.zeros(2), np.zeros(1)], tmp_path / "data.bin", 2)
    with pytest.raises(ValueError, match="must be at least 1"):
        utils.export_dataset_to_file([np.zeros(2)], tmp_path / "data.bin", 0)


def test_inputs_are_exported_in_order(tmp_path: pathlib.Path):
    feed = {"x": np.array([1, 2], np.float32), "y": np.int32(3)}
    utils.export_inputs_to_file(["y", "x"], tmp_path / "in.bin", feed)
    assert np.fromfile(tmp_path / "in.0.bin", np.int32).tolist() == [3]
    assert np.fromfile(tmp_path / "in.1.bin", np.float32).tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"no value for \['z'\]"):
        utils.export_inputs_to_file(["z"], tmp_path / "in.bin", feed)
    with pytest.raises(ValueError, match="no inputs"):
        utils.export_inputs_to_file([], tmp_path / "in.bin", feed)


def test_public_names_are_there():
    for name in utils.__all__:
        assert hasattr(utils, name)
