"""Static and donated arguments by number and name: what is not said follows, as in `jax.jit`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ConfigError, ConfigTypeError
from tests.numbers import same, use_ipus

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def scaled(x: Any, n: Any, /, rows: int = 2, *, flip: bool = False) -> Any:
    return (x * n if flip else x + n).reshape(rows, -1)


CHOICES: list[dict[str, Any]] = [
    {"static_argnames": ("rows", "flip")},
    {"static_argnums": (2,), "static_argnames": ("flip", "rows")},
    {"static_argnums": (1, 2), "static_argnames": ["flip", "rows"]},
    {"static_argnums": None, "static_argnames": {"rows", "flip"}},
]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((X, 3), {}),
    ((X, 3, 3), {"flip": True}),
    ((X, 3), {"rows": 3, "flip": False}),
    ((X, 3), {"flip": True, "rows": 6}),
]


@pytest.mark.parametrize("engine", ["auto", "replay"])
@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_what_is_static_is_what_jit_takes_for_static(number: int, engine: str) -> None:
    use_ipus(2)
    chosen = CHOICES[number]
    run, plain = ipu.compile(scaled, engine=engine, **chosen), jax.jit(scaled, **chosen)
    for args, kwargs in CALLS:
        same(run(*args, **kwargs), plain(*args, **kwargs))
        same(run.lower(*args, **kwargs).compile()(*args, **kwargs), plain(*args, **kwargs))


def test_methods_and_partials_know_their_names() -> None:
    class Net:
        def __init__(self, by: int):
            self.by = by
            self.step = ipu.compile(self.shaped, static_argnames="rows")

        def shaped(self, x: Any, rows: int) -> Any:
            return x.reshape(rows, -1) * self.by

        @functools.partial(ipu.compile, static_argnames=("self", "rows"))
        def decorated(self, x: Any, rows: int) -> Any:
            return x.reshape(rows, -1) * self.by

    use_ipus(2)
    net = Net(4)
    for run in (net.step, net.decorated):
        same(run(X, 3), jnp.asarray(X.reshape(3, 2) * 4))
        same(run(X, rows=1), jnp.asarray(X.reshape(1, 6) * 4))
    part = functools.partial(scaled, X)
    run, plain = (wrap(part, static_argnames=("rows",)) for wrap in (ipu.compile, jax.jit))
    same(run(3, 6), plain(3, 6))
    same(run(3, rows=1), plain(3, rows=1))


@pytest.mark.parametrize("engine", ["auto", "replay"])
@pytest.mark.parametrize(
    "chosen", [{"donate_argnames": "state"}, {"donate_argnums": 0}, {"donate_argnames": ["state"]}]
)
def test_donated_arguments_are_given_away(chosen: dict[str, Any], engine: str) -> None:
    use_ipus(2)

    def step(state: Any, x: Any) -> Any:
        return jax.tree.map(lambda s: s + x, state)

    run = ipu.compile(step, engine=engine, **chosen)
    for by_keyword in (False, True):
        state, x = {"w": jnp.ones(3), "b": jnp.zeros(3)}, jnp.full(3, 2.0)
        got = run(x=x, state=state) if by_keyword else run(state, x)
        np.testing.assert_array_equal(got["w"], np.full(3, 3.0))
        assert all(leaf.is_deleted() for leaf in state.values())
        assert not x.is_deleted()
    (spare,) = {run.lower(state=state, x=x).compile().lowered.signature.donated for _ in "1"}
    assert len(spare) == 2


def test_donated_by_name_only_where_jit_does() -> None:
    use_ipus(1)
    for wrap in (ipu.compile, jax.jit):
        run = wrap(lambda *, state: state + 1, donate_argnames="state")
        state = jnp.ones(3)
        run(state=state)
        assert state.is_deleted()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"static_argnames": "q"}, r"static_argnames .* 'q'.*\n.*fix: .*'rows', 'flip'"),
        ({"static_argnames": "x"}, r"static_argnames .* 'x', which .* by keyword"),
        ({"donate_argnames": ["rows", "z"]}, "donate_argnames .* 'z'"),
        ({"static_argnums": 5}, "static_argnums .* 5, and the function takes 3 arguments"),
        ({"donate_argnums": -4}, "donate_argnums .* -4"),
        ({"static_argnums": 2, "donate_argnames": "rows"}, "'rows' in common"),
    ],
)
def test_arguments_that_are_not_there_are_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ipu.compile(scaled, **chosen)
    with pytest.raises(ValueError, match="arg"):
        jax.jit(scaled, **chosen)


@pytest.mark.parametrize(
    "chosen", [{"static_argnames": 3}, {"donate_argnames": [1]}, {"static_argnums": "x"}]
)
def test_numbers_and_names_are_not_mixed_up(chosen: dict[str, Any]) -> None:
    with pytest.raises(ConfigTypeError, match="an entry of"):
        ipu.compile(**chosen)
