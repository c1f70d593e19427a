"""Programs over four IPUs: loops, branches, calls of the host, errors, types, random numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()
x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
told: dict[str, Any] = {"index": ipu.popdist.getInstanceIndex()}
shard = ipu.scopes.ipu_shard


def tell(name: str, *results: Any) -> None:
    leaves = jax.tree.leaves(results)
    told[name] = [[str(leaf.dtype), *np.ravel(leaf).astype(float).tolist()] for leaf in leaves]


def error_of(name: str, function: Callable[[], Any]) -> None:
    try:
        function()
    except Exception as error:
        told[name] = [type(error).__name__, str(error).splitlines()[0]]


def on_replay(function: Callable[..., Any]) -> Callable[..., Any]:
    return ipu.compile(function, engine="replay")


infeed = ipu.ipu_infeed_queue.IPUInfeedQueue([x * number for number in range(10)])
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def body(state: jax.Array, element: jax.Array) -> jax.Array:
    with shard(3):
        outfeed.enqueue(jnp.sum(state))
        return state @ element * 0.1 + 1


@on_replay
def loop(state: jax.Array) -> Any:
    return ipu.loops.repeat(4, body, [state], infeed_queue=infeed)


tell("loop", loop(x), loop(x), outfeed.dequeue())
error_of("the data ends", lambda: loop(x))
tell("what was sent before", outfeed.dequeue())


@on_replay
def elsewhere(state: jax.Array) -> Any:
    with shard(0):
        return ipu.loops.repeat(1, lambda state, x: state + x, [state], infeed_queue=infeed)


if ipu.popdist.getNumInstances() > 1:
    error_of("the data of another", lambda: elsewhere(x))


@on_replay
def branches(start: jax.Array) -> Any:
    def goes_on(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return state[1] < 3

    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        with shard(1):
            b = jnp.tanh(state[0] @ state[0])
        with shard(2):
            d = b * 2
        with shard(0):
            return d, state[1] + jnp.minimum(jnp.max(jnp.abs(d)), 1)

    value, count = jax.lax.while_loop(goes_on, step, (start, jnp.float32(0)))
    with shard(2):
        chosen = jax.lax.cond(count > 2, lambda v: v + 1, lambda v: v - 1, value)
    return chosen, count, start


tell("branches", branches(x))


def small(value: np.ndarray) -> np.ndarray:
    if value > 5:
        raise ValueError("too large")
    return value


@on_replay
def calls(values: jax.Array) -> jax.Array:
    with shard(3):
        total = jax.pure_callback(small, jax.ShapeDtypeStruct((), np.float32), jnp.sum(values))
    with shard(0):
        return total + 1


tell("a call", calls(np.ones(2, np.float32)))
error_of("a call that raises", lambda: calls(np.ones(7, np.float32)))
tell("a call after that", calls(np.ones(2, np.float32)))
seen: list[np.ndarray] = []


@on_replay
def outside(values: jax.Array) -> Any:
    with shard(2):
        double = values * 2
    with ipu.scopes.outside_compilation_scope():
        jax.debug.callback(seen.append, double)
        more = double + 1
        key = jax.random.fold_in(jax.random.key(3), jnp.sign(double[0, 0]).astype(int))
    with shard(1):
        return more * 3, jax.random.normal(key, (2,))


tell("outside", outside(x))
jax.effects_barrier()
told["seen"] = len(seen)


@on_replay
def types(values: jax.Array) -> Any:
    with shard(0):
        made = values.astype(jnp.bfloat16), values > 0, (values * 10).astype(jnp.int8)
        key = jax.random.split(jax.random.key(3))
        none = jnp.zeros((0, 3))
    with shard(3):
        drawn = jax.random.normal(key[1], (2,))
        return made[0] * 2, ~made[1], made[2] + 1, drawn, none + 1, 2 * jnp.sum(values)


tell("types", types(x))
ipu.utils.reset_ipu_seed(7)


@on_replay
def random(values: jax.Array) -> jax.Array:
    with shard(0):
        some = ipu.rand_ops.dropout(values, rate=0.5)
    with shard(2):
        return ipu.rand_ops.dropout(some, rate=0.5)


tell("random", random(x), random(x))


@ipu.compile(engine="replay", gather=False, donate_argnums=0)
def train(state: dict[str, jax.Array], element: jax.Array) -> Any:
    with shard(0):
        front = state["front"] + element
        total = jnp.sum(front)
    with shard(3):
        back = state["back"] * total
    return {"front": front, "back": back, "key": state["key"]}, total


kept: Any = {"front": x, "back": x, "key": jax.random.key(5)}
total: Any = None
for number in range(3):
    kept, total = train(kept, np.float32(number))
if ipu.popdist.getNumInstances() > 1:
    is_here = {name: kept[name].is_fully_addressable for name in ("front", "back", "key")}
    own = ("front", "back")[told["index"]]
    other = ("back", "front")[told["index"]]
    if is_here != {own: True, other: False, "key": True}:
        raise AssertionError(is_here)
doubled = jax.jit(lambda y: 2 * y)(kept["back"])  # where it is
together = ipu.popdist.gather({**kept, "total": total, "doubled": doubled, "number": 3})
told["as it was"] = together.pop("number")
key = together.pop("key")
tell("gathered", together)
tell("used whole", ipu.compile(lambda y: y + 1)(kept["back"]), jax.random.key_data(key))
tell("used together", on_replay(train.__wrapped__)({**together, "key": key}, np.float32(1))[1])
print(json.dumps(told), flush=True)
