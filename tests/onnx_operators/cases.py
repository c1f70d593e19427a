"""The cases that the package `onnx` makes itself, and which of them are asked for."""

from __future__ import annotations

import fnmatch
import functools
import warnings
from typing import Any

import onnx
from onnx import TensorProto

APART = ("string", "sequence", "optional", "training")
"""Kinds of cases that no program of dense tensors can be, or that train."""


@functools.cache
def cases() -> dict[str, Any]:
    """All node cases by their names, in order."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():  # of the references that the package computes
        warnings.simplefilter("ignore")
        found = {case.name: case for case in collect_testcases(None)}
    return dict(sorted(found.items()))


def kind_of(case: Any) -> str:
    """`dense`, or one of `APART`."""
    graph = case.model.graph
    kinds = {value.type.WhichOneof("value") for value in (*graph.input, *graph.output)}
    types = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    if any(node.domain == "ai.onnx.preview.training" for node in graph.node):
        return "training"
    if "optional_type" in kinds:
        return "optional"
    operators = {node.op_type for node in graph.node} - {"ReverseSequence"}
    if "sequence_type" in kinds or any("Sequence" in name for name in operators):
        return "sequence"
    return "string" if TensorProto.STRING in types | _inner_types(graph) else "dense"


def _inner_types(graph: onnx.GraphProto) -> set[int]:
    attributes = [a for node in graph.node for a in node.attribute]
    text = any(a.type in (a.STRINGS,) and a.name == "value_strings" for a in attributes)
    return {a.t.data_type for a in attributes if a.type == a.TENSOR} | (
        {int(TensorProto.STRING)} if text else set()
    )


REASONS = {
    "test_ai_onnx_ml_tree_ensemble_*": "trees are not converted",
    "test_bernoulli*": "the random numbers wanted are NumPy's",
    "test_bitcast_*64_to_*64": "arrays have at most 32 bits in JAX",
    "test_image_decoder_*": "reads files of images, which no device can",
    "test_optional_*": "optional values are no dense tensors",
    "test_tfidfvectorizer_*": "text is not converted",
    "test_training_dropout*": "the random numbers wanted are NumPy's",
}
"""Why dense cases do not agree, by patterns of their names."""


def reason_of(name: str) -> str | None:
    """Why a case does not agree; None for those that must."""
    if name.startswith("test_training_dropout_zero_ratio"):
        return None
    return next((why for p, why in REASONS.items() if fnmatch.fnmatch(name, p)), None)
