"""Fixtures of every test, and what each test starts from: one device, nothing configured."""

from __future__ import annotations

import os

# Before anything imports JAX. The tests compare numbers of one CPU device; those that need more
# run in processes of their own (`run_with_devices`).
from tests.quick_xla import ENVIRONMENT

os.environ.update({"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"} | ENVIRONMENT | os.environ)

import gc
import math
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest

from tests.harness import (
    ROOT,
    Golden,
    affordable_workers,
    free_memory,
    resident_megabytes,
    run_python,
)
from tests.sampling import mark_the_rest

# A first call compiles, so times say nothing; and the same examples everywhere make a failure in
# CI one that comes back at home.
hypothesis.settings.register_profile("ipujax", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ipujax")

# A shell has its background processes ignore interrupts, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A worker may take this much, once the modules of all tests are imported (900 MB, most of it
# PyTorch, Keras and JAX) and some tests have run. A compiled program takes 1.6 MB.
WORKER_MEGABYTES = 1500.0
ROOM_MEGABYTES = 120.0
memory_limit = [math.inf]
USER_VARIABLES = ("TF_POPLAR_FLAGS", "POPLAR_LOG_LEVEL", "POPLAR_ENGINE_OPTIONS")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files of the tests that run, instead of comparing with them",
    )
    parser.addoption(
        "--notebooks",
        default=str(ROOT / "notebooks"),
        help="the folder of the executed notebooks whose statements are tested",
    )


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """As many workers as there are cores, if there is memory for them."""
    cores = yield
    return affordable_workers(cores, WORKER_MEGABYTES)


# Modules are there to stay: collecting garbage among them again and again is half the time that
# importing them takes, and later most of the time of each full collection.
@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        free_memory()
        gc.freeze()
        gc.enable()


# First: pytest itself leaves out what is not asked for by `-m` in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_the_rest(items)
    for item in items:
        for mark in item.iter_markers("fact"):
            named = mark.args and all(isinstance(i, str) and "." in i for i in mark.args)
            if not named or mark.kwargs:
                raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.fact('area.name')")


@pytest.fixture(scope="session", autouse=True)
def own_runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps what the virtual system tells other processes apart from the user's own runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPUJAX_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


def reset_system() -> None:
    """Forgets every configuration, if the tests so far made `ipujax` load at all."""
    system = sys.modules.get("ipujax.system.devices")
    if system is None:
        return
    system.SYSTEM.reset_system()
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    # Whoever names a cache in a flag gets it for the process.
    if jax.config.jax_compilation_cache_dir != os.environ["JAX_COMPILATION_CACHE_DIR"]:
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def little_garbage() -> None:
    """Makes `gc.collect()` quick in a module: it looks at what the module's tests made, alone."""
    free_memory()
    gc.freeze()


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Has JAX forget what it has compiled when a worker has grown."""
    yield
    resident = resident_megabytes()
    if resident > memory_limit[0]:
        free_memory()
        resident, memory_limit[0] = resident_megabytes(), math.inf
    memory_limit[0] = min(memory_limit[0], max(WORKER_MEGABYTES / 2, resident + ROOM_MEGABYTES))


@pytest.fixture(autouse=True)
def fresh_system(own_runtime_folder: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing configured and no flags set, before each test and after it."""
    for name in USER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    reset_system()
    yield
    # Flags that the test set would otherwise still be there when the system is reset.
    for name in USER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    reset_system()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(text)`: the text is what `tests/golden/<module>/<test>.txt` holds."""
    update = bool(request.config.getoption("--update-golden"))
    return Golden(request.path, request.node.name, update)


class RunWithDevices(Protocol):
    """Runs a Python program (its text or its path) in a process with that many CPU devices."""

    def __call__(self, devices: int, source: str | Path, timeout: float = ...) -> str: ...


@pytest.fixture
def run_with_devices(tmp_path: Path) -> RunWithDevices:
    """`run_with_devices(4, source)`: gives what the program printed, fails with its errors."""

    def run(devices: int, source: str | Path, timeout: float = 300.0) -> str:
        return run_python(source, devices, tmp_path, timeout)

    return run
