"""The checks of a node's convolution or pooling window when the node is added."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.ground import PopARTError

Shape = Sequence[int]

_POOLS = ("AveragePool", "MaxPool")


def check_windows(
    operator: str,
    inputs: Sequence[str],
    shapes: Sequence[Shape | None],
    attributes: Mapping[str, Any],
) -> None:
    """Checks the window of a convolution, pooling or padding; other operators are not checked.

    Args:
      operator: the operator's name.
      inputs: the names of its inputs.
      shapes: the inputs' shapes; None for unknown ones.
      attributes: the node's attributes.

    Raises:
      PopARTError: (a `ValueError`) lists of another length than the image has dimensions, another
        kernel than the weights have, or one that is larger than the image.
    """
    image = shapes[0] if shapes else None
    if operator == "Pad" and image is not None and "pads" in attributes:
        _check_padding(image, attributes["pads"])
    elif operator in _POOLS:
        _check_window(image, attributes["kernel_shape"], attributes)
    elif operator == "Conv":
        _check_window(image, _find_kernel_shape(inputs, shapes, attributes), attributes)


def _check_padding(image: Shape, pads: Shape) -> None:
    if len(pads) != 2 * len(image):
        raise PopARTError(
            f"Padding vector (length {len(pads)}) doesn't contain 2 entries per input dimension "
            f"{len(image)}"
        )


def _find_kernel_shape(
    inputs: Sequence[str], shapes: Sequence[Shape | None], attributes: Mapping[str, Any]
) -> Shape | None:
    kernel_shape, weights = attributes["kernel_shape"], shapes[1] if len(shapes) > 1 else None
    if weights is None:
        return kernel_shape
    if kernel_shape and list(kernel_shape) != list(weights[2:]):
        raise PopARTError(
            f"kernel_shape, {_format_numbers(kernel_shape)}, does not match inferred shape from "
            f"weight input '{inputs[1]}', {_format_numbers(weights[2:])}"
        )
    return weights[2:]


def _check_window(image: Shape | None, kernel: Shape | None, attributes: Mapping[str, Any]) -> None:
    if image is None or kernel is None:
        return
    count = len(image) - 2
    strides, dilations = (
        attributes["strides"] or (1,) * count,
        attributes.get("dilations") or (1,) * count,
    )
    pads = attributes["pads"] or (0,) * 2 * count
    for name, numbers in (("strides", strides), ("dilations", dilations), ("kernel", kernel)):
        if len(numbers) != count:
            raise PopARTError(
                f"Length of {name} vector {len(numbers)} != number of spatial dimensions {count}"
            )
    if len(pads) != 2 * count:
        raise PopARTError(
            f"Padding vector (length {len(pads)}) does not have 2 values for each spatial "
            f"dimension {count}"
        )
    if attributes["auto_pad"] != "NOTSET":
        return
    rounded = math.ceil if attributes.get("ceil_mode") else math.floor
    sizes = zip(image[2:], pads[:count], pads[count:], dilations, kernel, strides, strict=True)
    result = [rounded((n + a + b - d * (k - 1) - 1) / s) + 1 for n, a, b, d, k, s in sizes]
    if min(result, default=0) < 0:
        raise PopARTError(
            "Window parameter values combine to give invalid spatial output shape: "
            f"{_format_numbers(result)}"
        )


def _format_numbers(numbers: Shape) -> str:
    return f"[{' '.join(map(str, numbers))}]"
