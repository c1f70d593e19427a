"""Python's iterators in loops on the device: refused where each iteration would get one element."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigTypeError, IPUError, LoopTypeError
from ipujax.ipu_strategy import IPUStrategy
from ipujax.loops import repeat, while_loop

f32 = np.float32


def elements() -> list[Any]:
    return [f32(k) for k in range(1, 9)]


def generated() -> Iterator[Any]:
    yield from elements()


class Stream:
    """An iterator of a user's own class."""

    def __init__(self) -> None:
        self._left = elements()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        return self._left.pop(0)


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter(elements()),
    "generator": generated,
    "expression": lambda: (each for each in elements()),
    "own class": Stream,
    "map": lambda: map(jnp.asarray, elements()),
    "zip": lambda: zip(elements(), elements(), strict=True),
    "expression of arrays": lambda: (jnp.float32(k) for k in range(8)),
    "numbers": lambda: iter([1.0, 2.0, 3.0]),
    "dicts": lambda: iter([{"x": each} for each in elements()]),
}


def first_of(element: Any) -> Any:
    return jax.tree.leaves(element)[0]


def run(body: Callable[[Any], Any]) -> Any:
    return ipu.compile(lambda: repeat(4, body, [f32(0)]))()


@pytest.mark.parametrize("kind", KINDS)
def test_next_in_a_loop_is_refused(kind: str) -> None:
    iterator = KINDS[kind]()
    with pytest.raises(LoopTypeError, match="every iteration would get this same") as caught:
        run(lambda c: c + first_of(next(iterator)))
    assert "IPUInfeedQueue" in caught.value.fix
    assert "test_python_iterators.py" in caught.value.where


own_iterator: Any = None


def test_wherever_the_iterator_is() -> None:
    global own_iterator
    own_iterator = iter(elements())
    in_dict = {"data": iter(elements())}
    default, partial, helped = iter(elements()), iter(elements()), iter(elements())
    loop_of, method_of = iter(elements()), iter(elements())

    class Model:
        def __init__(self) -> None:
            self.data = method_of

        def step(self, c: Any) -> Any:
            return c + next(self.data)

        def __call__(self, c: Any) -> Any:
            return self.step(c)

    def in_for(c: Any) -> Any:
        for x in loop_of:
            c = c + x
            break
        return c

    def helper() -> Any:
        return next(helped)

    model = Model()
    bodies: list[Callable[[Any], Any]] = [
        lambda c: c + next(own_iterator),
        lambda c: c + next(in_dict["data"]),
        lambda c, it=default: c + next(it),
        functools.partial(lambda it, c: c + next(it[0]), [partial]),
        lambda c: c + helper(),
        lambda c: c + own_iterator.__next__(),
        in_for,
        model,
        model.step,
        lambda c: model.step(c),
    ]
    for body in bodies:
        with pytest.raises(LoopTypeError, match="from a list_iterator of Python's"):
            run(body)
    assert type(own_iterator) is type(in_dict["data"]) is type(model.data) is type(iter([]))


def test_while_loops_and_their_conditions() -> None:
    iterator = iter(elements())
    bodies: list[tuple[Any, Any]] = [
        (lambda c: c < 9, lambda c: c + next(iterator)),
        (lambda c: c < next(iterator), lambda c: c + 1),
        (lambda c: c < 9, lambda c: c + sum(iterator)),
    ]
    for condition, body in bodies:
        with pytest.raises(LoopTypeError, match="every iteration would get"):
            ipu.compile(lambda b=body, t=condition: while_loop(t, b, [f32(0)]))()


def test_a_stage_of_a_pipeline() -> None:
    iterator = generated()
    stages = [lambda x: x + next(iterator), lambda x: x * 2]
    sink = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    source = ipu.ipu_infeed_queue.IPUInfeedQueue(elements())

    def model() -> Any:
        return ipu.pipelining_ops.pipeline(
            stages, 4, infeed_queue=source, outfeed_queue=sink, device_mapping=[0, 0]
        )

    with pytest.raises(LoopTypeError, match=r"stage 0 .* of the pipeline takes an element"):
        ipu.compile(model)()


def with_argument(iterator: Any, n: Any = 4) -> Any:
    return repeat(n, lambda c: c + next(iterator), [f32(0)])


CALLS: dict[str, Callable[[], Any]] = {
    "run": lambda: IPUStrategy().run(with_argument, [iter(elements()), 4]),
    "by name": lambda: IPUStrategy().run(with_argument, kwargs={"iterator": generated()}),
    "compile": lambda: ipu.compile(with_argument)(iter(elements())),
    "replay": lambda: ipu.compile(with_argument, engine="replay")(Stream()),
    "lower": lambda: ipu.compile(with_argument).lower(generated()),
    "in a list": lambda: ipu.compile(lambda pair: pair[0])([f32(1), iter(elements())]),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_iterator_as_an_argument_is_refused(call: str) -> None:
    with pytest.raises(ConfigTypeError, match=r"args.* is a .*, an iterator of Python's") as caught:
        CALLS[call]()
    assert "IPUInfeedQueue" in caught.value.fix
    assert " at 0x" not in str(caught.value)


def test_a_static_argument_is_watched_as_well() -> None:
    with pytest.raises(IPUError, match=r"list_iterator.* of Python's"):
        ipu.compile(with_argument, static_argnums=0)(iter(elements()))


# --- what is no mistake --------------------------------------------------------------------------


def test_iterators_that_give_no_data_may_be_used() -> None:
    numbers, names = itertools.count(), iter(["a", "b"])
    layers = iter([jnp.tanh, jnp.sin])
    keys = iter(jax.random.split(jax.random.key(0), 3))

    def body(c: Any) -> Any:
        scope = f"{next(names)}{next(numbers)}"
        with jax.named_scope(scope):
            inside = next(iter({"c": c}.values()))
            first = next(x for x in [f32(1), f32(2)])  # made here, and used up here
            noise = jax.random.uniform(next(keys))
            return next(layers)(inside) + first + 0 * noise

    assert float(run(body)) == pytest.approx(float(jax.jit(_four_times)(f32(0))))


def _four_times(c: Any) -> Any:
    for _ in range(4):
        c = jnp.tanh(c) + 1
    return c


def test_traced_values_of_the_function_around_may_be_taken() -> None:
    def scaled(weights: Any) -> Any:
        each = iter(weights)
        return repeat(3, lambda c: c * next(each), [f32(1)])

    assert ipu.compile(scaled)([f32(2), f32(3)]) == 8


def test_iterators_that_compute_traced_values_may_be_used() -> None:
    def scaled(weights: Any) -> Any:
        rows, doubled = iter(weights), map(lambda w: w * 2, weights)
        named = ((w, number) for number, w in enumerate(weights))
        return repeat(3, lambda c: c + next(rows) * next(doubled) * next(named)[0], [f32(1)])

    assert ipu.compile(scaled)(f32([1, 2])) == 1 + 3 * 2


def test_the_data_of_an_infeed_may_be_an_iterator_that_the_body_sees() -> None:
    iterator = iter(elements())
    source = ipu.ipu_infeed_queue.IPUInfeedQueue(iterator)

    def body(c: Any, x: Any) -> Any:
        assert source is not None
        assert iterator is not None
        return c + x

    assert ipu.compile(lambda: repeat(4, body, [f32(0)], source))() == 10
    assert next(iterator) is not None


def test_before_the_loop_an_element_may_be_taken() -> None:
    iterator = iter(elements())

    def total() -> Any:
        first = next(iterator)
        return repeat(4, lambda c: c + first, [f32(0)])

    assert ipu.compile(total)() == 4


def test_iterators_are_back_after_an_error_of_the_body() -> None:
    iterator = iter(["a"])

    def body(c: Any) -> Any:
        next(iterator)
        raise KeyError("not now")

    with pytest.raises(KeyError):
        run(body)
    assert type(iterator) is type(iter([]))


def test_other_errors_of_arguments_stay(capsys: Any) -> None:
    with pytest.raises(TypeError) as caught:
        ipu.compile(lambda x: x)(object())
    assert not isinstance(caught.value, LoopTypeError)
    assert issubclass(ConfigTypeError, IPUError)
