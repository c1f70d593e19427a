"""Saved executables on several JAX devices, and on other numbers of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import RunWithDevices

pytest.importorskip("flatbuffers", reason="the extra `export` is not installed")

SAVES = """
    import numpy as np
    import jax, jax.numpy as jnp
    import ipujax as ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    sink = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x):
        with ipu.scopes.ipu_shard(0):
            y = jnp.sin(x) + ipu.replication_ops.replication_index()
        with ipu.scopes.ipu_shard(1):
            y = ipu.cross_replica_ops.cross_replica_sum(y)
            sink.enqueue(y)
        return y

    def program(x):
        return ipu.loops.repeat(3, body, [x])

    x = np.linspace(0, 1, 5, dtype=np.float32)
    executable = ipu.compile(program, engine="ENGINE").lower(x).compile()
    executable.save("a.ipujax")
    np.savez("wanted.npz", result=executable(x), sent=sink.dequeue(), name=sink.name)
"""
LOADS = """
    import numpy as np
    import jax
    import ipujax as ipu

    wanted = np.load("wanted.npz")
    sink = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    loaded = ipu.load_executable("a.ipujax", {str(wanted["name"]): sink})
    result = loaded(np.linspace(0, 1, 5, dtype=np.float32))
    np.testing.assert_allclose(result, wanted["result"], rtol=1e-6)
    np.testing.assert_allclose(sink.dequeue(), wanted["sent"], rtol=1e-6)
    print(loaded.engine, jax.device_count())
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["fused", "replay"])
@pytest.mark.parametrize(("saved_on", "loaded_on"), [(1, 4), (4, 1), (4, 4)])
def test_other_numbers_of_devices(
    saved_on: int, loaded_on: int, engine: str, tmp_path: Path, run_with_devices: RunWithDevices
) -> None:
    run_with_devices(saved_on, SAVES.replace("ENGINE", engine))
    assert run_with_devices(loaded_on, LOADS) == f"{engine} {loaded_on}\n"
