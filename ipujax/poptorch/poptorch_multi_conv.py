"""The scope `MultiConv`: convolutions that may run in parallel."""

from __future__ import annotations

import itertools
from typing import Any, Self

import torch

from ipujax.doors.graphs import Graph
from ipujax.doors.torch import current_trace
from ipujax.ground import PopTorchError
from ipujax.operators import attribute_scope_name
from ipujax.poptorch.enums import MultiConvPlanType
from ipujax.poptorch.poptorch_checks import check

MARK = "multi_conv"
"""The mark of operators in a `MultiConv`: the scope's number, and its settings."""

_PARTIALS = {
    torch.float: "float32", torch.float32: "float32", torch.half: "float16",
    torch.float16: "float16",
}  # fmt: skip


@check.guard
class MultiConv:
    """A scope whose convolutions do not depend on each other and may run in parallel.

    Operators carry the frontend attribute `multi_conv`, and the settings, as those of
    `nn_ops.multi_conv` do. In reports they run at the same time, subject to `planType`,
    `perConvReservedTiles` and `cycleBackOff`; the other settings change nothing.
    """

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._attributes: dict[str, str] = {}

    def availableMemoryProportions(self, value: object) -> Self:
        """Sets the memory proportion, from 0 to 1: for all convolutions, or for each."""
        return self._set_attribute(
            "availableMemoryProportions", _check_value_or_list(value, float, "memory proportion")
        )

    def partialsTypes(self, value: Any) -> Self:
        """Sets the dtype of partial sums, `torch.float` or `torch.half`: for all, or for each."""
        types = list(value) if isinstance(value, list | tuple) else [value]
        if not all(isinstance(x, torch.dtype) and x in _PARTIALS for x in types):
            raise check.value_error("Invalid partials types. Expecting torch.float or torch.half")
        return self._set_attribute("partialsTypes", [_PARTIALS[x] for x in types])

    def enableConvDithering(self, value: object) -> Self:
        """Sets whether first tiles are shifted: for all convolutions, or for each."""
        return self._set_attribute(
            "enableConvDithering", _check_value_or_list(value, bool, "dithering")
        )

    def planType(self, value: MultiConvPlanType | None) -> Self:
        """Sets whether the convolutions run in parallel or in sequence."""
        if value is not None and not isinstance(value, MultiConvPlanType):
            raise check.type_error(f"Invalid plan type! {value!r}")
        return self._set_attribute("planType", None if value is None else [value.name.lower()])

    def perConvReservedTiles(self, value: int) -> Self:
        """Sets the least number of tiles of each convolution."""
        return self._set_attribute(
            "perConvReservedTiles", [check.require_integer(value, "the tiles", at_least=0)]
        )

    def cycleBackOff(self, value: float) -> Self:
        """Sets how much slower than the fastest plan a plan may be, from 0 to 1."""
        return self._set_attribute(
            "cycleBackOff", [check.require_number(value, "cycleBackOff", "give a float")]
        )

    def _set_attribute(self, name: str, values: list[object] | None) -> Self:
        if values is None:
            self._attributes.pop(name, None)
        else:
            self._attributes[name] = ",".join(map(str, values))
        return self

    def __enter__(self) -> None:
        if (trace := current_trace()) is None:
            return
        if trace.current_marks.get(MARK) is not None:
            raise check.value_error(
                "Nested poptorch.MultiConv is not supported", "end the outer one"
            )
        trace.mark(**{MARK: (next(self._numbers), tuple(self._attributes.items()))})

    def __exit__(self, *_: object) -> None:
        if (trace := current_trace()) is not None:
            trace.mark(**{MARK: None})


def _check_value_or_list(value: object, kind: type, description: str) -> list[object] | None:
    if value is None:
        return None
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values or not all(isinstance(x, kind) for x in values):
        expected = f"a {kind.__name__}, or a list of them"
        raise check.wrong_type_error(expected, value, f"Invalid {description}! It")
    return values


def check_multi_convs(graph: Graph) -> None:
    """Checks that each `MultiConv` scope has a convolution.

    Raises:
      PopTorchError: (a `ValueError`) a scope has none.
    """
    scopes = {mark: node for node in graph.nodes if (mark := node.marks.get(MARK)) is not None}
    for node in graph.nodes:
        if "conv" in node.operator:
            scopes.pop(node.marks.get(MARK), None)
    for node in scopes.values():
        raise PopTorchError(
            "Unexpected end_multi_conv: there is no convolution in a poptorch.MultiConv",
            where=node.where,
            fix="call convolutions in its `with`, or leave it out",
        )


def write_multi_conv_scopes(mark: tuple[int, tuple[tuple[str, str], ...]]) -> list[str]:
    """Returns the JAX name scopes that carry the settings of a `MultiConv` mark."""
    number, values = mark
    attribute_values = [(MARK, str(number)), *((f"{MARK}.{name}", value) for name, value in values)]
    return [attribute_scope_name(name, value) for name, value in attribute_values]
