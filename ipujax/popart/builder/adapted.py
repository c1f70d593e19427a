"""What a builder is asked for as nodes, where a node has other inputs or attributes than a call."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from ipujax.errors import PopARTError
from ipujax.popart.builder.attributes import COLLECTIVE, DITHERING, GROUP, MEMORY, PARTIALS
from ipujax.popart.builder.signatures import Request
from ipujax.popart.checks import check
from ipujax.popart.options.kinds import CollectiveOperator
from ipujax.popart.tensor_info import data_type_of

_WINDOWS = ("dilations", "inDilations", "pads", "outPads", "strides")
_MARKS = {
    "availableMemoryProportions": MEMORY,
    "partialsTypes": PARTIALS,
    "enableConvDithering": DITHERING,
}


def abort(asked: Request) -> Request:
    """An input without a name in the place of none: ONNX has no node without in- and outputs."""
    return dc.replace(asked, inputs=asked.inputs or [""])


def call(asked: Request) -> Request:
    """As many inputs and outputs as the graph that is called has."""
    callee = asked.attributes["callee"]
    counts = {
        "input": (len(asked.inputs), len(callee.inner_graph(captures=False).input)),
        "output": (asked.outputs, len(callee.getOutputTensorIds())),
    }
    for what, (given, own) in counts.items():
        if given != own:
            raise PopARTError(
                f"For CallOp '{asked.name}', number of {what}s ({given}) does not match that of "
                f"the callee subgraph ({own})"
            )
    return asked


def collective(asked: Request) -> Request:
    """The operator and the group of replicas as numbers, in attributes of the original's names."""
    operator, group = asked.attributes["collectiveOperator"], asked.attributes["commGroup"]
    if operator is not None:
        operator = check.instance(operator, CollectiveOperator, "collectiveOperator").value
    if group is not None:
        group = [group.type.value, group.replicaGroupSize]
    said = {COLLECTIVE: operator, GROUP: group}
    return dc.replace(
        asked, attributes={n: value for n, value in said.items() if value is not None}
    )


def multi_conv(asked: Request) -> Request:
    """Lists of the convolutions as one list each; a bias that is left out has no name."""
    convolutions, count = [list(inputs) for inputs in asked.inputs], len(asked.inputs)
    _check_convolutions(asked.name, convolutions)
    attributes = dict(asked.attributes)
    for name in (*_WINDOWS, *_MARKS):
        if (given := attributes[name]) and len(given) != count:
            raise PopARTError(
                f"For MultiConvOp '{asked.name}', number of {name} parameter sets ({len(given)}) "
                f"does not match the number of input sets ({count})"
            )
    for name in _WINDOWS:
        attributes[name] = [number for numbers in attributes[name] for number in numbers]
    for name, mark in _MARKS.items():
        attributes[mark] = attributes.pop(name)
    attributes[DITHERING] = [int(is_on) for is_on in attributes[DITHERING]]
    inputs = [name for given in convolutions for name in (*given, "")[:3]]
    return dc.replace(
        asked, inputs=inputs, outputs=count, attributes={**attributes, "numConvs": count}
    )


def ctc(asked: Request) -> Request:
    """The type of the loss as ONNX numbers it."""
    given = asked.attributes["outDataType"]
    return _with(asked, outDataType=data_type_of(given).onnx if given != "UNDEFINED" else 0)


def init(asked: Request) -> Request:
    """A text in the place of the batch's axis is what the result is named after."""
    axis = asked.attributes["batch_axis"]
    return dc.replace(_with(asked, batch_axis=-1), name=axis) if isinstance(axis, str) else asked


def lstm(asked: Request) -> Request:
    """The node's attribute has another name."""
    return dc.replace(
        asked, attributes={"output_full_sequence": asked.attributes["outputFullSequence"]}
    )


def printed(asked: Request) -> Request:
    """Characters as their codes."""
    names = ("separator", "openBracket", "closeBracket")
    return _with(asked, **{name: ord(asked.attributes[name]) for name in names})


def _check_convolutions(name: str, convolutions: Sequence[Sequence[str]]) -> None:
    if not convolutions:
        raise PopARTError(
            f"MultiConvOp '{name}' has no input tensors. Provide at least one set of inputs"
        )
    for inputs in convolutions:
        if not 2 <= len(inputs) <= 3:
            known = "at most three inputs - data, weights, and bias"
            raise PopARTError(
                f"Each convolution of MultiConvOp '{name}' must have at least two inputs - data "
                "and weights"
                if len(inputs) < 2
                else f"Each convolution of MultiConvOp '{name}' can have {known}"
            )


def _with(asked: Request, **attributes: Any) -> Request:
    return dc.replace(asked, attributes={**asked.attributes, **attributes})
