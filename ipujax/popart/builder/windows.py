"""What is wrong with the windows of a node, as far as it shows when the node is added."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ipujax.errors import PopARTError

Shape = Sequence[int]

_POOLS = ("AveragePool", "MaxPool")


def check_windows(
    operator: str, inputs: Sequence[str], shapes: Sequence[Shape | None], given: Mapping[str, Any]
) -> None:
    """Raises for numbers that fit no window; of other operators, nothing is checked.

    Args:
      operator: its name.
      inputs: the names of its inputs.
      shapes: of the inputs; None for those that are not known yet.
      given: the attributes.

    Raises:
      PopARTError: (a `ValueError`) lists of another length than the image has dimensions, another
        kernel than the weights have, or one that is larger than the image.
    """
    image = shapes[0] if shapes else None
    if operator == "Pad" and image is not None and "pads" in given:
        _check_padding(image, given["pads"])
    elif operator in _POOLS:
        _check(image, given["kernel_shape"], given)
    elif operator == "Conv":
        _check(image, _kernel_of(inputs, shapes, given), given)


def _check_padding(image: Shape, pads: Shape) -> None:
    if len(pads) != 2 * len(image):
        raise PopARTError(
            f"Padding vector (length {len(pads)}) doesn't contain 2 entries per input dimension "
            f"{len(image)}"
        )


def _kernel_of(
    inputs: Sequence[str], shapes: Sequence[Shape | None], given: Mapping[str, Any]
) -> Shape | None:
    said, weights = given["kernel_shape"], shapes[1] if len(shapes) > 1 else None
    if weights is None:
        return said
    if said and list(said) != list(weights[2:]):
        raise PopARTError(
            f"kernel_shape, {_text(said)}, does not match inferred shape from weight input "
            f"'{inputs[1]}', {_text(weights[2:])}"
        )
    return weights[2:]


def _check(image: Shape | None, kernel: Shape | None, given: Mapping[str, Any]) -> None:
    if image is None or kernel is None:
        return
    count = len(image) - 2
    strides, dilations = given["strides"] or (1,) * count, given.get("dilations") or (1,) * count
    pads = given["pads"] or (0,) * 2 * count
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
    if given["auto_pad"] != "NOTSET":
        return
    rounded = math.ceil if given.get("ceil_mode") else math.floor
    sizes = zip(image[2:], pads[:count], pads[count:], dilations, kernel, strides, strict=True)
    result = [rounded((n + a + b - d * (k - 1) - 1) / s) + 1 for n, a, b, d, k, s in sizes]
    if min(result, default=0) < 0:
        raise PopARTError(
            f"Window parameter values combine to give invalid spatial output shape: {_text(result)}"
        )


def _text(numbers: Shape) -> str:
    return f"[{' '.join(map(str, numbers))}]"
