"""Models of ONNX, and what PopTorch saved, in the form that runs nothing of it."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch

import ipujax.poptorch as poptorch
from ipujax.doors.onnx import from_onnx
from ipujax.errors import IPUError
from tests.file_fuzz.changes import change_bytes
from tests.file_fuzz.readers.reader import Files, Reader, read_files

_ONNX, _POPTORCH = "model.onnx", "model.poptorch"


@functools.cache
def _onnx_models() -> Mapping[str, Files]:
    w = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
        onnx.helper.make_node("Relu", ["y"], ["z"]),
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 3])
    z = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [4, 2])
    graph = onnx.helper.make_graph(nodes, "g", [x], [z], [w])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    inside = {_ONNX: model.SerializeToString()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _ONNX)
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        return {"inside": inside, "external": read_files(Path(folder))}


def _change_onnx(files: Files, rng: random.Random) -> Files:
    name = rng.choice(sorted(files))
    content = files[name]
    if rng.random() < 0.3:
        places = (b"/dev/zero"[:5], b"../..", b"w.bi/", b"/etc/")
        content = content.replace(b"w.bin", rng.choice(places))
    return {**files, name: change_bytes(content, rng)}


def _read_onnx(folder: Path) -> str | None:
    model = from_onnx(folder / _ONNX)
    return None if model is not None else "no model"


class Model(torch.nn.Module):
    """Of the files."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@functools.cache
def _poptorch_models() -> Mapping[str, Files]:
    with tempfile.TemporaryDirectory() as folder:
        wrapped = poptorch.inferenceModel(Model().eval())
        wrapped.compileAndExport(Path(folder, _POPTORCH), torch.ones(4, 3))
        return {"inference": read_files(Path(folder))}


def _change_poptorch(files: Files, rng: random.Random) -> Files:
    return {_POPTORCH: change_bytes(files[_POPTORCH], rng)}


def _read_poptorch(folder: Path) -> str | None:
    poptorch.load(folder / _POPTORCH, model=Model())
    return None


ONNX = Reader("onnx", _onnx_models, _change_onnx, _read_onnx, (IPUError,))
POPTORCH = Reader("poptorch", _poptorch_models, _change_poptorch, _read_poptorch, (IPUError,))
