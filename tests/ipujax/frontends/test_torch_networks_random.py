"""Random operators of PyTorch: moments, shapes, and that each call draws apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
F: Any = torch.nn.functional

from ipujax.doors.torch import to_jax  # noqa: E402
from ipujax.errors import FrontendError  # noqa: E402
from ipujax.frontends import from_torch  # noqa: E402
from tests.ipujax.frontends.beside_torch import Functions  # noqa: E402

N = 4000
ONES = torch.ones(N)


def drawn(*functions: Any, inputs: Any = (), seed: int = 0) -> list[Any]:
    """What functions of PyTorch give as JAX draws it."""
    model = from_torch(Functions(*functions), inputs)
    values = [to_jax(tensor) for tensor in inputs]
    apply = jax.jit(lambda key: model.apply(model.variables, *values, key=key)[0])
    return jax.tree.leaves(apply(jax.random.key(seed)))


ONLY_IN_PLACE = [
    (lambda: torch.empty(N).normal_(1, 2), 1, 2),
    (lambda: torch.empty(N).bernoulli_(0.3), 0.3, 0.21**0.5),
]
DRAWS = [
    *ONLY_IN_PLACE,
    (lambda: torch.rand(N), 0.5, 12**-0.5),
    (lambda: torch.randn(N), 0, 1),
    (lambda: torch.randint(7, (N,)), 3, 2),
    (lambda: torch.randint(-3, 4, (N,)), 0, 2),
    (lambda: torch.rand_like(ONES), 0.5, 12**-0.5),
    (lambda: torch.randn_like(ONES), 0, 1),
    (lambda: torch.randint_like(ONES, 1, 3), 1.5, 0.5),
    (lambda: torch.normal(2.0, 3.0, (N,)), 2, 3),
    (lambda: torch.normal(ONES, ONES * 2), 1, 2),
    (lambda: torch.empty(N).uniform_(-1, 3), 1, 4 * 12**-0.5),
    (lambda: torch.empty(N).exponential_(2.0), 0.5, 0.5),
    (lambda: torch.empty(N).geometric_(0.5), 2, 2**0.5),
    (lambda: torch.empty(N).log_normal_(0, 0.5).log(), 0, 0.5),
    (lambda: torch.zeros(N, dtype=torch.int32).random_(5), 2, 2**0.5),
    (lambda: torch.bernoulli(ONES * 0.3), 0.3, 0.21**0.5),
    (lambda: torch.poisson(ONES * 4), 4, 2),
    (lambda: torch.binomial(ONES * 10, ONES * 0.5), 5, 2.5**0.5),
    (lambda: torch.multinomial(torch.tensor([1.0, 0, 3]), N, True), 1.5, 0.75**0.5),
    (lambda: torch._standard_gamma(ONES * 4), 4, 2),
]  # fmt: skip


def assert_moments(cases: Any, results: Any) -> None:
    for number, (result, (_, mean, deviation)) in enumerate(zip(results, cases, strict=True)):
        assert result.shape == (N,), number
        np.testing.assert_allclose(result.mean(), mean, atol=5 * deviation / N**0.5, err_msg=number)
        np.testing.assert_allclose(result.std(), deviation, rtol=0.1, err_msg=number)


def test_moments_of_overloads_that_only_operators_in_place_have() -> None:
    assert_moments(ONLY_IN_PLACE, drawn(*(function for function, _, _ in ONLY_IN_PLACE)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(3))
def test_moments(part: int) -> None:
    cases = DRAWS[part::3]
    assert_moments(cases, drawn(*(function for function, _, _ in cases)))


@pytest.mark.exhaustive
def test_calls_draw_apart_and_again_the_same() -> None:
    functions = [lambda: torch.rand(8), lambda: torch.rand(8)]
    first, second = drawn(*functions)
    again, _ = drawn(*functions)
    other, _ = drawn(*functions, seed=1)
    assert not jnp.array_equal(first, second)
    assert jnp.array_equal(first, again)
    assert not jnp.array_equal(first, other)


def test_branches_draw_apart() -> None:
    """The key of a graph inside another is one of its own."""

    def inside(x: Any) -> Any:
        with torch.no_grad():
            noise = torch.rand(8)
        return noise + x

    outer, inner = drawn(lambda x: torch.rand(8) + x, inside, inputs=(torch.zeros(8),))
    assert not jnp.array_equal(outer, inner)


def test_draws_without_replacement() -> None:
    order, picked = drawn(
        lambda: torch.randperm(9), lambda: torch.multinomial(torch.tensor([[1.0, 2, 0, 1]] * 50), 3)
    )
    assert sorted(np.asarray(order)) == list(range(9))
    assert picked.shape == (50, 3)
    assert all(sorted(row) == [0, 1, 3] for row in np.asarray(picked))


@pytest.mark.exhaustive
def test_dropouts() -> None:
    x = torch.ones(40, 50, 4)
    plain, channels, alpha, in_place = drawn(
        nn.Dropout(0.25), nn.Dropout1d(0.25), nn.AlphaDropout(0.25),
        lambda x: F.dropout(x * 2, 0.25, inplace=True), inputs=(x,),
    )  # fmt: skip
    for result, scale in ((plain, 1), (channels, 1), (in_place, 2)):
        assert set(np.unique(result).round(4)) == {0, np.float32(scale / 0.75).round(4)}
        assert abs(result.mean() - scale) < 0.1 * scale
    assert jnp.array_equal(channels, jnp.broadcast_to(channels[..., :1], channels.shape))
    assert len(np.unique(alpha)) == 2


def test_alpha_dropout_keeps_moments() -> None:
    (result,) = drawn(nn.AlphaDropout(0.3), inputs=(torch.randn(20000),))
    assert abs(result.mean()) < 0.05
    assert abs(result.std() - 1) < 0.05


def test_dropout_draws_in_pairs() -> None:
    """Both halves of a number drop with the probability, and apart; an odd one is left over."""
    (result,) = drawn(nn.Dropout(0.2), inputs=(torch.ones(20001),))
    kept = np.asarray(result) > 0
    first, second = kept[:10000], kept[10001:]
    for half in (first, second):
        assert abs(half.mean() - 0.8) < 0.02
    assert abs((first & second).mean() - 0.64) < 0.025


def test_dropout_of_nothing_and_of_all() -> None:
    x = torch.ones(3, 4)
    none, everything, in_evaluation = drawn(
        nn.Dropout(0.0), nn.Dropout(1.0), nn.Dropout(0.5).eval(), inputs=(x,)
    )
    assert jnp.array_equal(none, in_evaluation)
    assert not everything.any()


@pytest.mark.exhaustive
def test_dropout_in_layers() -> None:
    layer = nn.LSTM(3, 4, 2, dropout=0.5)
    x = torch.randn(5, 2, 3)
    model = from_torch(layer, (x,))
    given = to_jax(x)
    one, other = (
        model.apply(model.variables, given, key=jax.random.key(seed))[0][0] for seed in (0, 1)
    )
    assert not jnp.array_equal(one, other)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(2))
def test_distributions(part: int) -> None:
    options = {"validate_args": False}
    d = torch.distributions

    def sample(distribution: Any) -> Any:
        return lambda: distribution().sample((N,))

    cases = [
        (sample(lambda: d.Normal(1.0, 2.0, **options)), 1, 2),
        (sample(lambda: d.Uniform(0.0, 4.0, **options)), 2, 4 * 12**-0.5),
        (sample(lambda: d.Bernoulli(torch.tensor(0.3), **options)), 0.3, 0.21**0.5),
        (sample(lambda: d.Exponential(torch.tensor(2.0), **options)), 0.5, 0.5),
        (sample(lambda: d.Gamma(torch.tensor(4.0), torch.tensor(2.0), **options)), 2, 1),
        (sample(lambda: d.Beta(torch.tensor(2.0), torch.tensor(2.0), **options)), 0.5, 20**-0.5),
        (sample(lambda: d.Categorical(torch.tensor([1.0, 0, 3]), **options)), 1.5, 0.75**0.5),
    ]
    cases = cases[part::2]
    assert_moments(cases, drawn(*(function for function, _, _ in cases)))


def test_draws_need_a_key() -> None:
    model = from_torch(nn.Dropout(0.5), (ONES,))
    with pytest.raises(FrontendError, match="there is no key"):
        model.apply(model.variables, to_jax(ONES))


def test_randomized_leaky_relu() -> None:
    (result,) = drawn(nn.RReLU(0.1, 0.3), inputs=(-ONES,))
    assert result.min() > -0.3
    assert result.max() < -0.1
    np.testing.assert_allclose(result.mean(), -0.2, atol=0.01)
