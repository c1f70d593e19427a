"""The evaluation of a Program's steps on arrays or tracers: a tree as one JAX function."""

from __future__ import annotations

import functools
from collections import ChainMap
from collections.abc import Iterable, MutableMapping
from typing import Any

from jax import lax

from lowering import ir
from lowering.ground import ValueId
from lowering.jaxprs import function_of_jaxpr, typed_jax

Values = MutableMapping[ValueId, Any]


def evaluate_steps(body: ir.Sequence, values: Values) -> None:
    """Evaluates steps that need no host on arrays or tracers, and adds results to `values`."""
    for node in body.steps:
        match node:
            case ir.Execute():
                results = function_of_jaxpr(node.kernel.jaxpr)(*(values[v] for v in node.reads))
                values.update(zip(node.writes, results, strict=True))
            case ir.Copy():
                continue  # one device: the value is there
            case ir.Load():
                values[node.value] = values[node.kept]
            case ir.Store():
                values[node.kept] = values[node.value]
            case ir.Sequence():
                evaluate_steps(node, values)
            case ir.Task():
                evaluate_steps(node.body, values)
            case ir.Repeat():
                _evaluate_repeat(node, values)
            case ir.While():
                _evaluate_while(node, values)
            case ir.Switch():
                _evaluate_switch(node, values)
            case ir.StreamIn() | ir.StreamOut() | ir.HostCall() | ir.Pipeline():
                raise TypeError(f"{type(node).__name__} needs the host")
            case ir.Send() | ir.Receive():
                raise TypeError(f"{type(node).__name__} needs other processes")


def _evaluate_repeat(node: ir.Repeat, values: Values) -> None:
    def run_repeat_iteration(loop_variables: Any, elements: Any) -> Any:
        body_values: Values = ChainMap({}, values)
        body_values.update(zip((c.entering for c in node.carry), loop_variables, strict=True))
        body_values.update(zip((s.element for s in node.slices), elements, strict=True))
        evaluate_steps(node.body, body_values)
        return [body_values[c.leaving] for c in node.carry], [
            body_values[s.element] for s in node.stacks
        ]

    initial = [values[c.initial] for c in node.carry]
    if node.trips is not None:
        trips = values[node.trips]
        final = typed_jax.fori_loop(
            0, trips, lambda _, carried: run_repeat_iteration(carried, ())[0], initial
        )
        stacked: Iterable[Any] = ()
    else:
        slices = [values[s.stacked] for s in node.slices]
        final, stacked = lax.scan(
            run_repeat_iteration, initial, slices, length=node.count, reverse=node.reverse
        )
    values.update(zip((c.final for c in node.carry), final, strict=True))
    values.update(zip((s.stacked for s in node.stacks), stacked, strict=True))


def _evaluate_while(node: ir.While, values: Values) -> None:
    def bind_loop_variables(loop_variables: Any) -> Values:
        body_values: Values = ChainMap({}, values)
        body_values.update(zip((c.entering for c in node.carry), loop_variables, strict=True))
        return body_values

    def evaluate_while_condition(loop_variables: Any) -> Any:
        body_values = bind_loop_variables(loop_variables)
        evaluate_steps(node.condition, body_values)
        return body_values[node.predicate]

    def run_while_body(loop_variables: Any) -> Any:
        body_values = bind_loop_variables(loop_variables)
        evaluate_steps(node.body, body_values)
        return [body_values[c.leaving] for c in node.carry]

    final = lax.while_loop(
        evaluate_while_condition, run_while_body, [values[c.initial] for c in node.carry]
    )
    values.update(zip((c.final for c in node.carry), final, strict=True))


def _evaluate_switch(node: ir.Switch, values: Values) -> None:
    def run_switch_branch(branch: ir.Branch) -> list[Any]:
        branch_values: Values = ChainMap({}, values)
        evaluate_steps(branch.body, branch_values)
        return [branch_values[value] for value in branch.results]

    branches = [functools.partial(run_switch_branch, branch) for branch in node.branches]
    results = typed_jax.switch(values[node.index], branches)
    values.update(zip(node.writes, results, strict=True))
