"""`MultiConv`: convolutions that may run side by side."""

from __future__ import annotations

import itertools
from typing import Any, Self

import torch

from ipujax.doors.graphs import Graph
from ipujax.errors import PopTorchError
from ipujax.frontends.pytorch.trace import current_trace
from ipujax.poptorch.checks import check
from ipujax.poptorch.enums import MultiConvPlanType
from lowering import marks

MARK = "multi_conv"
"""The mark of operators in such a scope: its number, and what was set."""

_PARTIALS = {
    torch.float: "float32", torch.float32: "float32", torch.half: "float16",
    torch.float16: "float16",
}  # fmt: skip


@check.guard
class MultiConv:
    """A scope whose convolutions are one: none depends on another, and they may run in parallel.

    Operators carry the frontend attribute `multi_conv`, and what is set here, as
    `nn_ops.multi_conv` has them. In reports they run at the same time, under `planType`,
    `perConvReservedTiles` and `cycleBackOff`; the others change nothing.
    """

    _numbers = itertools.count()

    def __init__(self) -> None:
        self._attributes: dict[str, str] = {}

    def availableMemoryProportions(self, value: Any) -> Self:
        """Of the memory, for each convolution; one number from 0 to 1, or one for each."""
        return self._set("availableMemoryProportions", _each(value, float, "memory proportion"))

    def partialsTypes(self, value: Any) -> Self:
        """Of the sums of products: `torch.float` or `torch.half`, or one for each convolution."""
        types = list(value) if isinstance(value, list | tuple) else [value]
        if not all(isinstance(x, torch.dtype) and x in _PARTIALS for x in types):
            raise check.refuse("Invalid partials types. Expecting torch.float or torch.half")
        return self._set("partialsTypes", [_PARTIALS[x] for x in types])

    def enableConvDithering(self, value: Any) -> Self:
        """Whether tiles are shifted; one bool, or one for each convolution."""
        return self._set("enableConvDithering", _each(value, bool, "dithering"))

    def planType(self, value: MultiConvPlanType | None) -> Self:
        """Whether they run in parallel."""
        if value is not None and not isinstance(value, MultiConvPlanType):
            raise check.refuse_type(f"Invalid plan type! {value!r}")
        return self._set("planType", None if value is None else [value.name.lower()])

    def perConvReservedTiles(self, value: int) -> Self:
        """Tiles that each convolution has at least."""
        return self._set("perConvReservedTiles", [check.integer(value, "the tiles", at_least=0)])

    def cycleBackOff(self, value: float) -> Self:
        """How far plans may be from the fastest one, from 0 to 1."""
        return self._set("cycleBackOff", [check.number(value, "cycleBackOff", "give a float")])

    def _set(self, name: str, values: list[Any] | None) -> Self:
        if values is None:
            self._attributes.pop(name, None)
        else:
            self._attributes[name] = ",".join(map(str, values))
        return self

    def __enter__(self) -> None:
        if (trace := current_trace()) is None:
            return
        if trace.marks.get(MARK) is not None:
            raise check.refuse("Nested poptorch.MultiConv is not supported", "end the outer one")
        trace.mark(**{MARK: (next(self._numbers), tuple(self._attributes.items()))})

    def __exit__(self, *_: Any) -> None:
        if (trace := current_trace()) is not None:
            trace.mark(**{MARK: None})


def _each(value: Any, kind: type, what: str) -> list[Any] | None:
    if value is None:
        return None
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values or not all(isinstance(x, kind) for x in values):
        wanted = f"a {kind.__name__}, or a list of them"
        raise check.other_than(wanted, value, f"Invalid {what}! It")
    return values


def check_multi_convs(graph: Graph) -> None:
    """Refuses scopes without a convolution.

    Raises:
      PopTorchError: (a `ValueError`) there is one.
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


def attributes(mark: tuple[int, tuple[tuple[str, str], ...]]) -> list[str]:
    """The scopes of operators with such a mark."""
    number, values = mark
    named = [(MARK, str(number)), *((f"{MARK}.{name}", value) for name, value in values)]
    return [marks.write(marks.ATTRIBUTE, name, value) for name, value in named]
