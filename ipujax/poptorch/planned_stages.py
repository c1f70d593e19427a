"""The stages that a plan gives the operators of a traced module: `AutoStage.Auto`."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping
from typing import Any

import jax
import torch

from ipujax.doors.graphs import Graph, Named, Node
from ipujax.doors.torch import to_numpy
from ipujax.ground import Keywords
from ipujax.pipelines import PlannedUnits, plan_units
from ipujax.planner import Plan
from ipujax.poptorch.batch_split import BatchSplit
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.config_file import build_ipu_config
from ipujax.poptorch.options.plan_choices import complete_plan_choices
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_devices import count_configured_ipus
from ipujax.poptorch.poptorch_forward import Forward, names_to_send
from ipujax.poptorch.poptorch_log import logger
from ipujax.poptorch.poptorch_stages import (
    StagedGraph,
    list_placed_nodes,
    log_placement,
    place_nodes,
    send_shared_variables,
)
from ipujax.poptorch.strategies import Place
from ipujax.poptorch.trace_model import TracedModule

_RECOMPUTATION = "autoRecomputation"


def plan_stages(
    trace: TracedModule, options: Options, split: BatchSplit, *, training: bool
) -> TracedModule:
    """Returns a traced module with the stages and IPUs of a plan.

    Args:
      trace: the module, without stages.
      options: the model's options.
      split: the micro-batches of a combined batch.
      training: whether the model trains.

    Raises:
      PopTorchError: (a `ValueError`) options that contradict each other.
      PlanError: (the same) nothing fits in memory, or can be planned.
    """
    choices = _complete_choices(options, split, training)
    graph = trace.captured.graph
    nodes = list_placed_nodes(graph)
    numbers = {id(node): Place(number, number) for number, node in enumerate(nodes)}
    numbered = StagedGraph(graph=place_nodes(graph, numbers), ipus=tuple(range(len(nodes))))
    forward = Forward(
        module=dc.replace(trace.captured, graph=numbered.graph),
        placement=numbered,
        loss=trace.loss,
        sent=names_to_send(trace.captured, ()),
        replicas=split.replicas,
    )
    variables = _describe_variables(trace)
    trained, untrained = forward.split_trained_variables(variables)
    inputs = [_describe_example(example) for example in trace.captured.examples]
    key = jax.ShapeDtypeStruct((2,), "uint32")

    def run_module(trained: Named, untrained: Named, element: tuple[Any, ...]) -> Any:
        output = forward(trained, untrained, *element)
        return output.send if output.loss is None else output.loss

    units = plan_units(
        run_module,
        (trained, untrained, (*inputs, key)),
        list(map(_name_node, nodes)),
        split=(2,),
        differentiates=training,
        shares_variables=False,
        **choices,
    )
    logger.info("AutoStage.Auto: %s", units.plan)
    staged_graph = _place_by_plan(graph, nodes, units, trace.captured.names)
    log_placement(staged_graph)
    captured = dc.replace(trace.captured, graph=staged_graph.graph)
    return dc.replace(trace, captured=captured, staged=staged_graph)


def recomputes_stages(staged_graph: StagedGraph, options: Options) -> bool:
    """Returns whether a plan, and not the options, has stages recompute their activations."""
    plan: Plan | None = staged_graph.plan
    return plan is not None and plan.recompute and not _is_recomputed(options)


def _is_recomputed(options: Options) -> bool:
    return build_ipu_config(options, "training").allow_recompute


def _complete_choices(options: Options, split: BatchSplit, training: bool) -> Keywords:
    """Returns what a plan is chosen from, as `ipu.plan` takes it."""
    given: Keywords = options._auto_plan or {}  # pyright: ignore[reportPrivateUsage]
    count = (split.accumulation if training else split.iterations) * split.replicas
    defaults: Keywords = {"micro_batches": count}
    if "ipus" not in given:
        if (configured := count_configured_ipus()) is None:
            raise check.value_error(
                "AutoStage.Auto needs to know how many IPUs there are: the system is not "
                "configured, and gets as many as a model asks for",
                "say options.autoPlan(ipus=4), for all replicas together",
            )
        defaults["ipus"] = configured
    _check_numbers(given, "micro_batches", count, "gradientAccumulation and replicationFactor")
    _check_numbers(given, "replicas", split.replicas, "replicationFactor")
    choices = complete_plan_choices(given, **defaults)
    choices |= {"micro_batches": count, "replicas": (split.replicas,)}
    if _is_recomputed(options):
        if "recompute" in given and True not in _as_row(given["recompute"]):
            raise check.value_error(
                f"autoPlan(recompute={given['recompute']}), and the options say "
                f"{_RECOMPUTATION}: stages recompute their activations",
                "leave one of them out",
            )
        choices["recompute"] = (True,)
    return choices


def _check_numbers(given: Keywords, name: str, number: int, source: str) -> None:
    """Refuses a keyword that contradicts what other options say."""
    if name in given and number not in _as_row(given[name]):
        raise check.value_error(
            f"autoPlan({name}={given[name]}), and {source} of the options make it {number}",
            f"leave {name} out of autoPlan",
        )


def _as_row(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


def _describe_variables(trace: TracedModule) -> Named:
    """Returns the shapes and dtypes of a module's parameters and buffers, by name."""
    return {name: _describe_example(x) for name, x in trace.captured.variables.items()}


def _describe_example(example: Any) -> Any:
    """Returns the shape and dtype of a tensor as JAX has them; other values as they are."""
    if not isinstance(example, torch.Tensor):
        return example
    dtype = to_numpy(torch.zeros((), dtype=example.dtype)).dtype
    return jax.ShapeDtypeStruct(tuple(example.shape), dtype)


def _name_node(node: Node) -> str:
    kind = node.operator.split(".")[1]
    return f"{node.scope} ({kind})" if node.scope else kind


def _place_by_plan(
    graph: Graph, nodes: list[Node], units: PlannedUnits, names: Mapping[str, tuple[str, ...]]
) -> StagedGraph:
    plan, ipus = units.plan, units.plan.device_mapping
    if len(ipus) == 1:
        return StagedGraph(graph=graph, ipus=(0,), plan=plan)
    places: dict[int, Place] = {}
    for number, node in enumerate(nodes):
        stage = units.stage_of_unit(number)
        places[id(node)] = Place(stage, ipus[stage])
    staged_graph = StagedGraph(
        graph=place_nodes(graph, places), ipus=ipus, ipu_count=max(ipus) + 1, plan=plan
    )
    return send_shared_variables(staged_graph, names)
