"""Plain programs in files: other processes have the same call, text and report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.driver.saved import container
from ipujax.errors import ExecutableError, FloatingPointError, MissingExtraError
from tests.conftest import RunWithDevices
from tests.ipujax.feeding import configure
from tests.ipujax.saving import ENGINES, again, compiled, same

f32 = np.float32


def layer(weights: dict[str, jax.Array], x: jax.Array) -> dict[str, Any]:
    with ipu.scopes.ipu_shard(0):
        h = jnp.tanh(x @ weights["w"])
    return {"h": h, "sum": (h + weights["b"]).sum()}


WEIGHTS = {"b": np.linspace(0, 1, 4, dtype=f32), "w": np.full((3, 4), 0.1, f32)}
X = np.arange(6, dtype=f32).reshape(2, 3)

LOADS = """
    import json, sys
    import numpy as np
    import ipujax as ipu

    loaded = ipu.load_executable("program.ipujax")
    weights = {"b": np.linspace(0, 1, 4, dtype=np.float32), "w": np.full((3, 4), 0.1, np.float32)}
    result = loaded(weights, np.arange(6, dtype=np.float32).reshape(2, 3))
    print(json.dumps({
        "h": np.asarray(result["h"]).tolist(),
        "sum": float(result["sum"]),
        "text": loaded.as_text(),
        "report": loaded.report().to_dict(),
        "page": str(loaded.report()),
        "engine": loaded.engine,
    }))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
def test_another_process_has_the_same_program(
    engine: str, tmp_path: Path, run_with_devices: RunWithDevices
) -> None:
    executable = compiled(layer, WEIGHTS, X, engine=engine)
    executable.save(tmp_path / "program.ipujax")
    told = json.loads(run_with_devices(1, LOADS))
    wanted = executable(WEIGHTS, X)
    np.testing.assert_array_equal(f32(told["h"]), wanted["h"])
    assert told["sum"] == float(wanted["sum"])
    assert told["text"] == executable.as_text()
    assert told["report"] == json.loads(json.dumps(executable.report().to_dict()))
    assert told["page"] == str(executable.report())
    assert told["engine"] == engine


def test_the_analyses_of_xla_are_there(tmp_path: Path) -> None:
    loaded = again(compiled(layer, WEIGHTS, X), tmp_path)
    assert loaded.cost_analysis()["flops"] > 0
    assert len(loaded.memory_analysis()) == 1
    assert repr(loaded) == "<LoadedExecutable Program(layer: 1 x 1 IPUs), engine 'fused'>"


class State(NamedTuple):
    count: Any
    moments: Any


def test_structures_come_back(tmp_path: Path) -> None:
    rule = optax.adam(0.1)
    params = {"a": [jnp.ones(3)], "b": (jnp.zeros(()), None)}
    state = rule.init(params)

    def step(state: Any, own: State, *, params: Any) -> tuple[Any, State, Any]:
        updates, state = rule.update(params, state)
        return updates, State(own.count + 1, own.moments), state

    own = State(np.int32(1), (None, np.ones(2, f32)))
    executable = ipu.compile(step).lower(state, own, params=params).compile()
    loaded = again(executable, tmp_path)
    same(loaded(state, own, params=params), executable(state, own, params=params))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "x",
    [
        jnp.bfloat16([1.5, 2.5]),
        np.float16([1.5, 2.5]),
        np.int8([1, 2]),
        np.bool_([True, False]),
        np.complex64([1j, 2]),
        jnp.float8_e4m3fn(jnp.float32([1.5, 2])),
        np.zeros((0, 3), f32),
        np.uint32(7),
    ],
    ids=lambda x: str(x.dtype),
)
@pytest.mark.sampled(4)
def test_dtypes_and_shapes(x: Any, engine: str, tmp_path: Path) -> None:
    def twice(x: jax.Array) -> Any:
        return jnp.concatenate([jnp.atleast_1d(x)] * 2), x, 1

    executable = compiled(twice, x, engine=engine)
    same(again(executable, tmp_path)(x), executable(x))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ipus", [1, 2])
def test_weak_types_stay_weak(ipus: int, engine: str, tmp_path: Path) -> None:
    configure(ipus)
    constant = jnp.full((), 2.0) * jnp.broadcast_to(1.0, (3,))

    def program(x: jax.Array) -> Any:
        return x * 2, jnp.float16(1) * x, 1, constant + 0 * x, np.float32(1)

    executable = compiled(program, 2.0, engine=engine)
    results = again(executable, tmp_path)(3.0)
    same(results, executable(3.0))
    weak = [x.weak_type for x in results]
    assert weak == [x.weak_type for x in executable(3.0)] == [True, False, True, True, False]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_keys(implementation: str, tmp_path: Path) -> None:
    def draw(key: jax.Array) -> Any:
        key, own = jax.random.split(key)
        return key, jax.random.normal(own, (3,))

    key = jax.random.key(3, impl=implementation)
    executable = compiled(draw, key)
    same(again(executable, tmp_path)(key), executable(key))


def test_draws_from_the_device(tmp_path: Path) -> None:
    executable = compiled(lambda x: ipu.rand_ops.dropout(x, rate=0.5), np.ones(64, f32))
    loaded = again(executable, tmp_path)
    results: list[Any] = []
    for run in (executable, loaded):
        ipu.utils.reset_ipu_seed(5)
        results.append([np.asarray(run(np.ones(64, f32))) for _ in range(2)])
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[1][0] != results[1][1]).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_constants_static_arguments_and_empty_programs(engine: str, tmp_path: Path) -> None:
    table = jnp.arange(1000, dtype=jnp.float32)

    def look(x: jax.Array, times: int) -> jax.Array:
        return table[x] * times

    executable = compiled(look, np.int32(3), 2, engine=engine, static_argnums=1)
    assert again(executable, tmp_path)(np.int32(4), 2) == 8
    assert again(compiled(lambda: (), engine=engine), tmp_path)() == ()
    same(again(compiled(lambda x: x, X, engine=engine), tmp_path)(X), jnp.asarray(X))


def test_donated_arguments_are_taken(tmp_path: Path) -> None:
    loaded = again(compiled(lambda x: x + 1, jnp.ones(4), donate_argnums=0), tmp_path)
    x = jnp.ones(4)
    np.testing.assert_array_equal(loaded(x), 2)
    assert x.is_deleted()


def test_refs_as_arguments(tmp_path: Path) -> None:
    def count(ref: Any) -> jax.Array:
        ref[...] += 1
        return ref[...] * 2

    ref = jax.new_ref(jnp.float32(1))
    loaded = again(compiled(count, ref), tmp_path)
    assert loaded(ref) == 4
    assert ref[...] == 2


@pytest.mark.fact("embedded_runtime.recover")
def test_faults_are_found(tmp_path: Path) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.div0 = True
    config.configure_ipu_system()
    loaded = again(compiled(lambda x: 12 / x, f32(1)), tmp_path)
    results: list[Any] = []
    for x in (1, 1, 0, 1):
        try:
            results.append(float(loaded(f32(x))))
        except FloatingPointError as error:
            results.append(str(error).partition("\n")[0])
    assert results == [12, 12, "division by zero in `divide` (div)", 12]


@pytest.mark.parametrize("engine", ENGINES)
def test_several_ipus(engine: str, tmp_path: Path) -> None:
    configure(4)

    def model(x: jax.Array) -> jax.Array:
        for ipu_ in range(4):
            with ipu.scopes.ipu_shard(ipu_):
                x = jnp.sin(x) + ipu_
        return x

    executable = compiled(model, X, engine=engine)
    loaded = again(executable, tmp_path)
    same(loaded(X), executable(X))
    assert loaded.as_text() == executable.as_text()
    assert loaded.report().num_ipus == 4


def test_a_process_without_a_configuration(
    tmp_path: Path, run_with_devices: RunWithDevices
) -> None:
    configure(4)

    def shares(x: jax.Array) -> jax.Array:
        return ipu.cross_replica_ops.cross_replica_sum(x + ipu.replication_ops.replication_index())

    compiled(shares, f32(1)).save(tmp_path / "program.ipujax")
    source = """
        import numpy as np, ipujax as ipu
        loaded = ipu.load_executable("program.ipujax")
        print(loaded(np.float32(1)), loaded.report().replication_factor)
        print(ipu.compile(ipu.cross_replica_ops.cross_replica_sum)(np.float32(1)))
    """
    assert run_with_devices(1, source) == "10.0 4\n1.0\n"


def test_a_device_that_does_not_fit(tmp_path: Path) -> None:
    configure(4)
    compiled(layer, WEIGHTS, X).save(tmp_path / "program.ipujax")
    configure(2)
    with pytest.raises(ExecutableError, match=r"of 4 IPUs, and here it has 2[^$]*auto_select_ipus"):
        ipu.load_executable(tmp_path / "program.ipujax")


def test_a_report_for_another_chip(tmp_path: Path) -> None:
    loaded = again(compiled(layer, WEIGHTS, X), tmp_path)
    assert loaded.report("ipu2").cycles == loaded.report().cycles
    with pytest.raises(ExecutableError, match=r"for ipu21: it was saved with the one for ipu2"):
        loaded.report("ipu21")


def test_the_folder_with_the_file(tmp_path: Path) -> None:
    executable = compiled(lambda x: x + 1, f32(1))
    executable.save(tmp_path / "a.ipujax")
    assert ipu.load_executable(tmp_path)(f32(1)) == 2
    executable.save(str(tmp_path / "b.ipujax"))
    with pytest.raises(ExecutableError, match=r"has a\.ipujax, b\.ipujax"):
        ipu.load_executable(str(tmp_path))


def without_keys(value: Any, names: set[str]) -> Any:
    """JSON without the entries of some names, at any depth."""
    if isinstance(value, dict):
        return {k: without_keys(v, names) for k, v in value.items() if k not in names}
    return [without_keys(each, names) for each in value] if isinstance(value, list) else value


def test_pipelines_in_files_of_the_first_release_run(tmp_path: Path) -> None:
    """That knew no copies of stages, and no segments of sequences."""

    def loss(weights: Any, x: Any) -> Any:
        for number, w in enumerate(weights):
            with ipu.scopes.pipeline_stage(number):
                x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    function = ipu.pipelining_ops.value_and_grad(loss, micro_batches=4)
    args = [np.eye(8, dtype=np.float32)] * 2, np.ones((8, 8), np.float32)
    executable = compiled(function, *args, engine="replay")
    executable.save(tmp_path / "a.ipujax")
    content = container.decode_file((tmp_path / "a.ipujax").read_bytes(), "a")
    index = without_keys(content.index, {"copies", "pattern", "segments", "counters"})
    assert index != content.index
    container.write_container(container.Content(index, content.blobs), tmp_path / "old.ipujax")
    same(ipu.load_executable(tmp_path / "old.ipujax")(*args), executable(*args))


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = compiled(lambda x: x + 1, f32(1))
    executable.save(tmp_path / "a.ipujax")
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    for act in (executable.save, ipu.load_executable):
        with pytest.raises(MissingExtraError, match=r"pip install 'ipujax\[export\]'") as caught:
            act(tmp_path / "a.ipujax")
        assert isinstance(caught.value, ImportError)


def test_the_output_folder_of_the_configuration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "new" / "folder"
    config = ipu.config.IPUConfig()
    config.serialization_output_folder = str(folder)
    config.configure_ipu_system()

    @ipu.compile
    def add_one(x: jax.Array) -> jax.Array:
        return x + 1

    assert add_one(f32(1)) == 2
    (path,) = folder.iterdir()
    assert path.name.startswith("add_one-")
    assert ipu.load_executable(path)(f32(3)) == 4

    @ipu.compile
    def tells(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x

    assert tells(f32(1)) == 1
    assert list(folder.iterdir()) == [path]
    assert "serialization_output_folder: `tells` calls Python on the host" in caplog.text
