"""Options that act on something other than the model, each changed alone where it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.config import DeviceConnectionType, IPUConfig, SelectionOrder
from ipujax.errors import IPUError
from ipujax.normalization_ops import batch_norm, group_norm
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipujax.replication_ops import replication_index
from ipujax.system import SYSTEM, Effect
from tests.ipujax.feeding import outfeed
from tests.ipujax.system.test_effects import OPTIONS, assign


def ran(fn: Callable[..., Any], *args: Any) -> Any:
    """What a program gives, in numbers or as an error."""
    try:
        return jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), ipu.compile(fn)(*args))
    except IPUError as error:
        return type(error).__name__


def of_halves() -> Any:
    """What overflows, and what is rounded."""
    x = np.array([60000, 1, 0.3], np.float16)
    return ran(lambda x: (x + x, x / 7), x)


def divided(x: float) -> Callable[[], Any]:
    return lambda: ran(lambda x: x / jnp.zeros_like(x), np.full(2, x, np.float16))


def of_normed() -> Any:
    """A mean far from 0, which leaves little of the variance."""
    x = np.linspace(1000, 1000.1, 64, dtype=np.float32).reshape(1, 4, 4, 4)
    return ran(lambda x: group_norm(x, gamma=np.ones(4), beta=np.zeros(4)), x)


def of_replicas() -> Any:
    rows = np.random.default_rng(0).normal(size=(2, 8, 1)).astype(np.float32)
    return ran(lambda rows: batch_norm(rows[replication_index()], gamma=None, beta=None), rows)


def of_device() -> Any:
    found = SYSTEM.device()
    return list(found.ipus), found.ladder, found.connection


def of_chip() -> Any:
    return ipu.compile(jnp.exp).lower(np.ones(4, np.float32)).report().target.name


def of_offloading() -> Any:
    def train(x: Any) -> Any:
        return pipeline(
            [lambda v: v[0] @ v[0], lambda v, y: jnp.sum((y @ v[1]) ** 2)],
            4,
            variables=(x, x + 1),
            outfeed_queue=outfeed(),
            optimizer_function=lambda loss, *_: OptimizerFunctionOutput(optax.adam(0.1), loss),
            offload_weight_update_variables=True,
        )

    return "streaming memory" in ipu.compile(train).lower(np.eye(32, dtype=np.float32)).as_text()


def of_saving() -> Any:
    ran(jnp.exp, np.ones(3, np.float32))
    return sorted(path.suffix for path in Path("saved").glob("*"))


def of_queue() -> Any:
    source = ipu.ipu_infeed_queue.IPUInfeedQueue([np.float32(1), np.float32(2)])
    ipu.compile(lambda: ipu.loops.repeat(2, lambda t, x: t + x, [jnp.float32(0)], source))()
    return source.fetches_ahead


def of_system() -> Any:
    return SYSTEM.is_configured


NEVER = ("device_connection.type", DeviceConnectionType.NEVER)
IPU21 = ("device_connection.version", "ipu21")
PROCESS = "experimental.multi_replica_distribution.process_"
GROUP = "norms.experimental.distributed_batch_norm_replica_group_size"
Changes = Sequence[tuple[str, Any]]

# Of each option its new value, what is set before and after, and what tells.
SEEN: dict[str, tuple[Any, Changes, Callable[[], Any]]] = {
    "auto_select_ipus": (4, (), of_device),
    "select_ipus": (3, (), of_device),
    "selection_order": (SelectionOrder.ZIGZAG, [("auto_select_ipus", 4)], of_device),
    "device_connection.type": (DeviceConnectionType.ON_DEMAND, (), of_device),
    "device_connection.version": ("ipu1", [NEVER, IPU21], of_chip),
    "device_connection.enable_remote_buffers": (
        True,
        [("auto_select_ipus", 2), NEVER, IPU21],
        of_offloading,
    ),
    f"{PROCESS}count": (2, (), of_system),
    f"{PROCESS}index": (1, [(f"{PROCESS}count", 1)], of_system),
    "floating_point_behaviour.inv": (True, (), divided(0)),
    "floating_point_behaviour.div0": (True, (), divided(1)),
    "floating_point_behaviour.oflo": (True, (), of_halves),
    "floating_point_behaviour.esr": (True, (), of_halves),
    "floating_point_behaviour.nanoo": (
        True,
        [("floating_point_behaviour.inv", False)],
        of_halves,
    ),
    "floating_point_behaviour.set_all": (True, (), of_halves),
    "norms.use_stable_statistics": (True, (), of_normed),
    GROUP: (2, [("auto_select_ipus", 2)], of_replicas),
    "serialization_output_folder": ("saved", (), of_saving),
    "optimizations.prefetch_data_streams": (False, (), of_queue),
}


def seen(changes: Changes, tells: Callable[[], Any]) -> Any:
    config = IPUConfig()
    for name, value in changes:
        assign(config, name, value)
    try:
        config.configure_ipu_system()
    except IPUError as error:
        return type(error).__name__
    return tells()


@pytest.mark.parametrize("name", SEEN)
def test_an_option_changes_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value, beside, tells = SEEN[name]
    before = seen(beside, tells)
    assert str(seen(beside, tells)) == str(before)
    assert str(seen([*beside, (name, value)], tells)) != str(before)


def test_every_option_that_acts_elsewhere_is_tried() -> None:
    elsewhere = {Effect.SYSTEM, Effect.VALUES, Effect.HOST}
    assert {name for name, effect in OPTIONS.items() if effect in elsewhere} == SEEN.keys()
