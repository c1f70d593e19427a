"""The adapters of a builder's calls whose nodes have other inputs or attributes than the call."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from ipujax.ground import PopARTError
from ipujax.popart.builder.attributes import COLLECTIVE, DITHERING, GROUP, MEMORY, PARTIALS
from ipujax.popart.builder.operator_signatures import Request
from ipujax.popart.options.option_kinds import CollectiveOperator
from ipujax.popart.popart_checks import check
from ipujax.popart.tensor_info import to_data_type

_WINDOWS = ("dilations", "inDilations", "pads", "outPads", "strides")
_MARKS = {
    "availableMemoryProportions": MEMORY,
    "partialsTypes": PARTIALS,
    "enableConvDithering": DITHERING,
}


def adapt_abort(request: Request) -> Request:
    """Adds an input without a name if there is none: ONNX has no node without in- and outputs."""
    return dc.replace(request, inputs=request.inputs or [""])


def adapt_call(request: Request) -> Request:
    """Checks that a call has as many inputs and outputs as the called graph."""
    callee = request.attributes["callee"]
    counts = {
        "input": (len(request.inputs), len(callee.inner_graph(captures=False).input)),
        "output": (request.outputs, len(callee.getOutputTensorIds())),
    }
    for kind, (actual, expected) in counts.items():
        if actual != expected:
            raise PopARTError(
                f"For CallOp '{request.name}', number of {kind}s ({actual}) does not match that of "
                f"the callee subgraph ({expected})"
            )
    return request


def adapt_collective(request: Request) -> Request:
    """Converts a collective's operator and replica group to numbers, in PopART's attributes."""
    operator, group = request.attributes["collectiveOperator"], request.attributes["commGroup"]
    if operator is not None:
        operator = check.require_instance(operator, CollectiveOperator, "collectiveOperator").value
    if group is not None:
        group = [group.type.value, group.replicaGroupSize]
    attribute_values = {COLLECTIVE: operator, GROUP: group}
    return dc.replace(
        request, attributes={n: value for n, value in attribute_values.items() if value is not None}
    )


def adapt_multi_conv(request: Request) -> Request:
    """Flattens the lists of each convolution into one list; a missing bias gets no name."""
    convolutions, count = [list(inputs) for inputs in request.inputs], len(request.inputs)
    _check_convolutions(request.name, convolutions)
    attributes = dict(request.attributes)
    for name in (*_WINDOWS, *_MARKS):
        if (values := attributes[name]) and len(values) != count:
            raise PopARTError(
                f"For MultiConvOp '{request.name}', number of {name} parameter sets "
                f"({len(values)}) does not match the number of input sets ({count})"
            )
    for name in _WINDOWS:
        attributes[name] = [number for numbers in attributes[name] for number in numbers]
    for name, mark in _MARKS.items():
        attributes[mark] = attributes.pop(name)
    attributes[DITHERING] = [int(is_on) for is_on in attributes[DITHERING]]
    inputs = [name for operands in convolutions for name in (*operands, "")[:3]]
    return dc.replace(
        request, inputs=inputs, outputs=count, attributes={**attributes, "numConvs": count}
    )


def adapt_ctc_loss(request: Request) -> Request:
    """Converts the data type of the loss to its ONNX number."""
    data_type = request.attributes["outDataType"]
    return _replace_attributes(
        request, outDataType=to_data_type(data_type).onnx if data_type != "UNDEFINED" else 0
    )


def adapt_init(request: Request) -> Request:
    """Takes a text in place of the batch axis as the name of the result."""
    axis = request.attributes["batch_axis"]
    return (
        dc.replace(_replace_attributes(request, batch_axis=-1), name=axis)
        if isinstance(axis, str)
        else request
    )


def adapt_lstm(request: Request) -> Request:
    """Renames the attribute `outputFullSequence` to that of the node."""
    return dc.replace(
        request, attributes={"output_full_sequence": request.attributes["outputFullSequence"]}
    )


def adapt_print_tensor(request: Request) -> Request:
    """Converts characters to their codes."""
    names = ("separator", "openBracket", "closeBracket")
    return _replace_attributes(request, **{name: ord(request.attributes[name]) for name in names})


def _check_convolutions(name: str, convolutions: Sequence[Sequence[str]]) -> None:
    if not convolutions:
        raise PopARTError(
            f"MultiConvOp '{name}' has no input tensors. Provide at least one set of inputs"
        )
    for inputs in convolutions:
        if not 2 <= len(inputs) <= 3:
            limit = "at most three inputs - data, weights, and bias"
            raise PopARTError(
                f"Each convolution of MultiConvOp '{name}' must have at least two inputs - data "
                "and weights"
                if len(inputs) < 2
                else f"Each convolution of MultiConvOp '{name}' can have {limit}"
            )


def _replace_attributes(request: Request, **attributes: Any) -> Request:
    return dc.replace(request, attributes={**request.attributes, **attributes})
