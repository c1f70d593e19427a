"""A case of ONNX's beside what ONNX says that it gives."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import onnx
import onnx.numpy_helper

import ipujax as ipu
from ipujax.doors.onnx.fold import names_that_decide_shapes
from ipujax.doors.onnx.onnx_nodes import convert_graph_proto
from ipujax.doors.onnx.operators import ONNX
from ipujax.doors.onnx.read_model import opset_version_of
from ipujax.frontends import from_onnx

_COARSE = {"bfloat16": 2**-6}
"""Relative tolerances of coarse dtypes, as ONNX's own runner has them."""


@dc.dataclass(frozen=True)
class Result:
    """What became of a case: nothing where it agrees, else why not."""

    name: str
    problem: str = ""

    @property
    def agrees(self) -> bool:
        return not self.problem


def compare(case: Any) -> Result:
    """Runs a case with all its data."""
    try:
        for inputs, outputs in case.data_sets:
            _run(case, list(map(_array, inputs)), list(map(_array, outputs)))
    except Exception as error:
        return Result(case.name, f"{type(error).__name__}: {str(error).strip()[:300]}")
    return Result(case.name)


def _run(case: Any, inputs: list[Any], outputs: list[Any]) -> None:
    results = results_of(case.model, inputs)
    assert len(results) == len(outputs)
    for result, wanted in zip(results, outputs, strict=True):
        check_same(result, wanted, case.rtol, case.atol)


def results_of(model: onnx.ModelProto, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a compiled model gives for inputs; those that decide shapes are constants."""
    names = [i.name for i in model.graph.input]
    given = dict(zip(names, inputs, strict=False))
    decisive = names_that_decide_shapes(convert_graph_proto(model.graph, _resolve(model), {}), ONNX)
    constants = {name: value for name, value in given.items() if name in decisive}
    shapes = {name: v.shape for name, v in given.items() if name not in constants}
    converted = from_onnx(model, shapes=shapes, constants=constants)
    arrays = [narrow(value) for name, value in given.items() if name not in constants]
    key = jax.random.key_data(jax.random.key(0))

    def program(key: Any, *arrays: Any) -> Any:
        named_key = jax.random.wrap_key_data(key)
        return converted.apply(converted.variables, *arrays, key=named_key)[0]

    return ipu.compile(program, name="case")(key, *arrays)


def check_same(result: Any, wanted: Any, rtol: float, atol: float) -> None:
    """That a result has the values, dtype and shape of another, with 32 bits in place of 64."""
    wanted = narrow(wanted)
    assert result.dtype == wanted.dtype, f"{result.dtype} in the place of {wanted.dtype}"
    assert result.shape == wanted.shape, f"{result.shape} in the place of {wanted.shape}"
    kind = _comparable(wanted)
    rtol = max(rtol, _COARSE.get(wanted.dtype.name, 0))
    np.testing.assert_allclose(
        np.asarray(result).astype(kind), wanted.astype(kind), rtol=rtol, atol=atol
    )


def narrow(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """With 32 bits where it has 64, as JAX has it."""
    return value.astype(jax.dtypes.canonicalize_dtype(value.dtype))


def _comparable(value: np.ndarray[Any, Any]) -> type:
    if value.dtype.kind == "c":
        return complex
    return int if value.dtype.kind in "iub" else float


def _array(value: Any) -> Any:
    is_proto = isinstance(value, onnx.TensorProto)
    return onnx.numpy_helper.to_array(value) if is_proto else np.asarray(value)


def _resolve(model: Any) -> Any:
    def resolve(domain: str, name: str) -> str:
        full = name if domain in ("", "ai.onnx") else f"{domain}.{name}"
        return ONNX.resolve_version(full, opset_version_of(model, domain))

    return resolve
