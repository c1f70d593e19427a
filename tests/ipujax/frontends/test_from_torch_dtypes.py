"""Numbers of PyTorch's dtypes in JAX, and back."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax.errors import FrontendError
from ipujax.frontends import from_torch

torch: Any = pytest.importorskip("torch")

from ipujax.doors.torch import jax_dtype_of, to_jax, to_torch  # noqa: E402
from tests.ipujax.frontends.beside_torch import Functions, same_as_torch  # noqa: E402

KEPT = (
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "int32", "int16", "int8", "uint8", "uint16", "uint32", "bool", "complex64",
)  # fmt: skip
NARROWED = {
    "float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64",
}  # fmt: skip


@pytest.mark.parametrize("name", [*KEPT, *NARROWED])
def test_tensors_come_back_as_they_were(name: str) -> None:
    whole = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 0.5]]).to(getattr(torch, name))
    narrow = getattr(torch, NARROWED.get(name, name))
    for tensor in (whole, whole.T, whole[:, ::2], whole[0, 0], whole[:0]):
        array = to_jax(tensor)
        assert (array.shape, array.dtype) == (tuple(tensor.shape), jax_dtype_of(narrow))
        back = to_torch(array)
        assert back.dtype == narrow
        assert back.to(torch.complex128).equal(tensor.to(torch.complex128))


def test_what_needs_gradients_or_is_a_conjugate_has_its_values() -> None:
    x = torch.tensor([1 + 2j, 3j], requires_grad=True)
    np.testing.assert_array_equal(to_jax(x.conj()), x.detach().numpy().conj())
    np.testing.assert_array_equal(to_jax(x.conj().imag), -x.detach().numpy().imag)


def test_variables_share_the_memory_of_parameters() -> None:
    module = torch.nn.Linear(16, 16)
    model = from_torch(module, (torch.zeros(1, 16),))
    for name, parameter in module.named_parameters():
        assert model.variables[name].unsafe_buffer_pointer() == parameter.data_ptr()


def test_the_extreme_integers_are_those_of_32_bits() -> None:
    info = torch.iinfo(torch.int64)
    extremes = to_jax(torch.tensor([info.min, 5, info.max]))
    np.testing.assert_array_equal(extremes, np.array([-(2**31), 5, 2**31 - 1]))
    function = Functions(lambda x: torch.where(x > 0, info.max, info.min))
    ((result,), _) = from_torch(function, (torch.zeros(2),)).apply({}, jnp.array([1.0, -1.0]))
    np.testing.assert_array_equal(result, np.array([2**31 - 1, -(2**31)]))


def test_integers_that_need_more_bits_are_refused() -> None:
    with pytest.raises(FrontendError, match="1099511627776 does not fit into the 32 bits"):
        to_jax(torch.tensor([1, 2**40]))
    for function in (lambda x: x.long() + 2**40, lambda x: torch.full((2,), 2**40) + x.long()):
        model = from_torch(Functions(function), (torch.zeros(2),))
        with pytest.raises(FrontendError, match="1099511627776"):
            model.apply({}, jnp.zeros(2))


def test_dtypes_without_a_counterpart_are_refused() -> None:
    with pytest.raises(FrontendError, match=r"the dtype torch\.complex32 is not supported"):
        jax_dtype_of(torch.complex32)


DTYPES = ("float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64", "float64")


@pytest.mark.parametrize("one", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
# What PyTorch says once in a process, to whichever variant comes first.
@pytest.mark.filterwarnings("ignore:Casting complex values to real discards:UserWarning")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.sampled(6)
def test_dtypes_are_promoted_as_by_pytorch(one: str, other: str) -> None:
    every = Functions(
        lambda x, y: x + y, lambda x, y: x * 2, lambda x, y: x[0] * y, lambda x, y: y * 0.5 + x,
        lambda x, y: torch.cat([x, y]), lambda x, y: torch.where(x == y, x, y),
        lambda x, y: x.to(y.dtype), lambda x, y: x / 2, lambda x, y: x.float() + y,
    )  # fmt: skip
    x, y = (torch.tensor([1, 0, 2]).to(getattr(torch, dtype)) for dtype in (one, other))
    # One complex number times halves is of complex32, which JAX does not have: the test below.
    functions = Functions(*(f for f in every.functions if f(x, y).dtype != torch.complex32))
    ((*results,), _) = from_torch(functions, (x, y)).apply({}, to_jax(x), to_jax(y))
    for result, wanted in zip(results, functions(x, y), strict=True):
        assert result.dtype == jax_dtype_of(wanted.dtype)
        np.testing.assert_allclose(
            np.asarray(result).astype(complex), wanted.to(torch.complex128), rtol=1e-2
        )


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_promotions_to_a_dtype_without_a_counterpart_are_refused() -> None:
    product = Functions(lambda x, y: x * y)
    with pytest.raises(FrontendError, match=r"the dtype torch\.complex32 is not supported"):
        from_torch(product, (torch.tensor(1j), torch.ones(2, dtype=torch.float16)))


def test_a_module_of_half_numbers() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).half()
    same_as_torch(module, torch.linspace(-1, 1, 8).reshape(2, 4).half(), limit=2e-3)


def test_autocast_computes_products_in_the_lower_dtype() -> None:
    class Cast(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.layer(x)
                z = torch.nn.functional.mse_loss(y, x)
            return y.float(), z

    module, x = Cast(), torch.linspace(-1, 1, 8).reshape(2, 4)
    model = from_torch(module, (x,))
    results, _ = model.apply(model.variables, to_jax(x))
    for result, wanted in zip(results, module(x), strict=True):
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, wanted.detach(), rtol=1e-2, atol=1e-2)
    np.testing.assert_array_equal(results[0], results[0].astype(jnp.bfloat16))


UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor "
    "isfinite isnan lgamma log log10 log1p log2 logical_not neg rad2deg reciprocal round rsqrt sgn "
    "sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc special.entr special.erfcx "
    "special.i0 special.i0e special.i1 special.ndtr special.log_ndtr special.xlog1py"
).split()


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool])
def test_numbers_of_numpy_are_promoted_as_pytorch_promotes(dtype: Any) -> None:
    x = torch.tensor([[0, 1, 2], [3, 1, 0]]).to(dtype)
    functions = []
    for name in UNARY:
        function = functools.reduce(getattr, name.split("."), torch)
        try:
            function(x)
        except (RuntimeError, TypeError):  # which PyTorch does not compute of this dtype
            continue
        functions.append(function)
    assert len(functions) > 35
    model = from_torch(Functions(*functions), (x,))
    results, _ = model.apply(model.variables, x.numpy())
    for function, mine in zip(functions, results, strict=True):
        wanted = function(x)
        assert mine.dtype == jax_dtype_of(wanted.dtype), function
        np.testing.assert_allclose(mine, wanted, 1e-5, 1e-6, err_msg=str(function))


WRITES: dict[str, Any] = {
    "index_put": lambda x, i: x.index_put((i,), x.new_ones(3)),
    "accumulated": lambda x, i: x.index_put((i,), x.new_ones(3), accumulate=True),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:3] * 2),
    "index_add": lambda x, i: x.index_add(0, i, x[:3]),
    "index_fill": lambda x, i: x.index_fill(0, i, 7),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:3], "amax"),
    "put": lambda x, i: x.put(i, x[:3, 0]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], x[:3]),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x[:3]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x[:3], "prod"),
    "slice_scatter": lambda x, i: x.slice_scatter(x[:2], 0, 1, 3),
    "select_scatter": lambda x, i: x.select_scatter(x[0], 0, 2),
    "diagonal_scatter": lambda x, i: x.diagonal_scatter(x[0, :3]),
    "masked_scatter": lambda x, i: x.masked_scatter(x > 3, x),
    "masked_fill": lambda x, i: x.masked_fill(x > 3, 1),
    "take": lambda x, i: x.take(i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "unpool": lambda x, i: torch.diag_embed(x),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", WRITES)
def test_arrays_of_numpy_are_written_to(name: str) -> None:
    x, index = torch.arange(12.0).reshape(4, 3) + 1, torch.tensor([3, 0, 2])
    model = from_torch(Functions(WRITES[name]), (x, index))
    results, _ = model.apply(model.variables, x.numpy(), index.numpy().astype(np.int32))
    np.testing.assert_allclose(results[0], WRITES[name](x, index))
