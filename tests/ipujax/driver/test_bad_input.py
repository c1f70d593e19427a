"""What goes wrong says what, where and how to mend it; and afterwards the process goes on."""

from __future__ import annotations

import builtins
import gc
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax import events
from ipujax.cross_replica_ops import cross_replica_sum
from ipujax.errors import (
    ConfigError,
    ConfigTypeError,
    EnqueueError,
    FeedError,
    FloatingPointError,
    IPUError,
    LeakedValueError,
    LoopTypeError,
    OutOfRangeError,
    ScopeError,
    ShardError,
    UnusedOutfeedError,
)
from ipujax.loops import repeat, while_loop
from ipujax.replication_ops import replication_index
from ipujax.scopes import ipu_shard
from lowering import word_of_primitive
from tests.ipujax.feeding import LAST, configure, incr, incr_finite, infeed, outfeed

ENGINES = pytest.mark.parametrize("engine", ["fused", "replay"])
f32 = np.float32


def still_works() -> None:
    """The process goes on: a loop with queues, differentiated, gives the right numbers."""
    source, sink = infeed(itertools.cycle(np.float32([1, 2]))), outfeed()

    def body(total: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue({"x": x})
        return total * x

    run = ipu.compile(jax.value_and_grad(lambda v: repeat(3, body, [v], source)))
    value, slope = run(f32(2))
    assert value == 2 * slope
    assert sink.dequeue()["x"].size % 3 == 0
    assert ipu.compile(lambda x: x + 1)(1.0) == 2.0


@pytest.fixture(autouse=True)
def goes_on_working(little_garbage: None) -> Iterator[None]:
    """After every test here, in the configuration that it left."""
    yield
    gc.collect()
    still_works()


def where(function: Callable[..., Any], text: str) -> str:
    """`file:line` of the only line of a function that holds a text."""
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    (number,) = (first + i for i, line in enumerate(lines) if text in line)
    return f"test_bad_input.py:{number}"


def says(error: BaseException, *words: str) -> None:
    """Whether a message holds all words, in any order."""
    missing = [word for word in words if not re.search(word, str(error))]
    assert not missing, f"{missing} not in: {error}"


# --- configuration --------------------------------------------------------------------------------


def test_unknown_and_mistyped_configuration() -> None:
    config = ipu.config.IPUConfig()
    with pytest.raises(ConfigError, match=r"auto_select_ipu\b.*auto_select_ipus"):
        config.auto_select_ipu = 2
    with pytest.raises(ConfigTypeError, match=r"auto_select_ipus.*int") as caught:
        config.auto_select_ipus = "two"
    assert isinstance(caught.value, TypeError)
    with pytest.raises(ConfigTypeError, match="bool"):
        config.auto_select_ipus = True


# --- shards ---------------------------------------------------------------------------------------


def on_shard(index: Any) -> Any:
    def program(x: jax.Array) -> jax.Array:
        with ipu_shard(index):
            return x + 1

    return ipu.compile(program)


@ENGINES
def test_more_shards_than_ipus(engine: str) -> None:
    configure(2)
    with pytest.raises(ShardError) as caught:
        ipu.compile(on_shard(2), engine=engine)(1.0)
    assert isinstance(caught.value, ValueError)
    says(caught.value, "shard 2", "2 IPUs", "auto_select_ipus = 4")


def test_shards_without_a_configuration() -> None:
    with pytest.raises(ShardError) as caught:
        on_shard(1)(1.0)
    says(caught.value, "shard 1", "1 IPU ", "auto_select_ipus = 2")


def test_ipus_that_are_no_multiple_of_the_shards() -> None:
    configure(6)
    with pytest.raises(ShardError) as caught:
        on_shard(3)(1.0)
    says(caught.value, "4 IPUs per replica", "must divide", "6", "multiple of 4")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("index", [-1, -7, True, np.bool_(True), 1.0, "0", None, [0]])
def test_shard_indices_that_are_none(index: Any) -> None:
    with pytest.raises(ScopeError) as caught:
        on_shard(index)(1.0)
    assert isinstance(caught.value, ValueError)
    says(caught.value, "shard index", re.escape(str(index)))


def test_a_traced_shard_index() -> None:
    def program(x: jax.Array, index: jax.Array) -> jax.Array:
        with ipu_shard(index):  # pyright: ignore[reportArgumentType]
            return x + 1

    with pytest.raises(ScopeError, match=r"shard index is .* must be an integer"):
        ipu.compile(program)(1.0, 0)


# --- data sets ------------------------------------------------------------------------------------


def total_of(source: Any, n: int = 10, engine: str = "auto") -> Any:
    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        return v + x.sum()

    return ipu.compile(lambda: repeat(n, body, [0.0], source), engine=engine)()


@ENGINES
def test_elements_of_other_shapes(engine: str) -> None:
    elements = [np.ones(3, f32)] * 5 + [np.ones(2, f32)]
    source = infeed(elements)
    with pytest.raises(FeedError) as caught:
        total_of(source, engine=engine)
    assert isinstance(caught.value, ValueError)
    says(caught.value, source.name, "element 5", r"\(2,\)", r"\(3,\)", "drop_remainder")


def test_elements_of_other_dtypes() -> None:
    source = infeed([np.ones(3, f32), np.ones(3, np.int32)])
    with pytest.raises(FeedError) as caught:
        total_of(source)
    says(caught.value, source.name, "element 1", "int32", "float32")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("second", [{"a": f32(1)}, (f32(1), f32(1), f32(1)), f32(1), {}, None])
def test_elements_of_another_structure(second: Any) -> None:
    source = infeed([(f32(1), f32(1)), second])
    with pytest.raises(FeedError, match="element 1"):
        ipu.compile(lambda: repeat(2, lambda v, x, y: v + x + y, [0.0], source))()


def test_elements_that_are_no_numbers() -> None:
    with pytest.raises((FeedError, TypeError)):
        total_of(infeed(["one", "two"]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dataset", [[], iter(()), lambda: iter(())])
def test_an_empty_data_set(dataset: Any) -> None:
    source = infeed(dataset)
    with pytest.raises(OutOfRangeError) as caught:
        total_of(source)
    assert isinstance(caught.value, EOFError)
    assert caught.value.available == 0
    says(caught.value, source.name, "ended after 0")


@pytest.mark.parametrize("dataset", [None, 5, object()])
def test_what_is_no_data_set(dataset: Any) -> None:
    with pytest.raises(FeedError, match="iterable"):
        infeed(dataset)


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("n", [4, 50, 5000])
@pytest.mark.parametrize("replicas", [1, 2])
def test_an_exhausted_data_set(n: int, replicas: int, engine: str) -> None:
    configure(replicas)
    source = infeed([f32(i) for i in range(7)])
    run = ipu.compile(lambda v: repeat(n, lambda v, x: v + x, [v], source), engine=engine)
    if n * replicas <= 7:
        assert run(f32(100)) == 106
        return
    with pytest.raises(OutOfRangeError) as caught:
        run(f32(100))
    error = caught.value
    assert (error.requested, error.available) == (n * replicas, 7)
    (carried,) = error.carried
    assert float(carried) == 100 + (21 if replicas == 1 else 0 + 2 + 4)
    says(error, source.name, str(n * replicas), "repeat", "carried")


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("complete", [0, 1, 5, 300])
def test_what_was_enqueued_before_the_data_set_ended_stays(complete: int, engine: str) -> None:
    data = [f32(i) for i in range(complete + 1)]
    source, sink = infeed(data[:complete] or iter(())), outfeed()
    if not complete:
        source = infeed(iter(data[:1]))
        assert total_of(source, 1) == 0  # the only element is gone

    def body(state: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        sink.enqueue(x)
        return {"sum": state["sum"] + x, "count": state["count"] + 1}

    run = ipu.compile(lambda s: repeat(complete + 9, body, [s], source), engine=engine)
    with pytest.raises(OutOfRangeError) as caught:
        run({"sum": f32(0), "count": np.int32(0)})
    (carried,) = caught.value.carried
    assert set(carried) == {"sum", "count"}
    assert int(carried["count"]) == complete
    assert float(carried["sum"]) == sum(range(complete))
    np.testing.assert_array_equal(sink.dequeue(), np.arange(complete, dtype=f32))


def test_carried_can_be_trained_on() -> None:
    source = infeed(incr_finite(3, ()))

    def train(*state: Any) -> Any:
        return repeat(5, lambda a, b, x: (a + x, b * 2), list(state), source)

    with pytest.raises(OutOfRangeError) as caught:
        ipu.compile(train)(f32(0), f32(1))
    carried = caught.value.carried
    assert tuple(map(float, carried)) == (3, 8)
    more = infeed(incr(10, ()))
    rest = ipu.compile(lambda *s: repeat(2, lambda a, b, x: (a + x, b * 2), list(s), more))
    assert tuple(map(float, rest(*carried))) == (4, 32)


@pytest.mark.sampled(1)
@ENGINES
@pytest.mark.parametrize("inner", [1, 3])
def test_a_data_set_that_ends_in_a_loop_inside_a_loop(inner: int, engine: str) -> None:
    source, sink = infeed(incr_finite(10, ())), outfeed()

    def innermost(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + x

    def outer(v: jax.Array) -> jax.Array:
        return repeat(inner, innermost, [v], source)

    run = ipu.compile(lambda v: repeat(20, outer, [v]), engine=engine)
    with pytest.raises(OutOfRangeError) as caught:
        run(f32(0))
    assert caught.value.carried is not None
    np.testing.assert_array_equal(sink.dequeue(), np.arange(10))


class OutOfDiskError(Exception):
    """A user's own exception."""


def raising_at(number: int) -> Callable[[], Iterator[np.ndarray]]:
    def dataset() -> Iterator[np.ndarray]:
        yield from incr_finite(number)
        raise OutOfDiskError("no more room")

    return dataset


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize("number", [0, 1, 2, 6])
def test_a_data_set_that_raises(number: int, engine: str) -> None:
    source = infeed(raising_at(number))
    with pytest.raises(OutOfDiskError, match="no more room") as caught:
        total_of(source, engine=engine)
    (note,) = (note for note in caught.value.__notes__ if source.name in note)
    assert f"element {number}" in note


def test_what_was_enqueued_before_the_data_set_raised_stays() -> None:
    source, sink = infeed(raising_at(6)), outfeed()
    with pytest.raises(OutOfDiskError):
        ipu.compile(lambda: repeat(9, lambda x: sink.enqueue(x[0, 0]), [], source))()
    np.testing.assert_array_equal(sink.dequeue(), np.arange(6))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("depth", [0, -1, 256, 1.5, True, "1"])
def test_prefetch_depths_that_are_none(depth: Any) -> None:
    with pytest.raises(FeedError, match="prefetch_depth"):
        infeed(incr(3), prefetch_depth=depth)


# --- queues ---------------------------------------------------------------------------------------


def test_an_outfeed_enqueued_twice() -> None:
    sink = outfeed()

    def program(x: jax.Array) -> jax.Array:
        sink.enqueue(x)  # first
        x = x + 1
        sink.enqueue(x)  # second
        return x

    with pytest.raises(EnqueueError) as caught:
        ipu.compile(program)(1.0)
    assert isinstance(caught.value, ValueError)
    assert where(program, "# second") in caught.value.where
    says(caught.value, sink.name, where(program, "# first"), "tuple or dict", "two queues")


def test_an_outfeed_enqueued_in_two_loops() -> None:
    sink = outfeed()

    def body(x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return x + 1

    def program(x: jax.Array) -> jax.Array:
        return repeat(2, body, [repeat(2, body, [x])])

    with pytest.raises(EnqueueError, match="twice"):
        ipu.compile(program)(1.0)


def test_an_infeed_after_its_deleter() -> None:
    source = infeed(incr(10, ()))
    again = source.initializer
    assert total_of(source, 3) == 3
    source.deleter()
    with pytest.raises(FeedError) as caught:
        total_of(source, 3)
    assert isinstance(caught.value, ValueError)
    says(caught.value, source.name, "deleter", "new queue", "initializer")
    with pytest.raises(FeedError, match="deleted before"):
        source.deleter()
    again()
    assert total_of(source, 3) == 3


def test_an_outfeed_after_its_deleter() -> None:
    sink = outfeed()
    run = ipu.compile(lambda x: sink.enqueue(x))
    run(1.0)
    sink.deleter()
    with pytest.raises(FeedError, match=rf"{sink.name}.*deleter"):
        run(1.0)


def test_an_infeed_with_another_replication_factor() -> None:
    source = infeed(incr(10, ()))
    assert total_of(source, 3) == 3
    configure(2)
    with pytest.raises(FeedError) as caught:
        total_of(source, 3)
    says(caught.value, source.name, r"1 replica", "now with 2", "one queue for each")
    configure(1)
    assert total_of(source, 2) == 7  # nothing was lost


def test_a_queue_of_another_device() -> None:
    configure(1, 1)
    source, sink = infeed(incr(10, ()), device_ordinal=1), outfeed(device_ordinal=1)
    with pytest.raises(FeedError) as caught:
        total_of(source)
    says(caught.value, source.name, "IPU:1", "IPU:0", "device_ordinal=0")
    with pytest.raises(FeedError, match=sink.name):
        ipu.compile(lambda x: sink.enqueue(x))(1.0)


def test_last_dequeued_before_anything_ran() -> None:
    sink = outfeed(LAST)
    run = ipu.compile(lambda x: sink.enqueue(x))
    with pytest.raises(UnusedOutfeedError, match=sink.name):
        sink.dequeue()
    run.lower(1.0)
    with pytest.raises(UnusedOutfeedError) as caught:
        sink.dequeue()
    assert isinstance(caught.value, ValueError)
    says(caught.value, sink.name, "last value", "run the program")
    run(1.0)
    assert sink.dequeue() == 1


def test_dequeue_of_a_queue_that_nobody_enqueues_to() -> None:
    sink = outfeed()
    with pytest.raises(ValueError, match=r"no traced function enqueues"):
        sink.dequeue()
    ipu.compile(lambda x: sink.enqueue(x)).lower(1.0)
    assert sink.dequeue().shape == (0,)


def dropped_enqueue(sink: Any) -> Callable[[jax.Array], jax.Array]:
    def loss(w: jax.Array) -> jax.Array:
        def step(w: jax.Array, _: None) -> tuple[jax.Array, None]:
            sink.enqueue(w)
            return w * w, None

        return jax.lax.scan(step, w, None, length=3)[0]

    return loss


def test_an_enqueue_that_a_transformation_dropped() -> None:
    sink = outfeed()
    with pytest.raises(EnqueueError) as caught:
        ipu.compile(jax.grad(dropped_enqueue(sink)))(f32(1))
    assert where(dropped_enqueue, "sink.enqueue(w)") in caught.value.where
    says(caught.value, sink.name, "dropped", "loops.repeat")


def test_an_enqueue_in_a_scan_that_nobody_transforms_is_fine() -> None:
    sink = outfeed()
    ipu.compile(dropped_enqueue(sink))(f32(2))
    np.testing.assert_array_equal(sink.dequeue(), [2, 4, 16])


def test_an_enqueue_under_vmap() -> None:
    sink = outfeed()

    def program(xs: jax.Array) -> jax.Array:
        def each(x: jax.Array) -> jax.Array:
            sink.enqueue(x)
            return x + 1

        return jax.vmap(each)(xs)

    with pytest.raises(EnqueueError) as caught:
        ipu.compile(program)(np.ones(3, f32))
    says(caught.value, sink.name, "vmap", "outside", "test_bad_input.py:")


def test_an_enqueue_under_vmap_of_a_predicate() -> None:
    sink = outfeed()

    def program(xs: jax.Array) -> jax.Array:
        def send(x: jax.Array) -> jax.Array:
            sink.enqueue(x)
            return x

        return jax.vmap(lambda x: jax.lax.cond(x > 0, send, lambda x: x, x))(xs)

    with pytest.raises(EnqueueError):
        ipu.compile(program)(np.ones(3, f32))


@pytest.mark.sampled(1)
@ENGINES
def test_an_enqueue_under_a_predicate_that_differs_between_replicas(engine: str) -> None:
    configure(2)
    sink = outfeed()

    def program(x: jax.Array) -> jax.Array:
        def send(x: jax.Array) -> jax.Array:
            sink.enqueue(x)
            return x + 1

        own = replication_index()
        return jax.lax.cond(own == 1, send, lambda x: x, x)  # differs

    with pytest.raises(EnqueueError) as caught:
        ipu.compile(program, engine=engine)(f32(1))
    assert where(program, "# differs") in caught.value.where
    says(caught.value, "replicas disagree", "equal on all replicas")


@pytest.mark.sampled(1)
@ENGINES
def test_an_enqueue_under_a_predicate_that_is_equal_on_replicas(engine: str) -> None:
    configure(2)
    sink = outfeed()

    def program(x: jax.Array) -> jax.Array:
        def send(x: jax.Array) -> jax.Array:
            sink.enqueue(x)
            return x + 1

        equal = cross_replica_sum(replication_index()) == 1
        return jax.lax.cond(equal, send, lambda x: x, x)

    assert ipu.compile(program, engine=engine)(f32(1)) == 2
    np.testing.assert_array_equal(sink.dequeue(), [[1, 1]])


def test_names_that_are_taken() -> None:
    with pytest.warns(DeprecationWarning, match="feed_name"):
        first = infeed(incr(3), feed_name="mine")
    with (
        pytest.warns(DeprecationWarning, match="feed_name"),
        pytest.raises(FeedError, match="named `mine` already"),
    ):
        infeed(incr(3), feed_name="mine")
    assert first.name == "mine"


# --- loop bodies ----------------------------------------------------------------------------------


class Pair(NamedTuple):
    a: jax.Array
    b: jax.Array


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("inputs", "body", "words"),
    [
        ([f32(1)], lambda x: (x, x), ["structure"]),
        ([f32(1), f32(2)], lambda x, y: x, ["structure"]),
        ([f32(1), f32(2)], lambda x, y: (x, y, x), ["structure"]),
        ([f32(1)], lambda x: None, ["structure"]),
        ([{"a": f32(1)}], lambda d: {"b": d["a"]}, ["structure", "'a'", "'b'"]),
        ([Pair(f32(1), f32(2))], lambda p: (p.a, p.b), ["structure", "Pair"]),
        ([f32(1)], lambda x: x[None], [r"float32\[\]", r"float32\[1\]"]),
        ([np.ones(3, f32)], lambda x: x[:2], [r"\[3\]", r"\[2\]", "shapes"]),
        ([f32(1)], lambda x: x.astype(jnp.int32), ["float32", "int32", "astype"]),
        ([np.int32(1)], lambda x: x / 2, ["int32", "float32"]),
        ([f32(1)], lambda x, y: x, [r"1 input", r"\(x, y\)"]),
        ([f32(1), f32(1)], lambda x: x, [r"2 input", r"\(x\)"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("loop", ["repeat", "while"])
def test_bodies_that_do_not_fit(inputs: Any, body: Any, words: list[str], loop: str) -> None:
    def program() -> Any:
        if loop == "repeat":
            return repeat(3, body, inputs)
        return while_loop(lambda *state: jnp.bool_(True), body, inputs, maximum_iterations=3)

    with pytest.raises(LoopTypeError) as caught:
        ipu.compile(program)()
    assert isinstance(caught.value, TypeError)
    says(caught.value, *words)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [-1, 1.5, "3", None, True, np.ones(2, np.int32)])
def test_numbers_of_iterations_that_are_none(n: Any) -> None:
    with pytest.raises(LoopTypeError, match="number of iterations"):
        ipu.compile(lambda x: repeat(n, lambda x: x, [x]))(1.0)


def test_conditions_that_are_none() -> None:
    for condition in (lambda x: x, lambda x: jnp.ones(2, bool)):
        with pytest.raises(LoopTypeError, match="one boolean"):
            ipu.compile(lambda x, c=condition: while_loop(c, lambda x: x, [x]))(1.0)


def test_something_else_in_the_place_of_an_infeed() -> None:
    not_a_queue: Any = [1, 2, 3]
    with pytest.raises(LoopTypeError, match="IPUInfeedQueue"):
        ipu.compile(lambda x: repeat(2, lambda x, y: x, [x], not_a_queue))(1.0)


def test_an_exception_in_a_body_is_the_users_own() -> None:
    source, sink = infeed(incr(3, ())), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        raise OutOfDiskError("while tracing")

    with pytest.raises(OutOfDiskError, match="while tracing"):
        ipu.compile(lambda: repeat(2, body, [0.0], source))()
    assert not sink.running
    assert total_of(source, 3) == 3  # nothing was lost


# --- leaks ----------------------------------------------------------------------------------------


def test_a_value_that_leaked_out_of_a_compiled_function() -> None:
    kept: list[Any] = []

    @ipu.compile
    def leaks(x: jax.Array) -> jax.Array:
        with ipu_shard(0):
            kept.append(x * 2)
        return x

    @ipu.compile
    def uses_it(x: jax.Array) -> jax.Array:
        return x + kept[0]  # here

    leaks(1.0)
    with pytest.raises(LeakedValueError) as caught:
        uses_it(1.0)
    assert isinstance(caught.value, ValueError)
    says(caught.value, "leak", "`uses_it`", "return", where(uses_it, "# here"))
    with pytest.raises(jax.errors.UnexpectedTracerError):
        _ = kept[0] + 1  # outside of compiled code it is JAX's own error
    kept.clear()


def test_a_value_that_leaked_out_of_a_loop_body() -> None:
    kept: list[Any] = []

    def body(x: jax.Array) -> jax.Array:
        kept.append(x)
        return x + 1

    def program(x: jax.Array) -> jax.Array:
        return repeat(3, body, [x]) + kept[0]

    with pytest.raises(LeakedValueError, match="leak"):
        ipu.compile(program)(1.0)
    kept.clear()


def test_a_leaked_value_among_the_arguments() -> None:
    kept: list[Any] = []
    ipu.compile(lambda x: kept.append(x))(1.0)
    with pytest.raises((LeakedValueError, jax.errors.UnexpectedTracerError)):
        ipu.compile(lambda x: x + 1)(kept[0])
    kept.clear()


# --- executables ----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["fast", "", None, "FUSED"])
def test_engines_that_are_none(engine: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ipu.compile(lambda x: x, engine=engine)
    says(caught.value, "engine", "'auto', 'fused', 'replay'")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", [3, None.__class__(), "f"])
def test_what_is_no_function(what: Any) -> None:
    if what is None:
        assert callable(ipu.compile(what)(lambda x: x))
        return
    with pytest.raises(TypeError, match="must be a function"):
        ipu.compile(what)


@pytest.mark.sampled(1)
@ENGINES
def test_an_executable_with_other_arguments(engine: str) -> None:
    def add(x: jax.Array, y: dict[str, jax.Array]) -> jax.Array:
        return x + y["a"]

    run = ipu.compile(add, engine=engine)
    executable = run.lower(f32(1), {"a": f32(1)}).compile()
    assert executable(f32(1), {"a": f32(2)}) == 3
    wanted = r"(?s)`add`.*float32\[3\].*f32|float32.*lower again"
    with pytest.raises(TypeError, match=wanted) as caught:
        executable(np.ones(3, f32), {"a": f32(1)})
    assert caught.value.__suppress_context__  # what JAX says of it is not shown
    with pytest.raises(TypeError, match="int32"):
        executable(np.int32(1), {"a": f32(1)})
    for wrong in ((f32(1),), (f32(1), {"b": f32(1)}), (f32(1), f32(1))):
        with pytest.raises(
            TypeError, match=r"`add` was lowered for arguments of structure"
        ) as refusal:
            executable(*wrong)
        assert __file__ in str(refusal.value.where)
        assert "fix:" in str(refusal.value)
    with pytest.raises(TypeError, match="float32"), events.record() as trace:
        executable(np.ones(2, f32), {"a": f32(1)})
    assert not trace  # nothing has run
    assert executable(f32(1), {"a": f32(2)}) == 3


# --- NaN and infinity -----------------------------------------------------------------------------


@pytest.mark.sampled(1)
@ENGINES
def test_nan_and_infinity_pass_through(engine: str) -> None:
    run = ipu.compile(lambda x: (x / 0, jnp.log(x), x * 3e38), engine=engine)
    x = f32([0, -1, 1, np.inf, np.nan])
    got, wanted = run(x), jax.jit(lambda x: (x / 0, jnp.log(x), x * 3e38))(x)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def catching(*names: str, ipus: int = 1) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    for name in names:
        setattr(config.floating_point_behaviour, name, True)
    config.configure_ipu_system()


def divide(x: jax.Array) -> jax.Array:
    return 1 / x  # the fault


def plain(x: jax.Array) -> jax.Array:
    return divide(x) + 1


def nested_jit(x: jax.Array) -> jax.Array:
    return jax.jit(lambda x: jax.jit(divide)(x) * 2)(x)


def in_a_scan(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, _: (c + divide(c), None), x, None, length=3)[0]


def in_stacked_results(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, y: (c, divide(y)), x, jnp.stack([x, x]))[1].sum()


def in_a_while(x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, divide(c[1])), (0, x))[1]


def in_a_condition(x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda c: divide(x) + c < 3, lambda c: c + 1, x)


def in_a_branch(x: jax.Array) -> jax.Array:
    return jax.lax.cond(x < 1, divide, lambda x: x, x)


def in_a_fori(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda i, c: c + divide(x), x)


def in_a_custom_derivative(x: jax.Array) -> jax.Array:
    @jax.custom_jvp
    def f(x: jax.Array) -> jax.Array:
        return divide(x)

    f.defjvp(lambda p, t: (divide(p[0]), t[0]))
    return f(x)


def in_a_gradient(x: jax.Array) -> jax.Array:
    return jax.grad(lambda y: divide(y + x))(jnp.zeros_like(x))


def in_a_checkpoint(x: jax.Array) -> jax.Array:
    return jax.checkpoint(divide)(x)


def in_a_repeat(x: jax.Array) -> jax.Array:
    return repeat(3, lambda c: c + divide(x), [x])


def in_a_repeat_with_queues(x: jax.Array) -> jax.Array:
    source, sink = infeed(incr(10, ())), outfeed()

    def body(c: jax.Array, y: jax.Array) -> jax.Array:
        sink.enqueue(c)
        return c + divide(y * x + x)

    return repeat(5, body, [x], source)


def in_nested_repeats(x: jax.Array) -> jax.Array:
    return repeat(2, lambda c: in_a_repeat_with_queues(x) + c, [x])


def in_a_vmap(x: jax.Array) -> jax.Array:
    return jax.vmap(divide)(jnp.stack([x, x + 1])).sum()


def on_a_shard(x: jax.Array) -> jax.Array:
    with ipu_shard(0):
        y = x + 1
    with ipu_shard(1):
        return y + divide(x)


def on_the_host(x: jax.Array) -> jax.Array:
    with ipu.scopes.outside_compilation_scope():
        y = x + 1
    return divide(x) + y


PLACES = [
    plain,
    nested_jit,
    in_a_scan,
    in_stacked_results,
    in_a_while,
    in_a_condition,
    in_a_branch,
    in_a_fori,
    in_a_custom_derivative,
    in_a_gradient,
    in_a_checkpoint,
    in_a_repeat,
    in_a_repeat_with_queues,
    in_nested_repeats,
    in_a_vmap,
    on_a_shard,
    on_the_host,
]


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize(
    ("program", "ipus"),
    [*((program, 4) for program in PLACES), (plain, 1), (in_a_repeat_with_queues, 1)],
)
def test_a_division_by_zero_is_caught_wherever_it_is(
    program: Callable[..., Any], ipus: int, engine: str
) -> None:
    """On four IPUs there are four replicas, or two of the program with two shards."""
    catching("div0", ipus=ipus)
    run = ipu.compile(program, engine=engine)
    with pytest.raises(FloatingPointError) as caught:
        run(f32(0))
    assert isinstance(caught.value, builtins.FloatingPointError)
    assert isinstance(caught.value, ArithmeticError)
    says(caught.value, "division by zero in `divide`", "div", where(divide, "# the fault"))
    says(caught.value, "floating_point_behaviour")
    assert np.isfinite(np.asarray(run(f32(0.5)))).all()


@pytest.mark.sampled(2)
@ENGINES
@pytest.mark.parametrize(
    ("name", "fn", "x", "kind", "operation"),
    [
        ("inv", lambda x: x / x, 0.0, "invalid", "div"),
        ("inv", jnp.sqrt, -1.0, "invalid", "sqrt"),
        ("inv", jnp.log, -1.0, "invalid", "log"),
        ("inv", lambda x: x - x, np.inf, "invalid", "sub"),
        ("div0", lambda x: 1 / x, 0.0, "division by zero", "div"),
        ("div0", jnp.log, 0.0, "division by zero", "log"),
        ("div0", jax.lax.rsqrt, 0.0, "division by zero", "rsqrt"),
        ("oflo", lambda x: x * x, 1e30, "overflow", "mul"),
        ("oflo", jnp.exp, 1e3, "overflow", "exp"),
        ("oflo", lambda x: x.astype(jnp.float16), 1e6, "overflow", "convert_element_type"),
        ("oflo", lambda x: x / 1e-30, 1e30, "overflow", "div"),
    ],
)
def test_kinds_of_faults(
    name: str, fn: Any, x: float, kind: str, operation: str, engine: str
) -> None:
    catching(name)
    with pytest.raises(FloatingPointError) as caught:
        ipu.compile(lambda x: fn(x), engine=engine)(f32(x))
    word = word_of_primitive(operation)
    detail = "" if word == operation else f" ({operation})"
    says(caught.value, re.escape(f"{kind} in `{word}`{detail}"), "test_bad_input.py:")
    other = {"inv": "div0", "div0": "oflo", "oflo": "inv"}[name]
    catching(other)
    ipu.compile(lambda x: fn(x), engine=engine)(f32(x))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", [("inv",), ("div0",), ("oflo",), ("inv", "div0", "oflo")])
def test_nan_and_infinity_that_came_in_are_no_faults(names: tuple[str, ...]) -> None:
    catching(*names)
    run = ipu.compile(lambda x: (x + 1, x * 2, jnp.maximum(x, 0), x[::-1], jnp.sum(x)))
    results = run(f32([1, np.nan, np.nan]))
    assert np.isnan(results[0][1])
    assert np.isinf(run(f32([1, np.inf, 2]))[1][1])


def test_only_one_replica_divides_by_zero() -> None:
    catching("div0", ipus=2)
    run = ipu.compile(lambda x: x / (1 - replication_index()))
    with pytest.raises(FloatingPointError, match="division by zero"):
        run(f32(1))


def test_what_was_enqueued_before_a_fault_stays() -> None:
    catching("div0")
    source, sink = infeed(np.float32([3, 2, 1, 0, 1])), outfeed()

    def body(v: jax.Array, x: jax.Array) -> jax.Array:
        sink.enqueue(x)
        return v + 1 / x

    with pytest.raises(FloatingPointError, match="division by zero"):
        ipu.compile(lambda: repeat(5, body, [0.0], source))()
    sent = sink.dequeue()
    np.testing.assert_array_equal(sent[:4], [3, 2, 1, 0])


def test_without_the_configuration_nothing_is_caught() -> None:
    catching("div0")
    run = ipu.compile(plain)
    with pytest.raises(FloatingPointError):
        run(f32(0))
    configure(1)
    assert np.isinf(run(f32(0)))


def test_every_error_is_an_ipu_error() -> None:
    members = [getattr(ipu.errors, name) for name in dir(ipu.errors)]
    own = [e for e in members if isinstance(e, type) and issubclass(e, Exception)]
    assert len(own) > 15
    assert all(issubclass(error, IPUError) for error in own)


@pytest.mark.parametrize(
    "given", [{"device": 3}, {"static_argnums": "x"}, {"engine": "x"}, {"name": 3}]
)
def test_options_of_a_decorator_are_looked_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(IPUError, match=r"test_bad_input.py|ipu.compile|engine"):
        ipu.compile(**given)
