"""What cannot be saved says why, and where; arguments that do not fit, which they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.custom_ops import cpu_user_operation, precompiled_user_op
from ipujax.errors import ExecutableArgumentError, ExecutableError
from tests.ipujax.building import built
from tests.ipujax.saving import ENGINES, again, compiled, entries

f32 = np.float32
REF = jax.new_ref


def prints(x: jax.Array) -> jax.Array:
    jax.debug.print("{}", x)
    return x


def calls_back(x: jax.Array) -> jax.Array:
    return jax.pure_callback(np.sin, jax.typeof(x), x)


def in_a_loop(x: jax.Array) -> jax.Array:
    def body(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda: None)
        return x + 1

    return ipu.loops.repeat(3, body, [x])


def outside(x: jax.Array) -> jax.Array:
    with ipu.scopes.outside_compilation_scope():
        y = x * 2
    return y + 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (prints, "calls Python on the host"),
        (calls_back, "calls Python on the host"),
        (in_a_loop, "calls Python on the host"),
        (outside, "outside of the compiled code, on the host"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_the_host_does(
    program: Callable[..., Any], reason: str, engine: str, tmp_path: Path
) -> None:
    executable = compiled(program, f32(1), engine=engine)
    said = rf"(?s)`{program.__name__}` .*{reason}.*where: {__file__}:\d+ "
    with pytest.raises(ExecutableError, match=said):
        executable.save(tmp_path / "a.ipujax")
    assert entries(tmp_path) == []


def test_host_embeddings(tmp_path: Path) -> None:
    table = ipu.embedding_ops.create_host_embedding(
        "words", shape=(4, 2), dtype=f32, initializer=np.ones((4, 2), f32)
    )
    executable = compiled(table.lookup, np.int32([1]))
    with pytest.raises(ExecutableError, match="uses the host embedding `words`"):
        executable.save(tmp_path / "a.ipujax")


@pytest.mark.parametrize("operator", [precompiled_user_op, cpu_user_operation])
def test_custom_operations(operator: Callable[..., Any], tmp_path: Path) -> None:
    library = built("functions.cc")

    def negate(x: jax.Array) -> jax.Array:
        outs = {"output_types": [x.dtype], "output_shapes": [x.shape]}
        return operator([x], library, outs=outs, op_name="Negate")[0]

    said = rf"(?s)custom operation `UserOp` of .*functions\.so:Negate.*where: {__file__}:\d+"
    with pytest.raises(ExecutableError, match=said):
        compiled(negate, np.ones(3, f32)).save(tmp_path / "a.ipujax")


def test_refs_that_are_closed_over(tmp_path: Path) -> None:
    ref = REF(jnp.float32(1))

    def count() -> jax.Array:
        ref[...] += 1
        return ref[...]

    with pytest.raises(ExecutableError, match=r"`count` closes over a Ref[^$]*an argument"):
        compiled(count).save(tmp_path / "a.ipujax")


def test_structures_that_only_this_process_has(tmp_path: Path) -> None:
    class Own(dict[str, Any]):
        pass

    jax.tree_util.register_pytree_node(Own, lambda x: (list(x.values()), ()), lambda *_: Own())
    with pytest.raises(ExecutableError, match=r"holds a .*Own, a class that no module has"):
        compiled(lambda x: 1, Own(a=f32(1))).save(tmp_path / "a.ipujax")
    partial = jax.tree_util.Partial(lambda x: x, f32(1))
    with pytest.raises(ExecutableError, match=r"holds `.*`, of type function, which cannot"):
        compiled(lambda f: 1, partial).save(tmp_path / "a.ipujax")


@pytest.mark.fact("embedded_runtime.bad_dir")
def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    executable = compiled(lambda x: x, f32(1))
    with pytest.raises(FileNotFoundError, match="missing"):
        executable.save(tmp_path / "missing" / "a.ipujax")


def test_a_function_says_where_to_save(tmp_path: Path) -> None:
    run: Any = ipu.compile(lambda x: x)
    with pytest.raises(AttributeError, match=r"\.lower\(\*args\)\.compile\(\)\.save\(path\)"):
        run.save(tmp_path / "a.ipujax")


# --- arguments ------------------------------------------------------------------------------------

WRONG = {
    "fewer": (({"w": f32(1)},), {}, r"2 arguments by position expected, 1 given"),
    "more": (({"w": f32(1)}, f32(1), f32(1)), {}, r"2 arguments by position expected, 3 given"),
    "keyword": (({"w": f32(1)}, f32(1)), {"y": f32(1)}, r"keywords \['k'\] expected, \['y'\]"),
    "structure": (({"v": f32(1)}, f32(1)), {"k": f32(1)}, r"argument 0 is .*'v'.*expected .*'w'"),
    "shape": (({"w": np.ones(3, f32)}, f32(1)), {"k": f32(1)}, r"args\[0\]\['w'\] is float32\[3\]"),
    "dtype": (({"w": f32(1)}, np.int32(1)), {"k": f32(1)}, r"args\[1\] is int32.*float32\[\]"),
    "text": (({"w": f32(1)}, f32(1)), {"k": "a"}, r"kwargs\['k'\] is a str, 'a'.*float32\[\]"),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.fact("embedded_runtime.count", "embedded_runtime.dtype")
def test_arguments_that_do_not_fit(engine: str, tmp_path: Path) -> None:
    def model(params: Any, x: jax.Array, *, k: jax.Array) -> jax.Array:
        return params["w"] * x + k

    good = ({"w": f32(2)}, f32(3))
    executable = ipu.compile(model, engine=engine).lower(*good, k=f32(1)).compile()
    loaded = again(executable, tmp_path)
    for run in (executable, loaded):
        for args, kwargs, said in WRONG.values():
            with pytest.raises(ExecutableArgumentError, match=rf"(?s)`model`.*{said}") as caught:
                run(*args, **kwargs)
            assert isinstance(caught.value, (ExecutableError, ValueError, TypeError))
            assert run(*good, k=f32(1)) == 7


@pytest.mark.parametrize("engine", ENGINES)
def test_traced_arguments(engine: str, tmp_path: Path) -> None:
    executable = compiled(lambda x: x + 1, f32(1), engine=engine)
    for run in (executable, again(executable, tmp_path)):
        for transformed in (jax.jit(lambda x: run(x)), jax.grad(run)):  # noqa: B023 (called here)
            with pytest.raises(ExecutableArgumentError, match=r"argument args\[0\] is traced, "):
                transformed(f32(1))
        assert run(f32(1)) == 2


@pytest.mark.fact("embedded_runtime.missing_input")
def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    variables = {"bias": f32(1), "kernel": f32(2)}
    loaded = again(compiled(lambda v: v["bias"] + v["kernel"], variables), tmp_path)
    with pytest.raises(ExecutableError, match="bias"):
        loaded({"kernel": f32(2)})
    assert loaded(variables) == 3
