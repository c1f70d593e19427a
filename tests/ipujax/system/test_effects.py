"""What the metadata of an option says that it changes is what it changes."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.config import IPUConfig, SchedulingAlgorithm
from ipujax.errors import ConfigError
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipujax.system import ConfigNode, Effect, SystemOptions, walk_options

F32 = np.float32
SQUARE = np.eye(256, dtype=F32)
TABLE = ipu.embedding_ops.HostEmbedding("effects", SQUARE)


def products(x: Any) -> Any:
    """Equal and unequal products, lookups, a sum over replicas; wide values that live on."""
    kept = [jnp.tanh(x * number) for number in range(4)]
    y = (x @ x) @ (x @ x) + sum(each.sum() for each in kept)
    rows = jnp.take(x, jnp.arange(8), axis=0)
    largest = jnp.argmax(x[:8], axis=1), jnp.argmax(x[8:16], axis=1)
    rows += jnp.take(x, largest[0], axis=0) + jnp.take(x, largest[1], axis=0)
    summed = ipu.cross_replica_ops.cross_replica_sum(jnp.tanh(y))
    return ipu.cross_replica_ops.cross_replica_sum(summed + 1) + rows.sum()


def factors(x: Any) -> Any:
    """A Cholesky factor and a triangular system."""
    factor = jnp.linalg.cholesky(x)
    return jax.scipy.linalg.solve_triangular(factor, x, lower=True)


def images(x: Any) -> Any:
    """A convolution, and pooling."""
    pixels = x.reshape(1, 64, 64, 16)
    filters = jnp.ones((3, 3, 16, 16), x.dtype)
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(pixels, filters, (1, 1), "SAME", dimension_numbers=layout)
    return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


def fed(x: Any) -> Any:
    """A loop that reads two arrays in each step."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([(SQUARE, SQUARE)])
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total: Any, one: Any, other: Any) -> Any:
        outfeed.enqueue(total)
        return jnp.tanh(total @ one) + other

    return ipu.loops.repeat(3, body, [x], infeed)


def trained(x: Any) -> Any:
    """A pipeline over two IPUs with offloaded state."""

    return pipeline(
        [lambda v, rows: jnp.sin(rows @ v[0]), lambda v, y: jnp.sum((y @ v[1]) ** 2)],
        24,
        variables=(x, x + 1),
        infeed_queue=ipu.ipu_infeed_queue.IPUInfeedQueue([SQUARE]),
        outfeed_queue=ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
        optimizer_function=lambda loss, *_: OptimizerFunctionOutput(optax.adam(0.1), loss),
        offload_weight_update_variables=True,
    )


def sharded(x: Any) -> Any:
    """Two arrays that go from an IPU to another at once."""
    with ipu.scopes.ipu_shard(0):
        one, other = jnp.tanh(x), jnp.exp(x)
    with ipu.scopes.ipu_shard(1):
        return one * other


def scattered(x: Any) -> Any:
    """Sums over replicas of which each keeps a part."""
    scatter = ipu.reduce_scatter_op.reduce_scatter
    return scatter(x[0], 4) + scatter(x[1] + 1, 4)


def hosted(x: Any) -> Any:
    """A call of the host with two arrays, and a table of it."""
    one, other = jnp.tanh(x), jnp.exp(x)
    with ipu.scopes.outside_compilation_scope():
        y = one * other
    rows = TABLE.lookup(jnp.arange(4, dtype=jnp.int32))
    return y + rows.sum()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "products": products,
    "factors": factors,
    "images": images,
    "fed": fed,
    "trained": trained,
    "sharded": sharded,
    "scattered": scattered,
    "hosted": hosted,
}

CHANGED: dict[str, Any] = {
    name: member.trial
    for name, member, _ in walk_options(SystemOptions())
    if member.trial is not None
}
BESIDE = {
    name: [("io_tiles.num_io_tiles", 64), *more]
    for name, more in {
        "io_tiles.available_memory_proportion": [("io_tiles.place_ops_on_io_tiles", True)],
        "io_tiles.place_ops_on_io_tiles": [],
    }.items()
}
LOOK_AHEAD = [("scheduling.algorithm", SchedulingAlgorithm.LOOK_AHEAD)]
BESIDE["scheduling.maximum_scheduler_lookahead_depth"] = LOOK_AHEAD
BESIDE["scheduling.maximum_scheduler_search_space_size"] = LOOK_AHEAD
"""What is set before and after the change, so that there is something to change."""


def names(node: ConfigNode, prefix: str = "") -> Iterator[str]:
    for name in type(node).__annotations__:
        value = getattr(node, name)
        if isinstance(value, ConfigNode):
            yield from names(value, f"{prefix}{name}.")
        else:
            yield prefix + name


OPTIONS = {name: IPUConfig().get_attribute_metadata(name).effect for name in names(SystemOptions())}


def assign(config: IPUConfig, name: str, value: Any) -> None:
    path, _, last = name.rpartition(".")
    setattr(operator.attrgetter(path)(config) if path else config, last, value)


def value_of(name: str) -> Any:
    return operator.attrgetter(name)(IPUConfig())


def told(*changes: tuple[str, Any]) -> dict[str, str]:
    """Of each program its text and its report under some changes."""
    config = IPUConfig()
    config.auto_select_ipus = 4
    for name, value in changes:
        assign(config, name, value)
    config.configure_ipu_system()
    found: dict[str, str] = {}
    for name, program in PROGRAMS.items():
        lowered = ipu.compile(program, name=name).lower(SQUARE)
        report = lowered.report().to_dict()
        report.pop("advice", None)
        text = f"{lowered.as_text()}\n{json.dumps(report, indent=0, default=str)}"
        found[name] = re.sub(r"\b(in|out)feed_\d+", "feed", text)
    return found


@pytest.fixture(scope="module")
def unchanged() -> dict[str, str]:
    return told()


@pytest.mark.parametrize("name", CHANGED)
def test_an_option_changes_what_it_says(name: str, unchanged: dict[str, str]) -> None:
    beside = BESIDE.get(name, ())
    before = told(*beside) if beside else unchanged
    changed = told(*beside, (name, CHANGED[name]))
    differ = [program for program in PROGRAMS if changed[program] != before[program]]
    assert bool(differ) == (OPTIONS[name] is Effect.MODEL), differ


def numbers(*changes: tuple[str, Any]) -> dict[str, Any]:
    """What programs without queues compute under some changes."""
    config = IPUConfig()
    config.auto_select_ipus = 4
    for name, value in changes:
        assign(config, name, value)
    config.configure_ipu_system()
    x = np.random.default_rng(0).normal(size=SQUARE.shape).astype(F32)
    given = (x @ x.T / 256 + 4 * SQUARE) / 16
    alone = ("products", "factors", "images", "sharded", "scattered")
    return {name: ipu.compile(PROGRAMS[name])(given) for name in alone}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CHANGED)
def test_an_option_of_the_model_leaves_numbers(name: str) -> None:
    beside = BESIDE.get(name, ())
    before, changed = numbers(*beside), numbers(*beside, (name, CHANGED[name]))
    rounding = 0 if OPTIONS[name] is Effect.NONE else 1e-5
    compare = functools.partial(np.testing.assert_allclose, rtol=rounding, atol=rounding)
    jax.tree.map(compare, changed, before)


NUMBERS = [name for name in OPTIONS if type(value_of(name)) in (int, float)]
# What it may be depends on another one, and is looked at when both are known: fact
# config.process_index_range.
NOT_ALONE = {"experimental.multi_replica_distribution.process_index"}


@pytest.mark.parametrize("name", sorted({*NUMBERS} - NOT_ALONE))
def test_numbers_out_of_range_are_refused_when_set(name: str) -> None:
    kind = type(value_of(name))
    for wrong in (kind(-1), kind(10**30), *([float("nan")] if kind is float else [])):
        with pytest.raises(ConfigError, match=rf"'{name}' is .*, but must be a number from"):
            assign(IPUConfig(), name, wrong)


@pytest.mark.parametrize("name", ["auto_select_ipus", "select_ipus"])
@pytest.mark.parametrize("wrong", [-1, [1, -1], (10**30,)])
def test_wrong_ipus_are_refused_when_set(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"'{name}' is .*, but must be (a number|numbers) from"):
        assign(IPUConfig(), name, wrong)


@pytest.mark.parametrize("name", ["matmuls", "convolutions"])
@pytest.mark.parametrize("wrong", [-1, "nan", float("inf"), 10**30, "half"])
def test_wrong_proportions_are_refused_when_set(name: str, wrong: Any) -> None:
    message = rf"{name}.poplar_options\['availableMemoryProportion'\] .* from 0 to 1"
    with pytest.raises(ConfigError, match=message):
        assign(IPUConfig(), f"{name}.poplar_options", {"availableMemoryProportion": wrong})


@pytest.mark.parametrize("wrong", [-1, "CLOCKWISE_RING", True, None, ["auto"]])
def test_wrong_ways_around_a_ring_are_refused_when_set(wrong: Any) -> None:
    message = r"gcl_poplar_options\['method'\] is .*, but must be one of 'auto'"
    with pytest.raises(ConfigError, match=message):
        IPUConfig().gcl_poplar_options = {"method": wrong}


def test_wrong_options_of_the_engine_are_refused_when_set() -> None:
    with pytest.raises(ConfigError, match=r"allowOutOfMemory.* but must be the text"):
        IPUConfig().compilation_poplar_options = {"debug.allowOutOfMemory": -1}
    for wrong in ("speed", "CYCLES", True, None, ["memory"]):
        with pytest.raises(ConfigError, match=r"'opt\.internalExchange.* must be one of 'cycles'"):
            IPUConfig().compilation_poplar_options = {
                "opt.internalExchangeOptimisationTarget": wrong
            }


@pytest.mark.parametrize("wrong", [True, "yes", 1])
def test_wrong_options_of_reports_are_refused_when_set(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"autoReport.all.* but must be the text"):
        IPUConfig().compilation_poplar_options = {"autoReport.all": wrong}


@pytest.mark.parametrize("name", ["matmuls", "convolutions", "pooling"])
def test_what_changes_in_place_is_looked_at_when_configuring(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = IPUConfig()
    option = f"noSuchOptionOf_{name}"
    getattr(config, name).poplar_options[option] = "1"
    config.gcl_poplar_options[option] = "1"
    config.configure_ipu_system()
    for where in (f"{name}.poplar_options", "gcl_poplar_options"):
        assert f"{where}['{option}'] changes nothing" in caplog.text


def test_wrong_values_in_place_are_refused_when_configuring() -> None:
    config = IPUConfig()
    config.matmuls.poplar_options["availableMemoryProportion"] = "nan"
    with pytest.raises(ConfigError, match="must be a number from 0 to 1"):
        config.configure_ipu_system()
    config = IPUConfig()
    config.auto_select_ipus = [1]
    config.auto_select_ipus.append(-1)
    with pytest.raises(ConfigError, match=r"'auto_select_ipus' is .* but must be numbers from 0"):
        config.configure_ipu_system()


def test_every_option_of_the_model_is_tried() -> None:
    modelled = {n for n, effect in OPTIONS.items() if effect in (Effect.MODEL, Effect.NONE)}
    assert modelled <= CHANGED.keys()
