"""Functions of compiled libraries: values, derivatives, and what is refused."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.custom_ops import cpu_user_operation, precompiled_user_op
from ipujax.errors import CustomOpError, LoweringError
from ipujax.operators.custom.run_custom_op import call_through_host, run_on_host_cpu
from lowering.ops import user_ops
from tests.conftest import RunWithDevices
from tests.harness import ROOT
from tests.ipujax.building import built, compiler

f32, f16, i32 = np.float32, np.float16, np.int32
OPERATORS = (precompiled_user_op, cpu_user_operation)
WRAPS: dict[str, Callable[..., Any]] = {
    "eager": lambda f: f,
    "jit": jax.jit,
    "fused": lambda f: ipu.compile(f, engine="fused"),
    "replay": lambda f: ipu.compile(f, engine="replay"),
}
both = pytest.mark.parametrize("operator", OPERATORS)
wrapped = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)


def outs(*results: tuple[Any, tuple[int, ...]]) -> dict[str, Any]:
    types, shapes = [list(each) for each in zip(*results, strict=True)]
    return {"output_types": types, "output_shapes": shapes}


def product(x: Any, y: Any, z: Any, operator: Any = precompiled_user_op, **options: Any) -> Any:
    options = {"inputs_with_gradients": [2, 0], "op_name": "Product3", **options}
    path = built("functions.cc")
    (result,) = operator([x, y, z], path, outs=outs((x.dtype, x.shape)), **options)
    return result


def negate(x: Any, operator: Any = precompiled_user_op) -> Any:
    path = built("functions.cc")
    return operator([x], path, outs=outs((x.dtype, x.shape)), op_name="Negate")[0]


@pytest.mark.sampled(1)
@pytest.mark.fact("custom_ops.user_op_multi")
@both
@wrapped
def test_two_instances_of_an_operation(wrap: Callable[..., Any], operator: Any) -> None:
    def called(*inputs: Any) -> Any:
        results = outs(*((x.dtype, x.shape) for x in inputs))
        return operator(list(inputs), built("functions.cc"), outs=results, op_name="Build")

    def model(x: Any, y: Any, z: Any) -> Any:
        return called(x, y, z), called(x + 1, y + 1, z + 1)

    first, second = wrap(model)(np.ones(20, f32), np.ones((5, 2), f32), np.ones(10, f32))
    assert isinstance(first, list)
    for i, shape in enumerate([(20,), (5, 2), (10,)]):
        np.testing.assert_array_equal(first[i], np.full(shape, i + 2, f32))
        np.testing.assert_array_equal(second[i], np.full(shape, i + 3, f32))


def mixed(a: Any, b: Any) -> Any:
    results = outs((f32, a.shape), (i32, b.shape), (f32, ()))
    return cpu_user_operation([a, b], built("functions.cc"), outs=results)


@pytest.mark.fact("custom_ops.cpu_user_op")
@wrapped
def test_mixed_types(wrap: Callable[..., Any]) -> None:
    x, y, total = wrap(mixed)(np.ones(20, f32), np.full((10, 10, 10), 6, i32))
    np.testing.assert_array_equal(x, np.full(20, 7, f32))
    np.testing.assert_array_equal(y, np.full((10, 10, 10), 3))
    assert y.dtype == i32
    assert total == 3140.0


def test_integers_have_no_gradients() -> None:
    def loss(a: Any, b: Any) -> Any:
        x, _, total = mixed(a, b)
        return 2 * x.sum() + total

    gradient = jax.grad(loss)(jnp.ones(4), jnp.ones((2, 1, 1), i32))
    np.testing.assert_array_equal(gradient, np.full(4, 3))


@pytest.mark.sampled(9)
@pytest.mark.fact("custom_ops.partial_gradients")
@both
@wrapped
@pytest.mark.parametrize("separate", [False, True])
def test_partial_gradients(wrap: Callable[..., Any], operator: Any, separate: bool) -> None:
    inputs = [0, 1] if separate else [2, 0]

    def loss(*xyz: Any) -> Any:
        options = {"separate_gradients": separate, "inputs_with_gradients": inputs}
        return (product(*xyz, operator, **options) ** 2).sum()

    random = np.random.default_rng(0)
    xyz = [random.uniform(1, 2, (2, 3)).astype(f32) for _ in range(3)]
    found = wrap(jax.grad(loss, (0, 1, 2)))(*xyz)
    plain = jax.grad(lambda x, y, z: ((x * y * z) ** 2).sum(), (0, 1, 2))(*xyz)
    for i in range(3):
        wanted = plain[i] if i in inputs else np.zeros((2, 3))
        np.testing.assert_allclose(found[i], wanted, rtol=1e-5)


@both
@pytest.mark.parametrize("dtype", [f32, f16])
def test_dtypes(operator: Any, dtype: Any) -> None:
    x = jnp.array([1.5, -2.0, 0.0], dtype)
    run = ipu.compile(jax.value_and_grad(lambda x: (3 * negate(x, operator)).sum()))
    value, gradient = run(x)
    assert value.dtype == gradient.dtype == dtype
    assert value == 1.5
    np.testing.assert_array_equal(gradient, np.full(3, -3))


@both
def test_attributes(operator: Any) -> None:
    def letters(attributes: str | None) -> str:
        (codes,) = operator(
            [],
            built("functions.cc"),
            outs=outs((i32, (8,))),
            op_name="Letters",
            attributes=attributes,
        )
        return "".join(map(chr, np.asarray(codes))).rstrip("\0")

    assert [letters(text) for text in (None, "", '{"a":1}')] == ["", "", '{"a":1}']
    x = jnp.full(2, 3.0)
    for text, factor in ((None, 1), ("double", 2)):
        given = functools.partial(product, operator=operator, gradient_attributes=text)
        gradient = jax.grad(lambda x, given=given: given(x, x, x).sum())(x)
        np.testing.assert_array_equal(gradient, np.full(2, factor * 2 * 9))


@pytest.mark.sampled(3)
@both
@wrapped
def test_vmap_is_one_by_one(wrap: Callable[..., Any], operator: Any) -> None:
    x, y = np.arange(12.0, dtype=f32).reshape(2, 3, 2) + 1, np.ones((2, 3), f32)
    z = jnp.full(2, 2.0)
    inner = jax.vmap(lambda x, y: product(x, y, z, operator), in_axes=(0, None))
    run = wrap(jax.vmap(inner, in_axes=(1, 1), out_axes=1))
    # Outside: x[:, i] of [2, 2] with y[:, i] of [2]; inside: each row of x with the same y.
    np.testing.assert_allclose(run(x, y), 2 * x * y.T[None], rtol=1e-6)


@both
def test_gradient_of_vmap_and_remat(operator: Any) -> None:
    x = jnp.arange(6.0).reshape(3, 2) + 1

    def loss(x: Any, each: Callable[..., Any]) -> Any:
        ones = jnp.ones(2)
        return jax.vmap(each)(x, ones[None].repeat(3, 0)).sum()

    each = lambda x, y: product(x, y, x, operator)  # noqa: E731
    for function in (each, jax.checkpoint(each)):
        np.testing.assert_allclose(jax.grad(loss)(x, function), 2 * x, rtol=1e-6)


@both
@wrapped
def test_without_results(wrap: Callable[..., Any], operator: Any) -> None:
    path = built("functions.cc")
    told = ctypes.CDLL(path).told

    def model(x: Any) -> Any:
        assert operator([x], path, op_name="Tell") == []
        return x + 1

    jax.block_until_ready(wrap(model)(np.array([3, 4], i32)))
    assert told() == 7
    if wrap is jax.jit:
        jax.block_until_ready(wrap(jax.vmap(model))(np.array([[1], [2], [3]], i32)))
        assert told() == 6
        loop = lambda x: jax.lax.fori_loop(0, 3, lambda _, x: model(x), x)  # noqa: E731
        jax.block_until_ready(wrap(loop)(np.array([0], i32)))
        assert told() == 3


def test_on_other_devices_the_host_runs_it() -> None:
    negate(jnp.ones(3))  # registers the target
    target = f"ipujax:{os.path.realpath(built('functions.cc'))}:Negate"
    op = user_ops.UserOp("negate", target, "", (((3,), "float32"),))
    np.testing.assert_array_equal(run_on_host_cpu(op, jnp.arange(3.0))[0], [0, -1, -2])
    jitted = jax.jit(functools.partial(call_through_host, op=op))
    assert "pure_callback" in str(jitted.trace(jnp.ones(3)).jaxpr)


# --- what is refused -----------------------------------------------------------------------------


GOOD: dict[str, Any] = {"outs": outs((f32, (3,))), "op_name": "Negate"}


@both
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"outs": {"output_types": [f32]}}, r"outs is a dict with the keys \['output_types'\]"),
        ({"outs": [f32]}, "outs is no dict"),
        ({"outs": {"output_types": f32, "output_shapes": [[3]]}}, "output_types is .*, no list"),
        ({"outs": {"output_types": [f32], "output_shapes": []}}, "1 output_types and 0 output_sh"),
        ({"outs": outs((f32, (-1,)))}, r"a shape in output_shapes is \(-1,\)"),
        ({"outs": outs((f32, ("a",)))}, "a shape in output_shapes"),
        ({"outs": outs(("float33", (1,)))}, "a dtype in output_types is 'float33'"),
        ({"outs": outs((np.float64, (1,)))}, "(?s)JAX holds no float64.*jax_enable_x64"),
        ({"name": ""}, "name is ''"),
        ({"op_name": None}, "op_name is None"),
        ({"op_name": "Missing"}, "(?s)has no function 'Missing'.*fix:.*nm -D"),
        ({"separate_gradients": 1}, "separate_gradients is 1"),
        ({"attributes": b"x"}, "attributes is b'x'"),
        ({"gradient_attributes": 1}, "gradient_attributes is 1"),
        ({"inputs_with_gradients": [1]}, r"inputs_with_gradients is \[1\], of 1 inputs"),
        ({"inputs_with_gradients": [0, 0]}, "inputs_with_gradients"),
        ({"inputs_with_gradients": 0}, "inputs_with_gradients is 0"),
        ({"library_path": "/no/such.so"}, r"(?s)there is no library '/no/such.so'.*fix:.*build"),
        ({"library_path": None}, "library_path is None"),
        ({"inputs": np.ones(3)}, "inputs is array.*must be a list or tuple of arrays"),
        ({"inputs": ["text"]}, "an input cannot be an array"),
        ({"inputs": [None]}, "an input cannot be an array: .*None"),
        ({"outs": outs((None, (1,)))}, "a dtype in output_types is None"),
        ({"op_name": "told"}, "(?s)'told' of .* is no XLA FFI handler.*fix:"),
    ],
)
def test_arguments_that_are_refused(operator: Any, changed: dict[str, Any], message: str) -> None:
    arguments = {"inputs": [jnp.ones(3)], "library_path": built("functions.cc"), **GOOD, **changed}
    with pytest.raises(CustomOpError, match=message) as caught:
        operator(**arguments)
    assert "fix:" in str(caught.value)
    assert "test_custom_ops.py" in str(caught.value)


@both
def test_files_that_are_missing(operator: Any) -> None:
    with pytest.raises(FileNotFoundError, match="there is no library") as caught:
        operator([jnp.ones(3)], "missing.so", **GOOD)
    assert isinstance(caught.value, CustomOpError)


def test_errors_name_the_users_line_from_the_first(run_with_devices: RunWithDevices) -> None:
    source = """
        import jax.numpy as jnp
        from ipujax.custom_ops import precompiled_user_op
        try:
            precompiled_user_op([jnp.ones(3)], "missing.so")
        except FileNotFoundError as error:
            print(str(error).splitlines()[1])
    """
    assert run_with_devices(1, source).endswith(".py:5 (<module>)\n")


@both
def test_no_library_at_all(operator: Any, tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(CustomOpError, match=r"(?s)text.so' cannot be loaded: .*fix:.*-shared"):
        operator([jnp.ones(3)], text, **GOOD)


@pytest.mark.fact("custom_ops.api_level")
@both
def test_a_library_for_poplar(operator: Any) -> None:
    with pytest.raises(CustomOpError, match=r"was written for Poplar .*custom_op_api_level = 5"):
        operator([jnp.ones(3)], built("poplar.cc"), **{**GOOD, "op_name": "Build"})


@pytest.mark.exhaustive
@pytest.mark.fact("custom_ops.api_level")
def test_a_library_for_another_version_of_the_interface(tmp_path: Path) -> None:
    header = Path("xla/ffi/api/c_api.h")
    text = (Path(jax.ffi.include_dir()) / header).read_text()
    newer = re.sub(r"(#define XLA_FFI_API_MAJOR) \d+", r"\1 99", text)
    assert newer != text
    (tmp_path / header).parent.mkdir(parents=True)
    (tmp_path / header).write_text(newer)
    path = built("functions.cc", before=str(tmp_path), name="newer")
    for operator in OPERATORS:
        with pytest.raises(CustomOpError, match=r"(?s)XLA refuses 'Negate'.*99.*fix:.*anew.*-I/"):
            operator([jnp.ones(3)], path, **GOOD)


def test_a_library_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "changing.so"
    shutil.copy(built("functions.cc"), path)
    precompiled_user_op([jnp.ones(3)], path, **GOOD)
    os.utime(path, ns=(0, 0))
    with pytest.raises(CustomOpError, match="has changed since"):
        precompiled_user_op([jnp.ones(3)], path, **GOOD)


def test_two_libraries_with_one_symbol(tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    shutil.copy(built("functions.cc"), other)
    for path in (built("functions.cc"), str(other)):
        np.testing.assert_array_equal(precompiled_user_op([jnp.ones(3)], path, **GOOD)[0], [-1] * 3)


@both
def test_gradients_that_are_missing(operator: Any) -> None:
    def loss(x: Any, **options: Any) -> Any:
        (codes,) = operator(
            [x, x, x],
            built("functions.cc"),
            outs=outs((f32, (3,)), (f32, (3,)), (f32, (3,))),
            op_name="Build",
            **options,
        )[:1]
        return codes.sum()

    assert loss(jnp.ones(3)) == 6
    with pytest.raises(CustomOpError, match="has no function 'Build_grad'") as caught:
        jax.grad(loss)(jnp.ones(3))
    assert "was differentiated" in caught.value.__notes__[0]
    with pytest.raises(CustomOpError, match="has no function 'Build_grad_1'"):
        jax.grad(lambda x: loss(x, separate_gradients=True, inputs_with_gradients=[1]))(jnp.ones(3))
    np.testing.assert_array_equal(
        jax.grad(lambda x: loss(x, inputs_with_gradients=[]))(jnp.ones(3)), np.zeros(3)
    )
    with pytest.raises(LoweringError, match="was itself differentiated"):
        jax.grad(lambda x: jax.grad(lambda x: (negate(x, operator) ** 2).sum())(x).sum())(
            jnp.ones(3)
        )


def test_what_xla_finds_when_it_runs() -> None:
    """Without a program there is one operation that can have failed."""
    where = r"where: `UserOp`, 'Negate' of .*functions.so, called at .*test_custom_ops.py:\d+ \(neg"
    with pytest.raises(CustomOpError, match=r"(?s)takes float16 and float32\n.*" + where) as caught:
        negate(jnp.ones(3, jnp.bfloat16))
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)


def test_codelets(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    codelet = tmp_path / "codelet.gp"
    arguments = ([jnp.ones(3)], built("functions.cc"))
    with pytest.raises(CustomOpError, match=r"there is no codelet .*codelet.gp"):
        precompiled_user_op(*arguments, gp_path=codelet, **GOOD)
    with pytest.raises(CustomOpError, match="gp_path is None"):
        precompiled_user_op(*arguments, gp_path=None, **GOOD)  # pyright: ignore
    codelet.write_text("")
    with caplog.at_level(logging.WARNING, "ipujax"):
        precompiled_user_op(*arguments, gp_path=codelet, **GOOD)
    assert "nothing is read from the codelet" in caplog.text


# --- the documentation ---------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_examples_of_the_documentation(run_with_devices: RunWithDevices, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "custom_operations.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["python", "text", "cpp", "sh", "python", "text"]
    (_, first), (_, printed), (_, source), (_, build), (_, second), (_, also) = blocks
    compiler()
    (tmp_path / "product.cc").write_text(source)
    command = build.replace("python -c", f"{sys.executable} -c").replace("-O2", "-O0")
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True)
    assert run_with_devices(1, first + second) == printed + also
