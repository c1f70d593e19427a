"""Evaluates steps of a Program on arrays or tracers: a tree as one JAX function."""

from __future__ import annotations

import functools
from collections import ChainMap
from collections.abc import Iterable, MutableMapping
from typing import Any

from jax import lax

from lowering import ir
from lowering.equations import function_of
from lowering.units import ValueId

Values = MutableMapping[ValueId, Any]


def emit(body: ir.Sequence, values: Values) -> None:
    """Evaluates steps that need no host on arrays or tracers; adds what they write to `values`."""
    for node in body.steps:
        match node:
            case ir.Execute():
                results = function_of(node.kernel.jaxpr)(*(values[v] for v in node.reads))
                values.update(zip(node.writes, results, strict=True))
            case ir.Copy():
                continue  # one device: the value is there
            case ir.Load():
                values[node.value] = values[node.kept]
            case ir.Store():
                values[node.kept] = values[node.value]
            case ir.Sequence():
                emit(node, values)
            case ir.Task():
                emit(node.body, values)
            case ir.Repeat():
                _emit_repeat(node, values)
            case ir.While():
                _emit_while(node, values)
            case ir.Switch():
                _emit_switch(node, values)
            case ir.StreamIn() | ir.StreamOut() | ir.HostCall() | ir.Pipeline():
                raise TypeError(f"{type(node).__name__} needs the host")
            case ir.Send() | ir.Receive():
                raise TypeError(f"{type(node).__name__} needs other processes")


def _emit_repeat(node: ir.Repeat, values: Values) -> None:
    def step(carried: Any, sliced: Any) -> Any:
        inner: Values = ChainMap({}, values)
        inner.update(zip((c.entering for c in node.carry), carried, strict=True))
        inner.update(zip((s.element for s in node.slices), sliced, strict=True))
        emit(node.body, inner)
        return [inner[c.leaving] for c in node.carry], [inner[s.element] for s in node.stacks]

    initial = [values[c.initial] for c in node.carry]
    if node.trips is not None:
        trips = values[node.trips]
        final = lax.fori_loop(0, trips, lambda _, carried: step(carried, ())[0], initial)
        stacked: Iterable[Any] = ()
    else:
        slices = [values[s.stacked] for s in node.slices]
        final, stacked = lax.scan(step, initial, slices, length=node.count, reverse=node.reverse)
    values.update(zip((c.final for c in node.carry), final, strict=True))
    values.update(zip((s.stacked for s in node.stacks), stacked, strict=True))


def _emit_while(node: ir.While, values: Values) -> None:
    def entered(carried: Any) -> Values:
        inner: Values = ChainMap({}, values)
        inner.update(zip((c.entering for c in node.carry), carried, strict=True))
        return inner

    def condition(carried: Any) -> Any:
        inner = entered(carried)
        emit(node.condition, inner)
        return inner[node.predicate]

    def step(carried: Any) -> Any:
        inner = entered(carried)
        emit(node.body, inner)
        return [inner[c.leaving] for c in node.carry]

    final = lax.while_loop(condition, step, [values[c.initial] for c in node.carry])
    values.update(zip((c.final for c in node.carry), final, strict=True))


def _emit_switch(node: ir.Switch, values: Values) -> None:
    def chosen(branch: ir.Branch) -> list[Any]:
        inner: Values = ChainMap({}, values)
        emit(branch.body, inner)
        return [inner[value] for value in branch.results]

    branches = [functools.partial(chosen, branch) for branch in node.branches]
    results = lax.switch(values[node.index], branches)
    values.update(zip(node.writes, results, strict=True))
