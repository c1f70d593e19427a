"""The pipeline stages that a plan gives a model's nodes: `VirtualGraphMode.Auto`."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import jax

from ipujax.doors.graphs import Graph, Named, Node
from ipujax.doors.onnx import ConvertedGraph
from ipujax.pipelines import plan_units
from ipujax.popart.node_placement import IPU, STAGE, Placed, describe_placed_node
from ipujax.popart.options import RecomputationType, SessionOptions
from ipujax.popart.popart_forward import Forward


def plan_nodes(
    model: ConvertedGraph,
    loss: str | None,
    sent: Sequence[str],
    options: SessionOptions,
    ipus: int,
    micro_batches: int,
) -> tuple[ConvertedGraph, Placed]:
    """Plans the pipeline stages of a model's nodes; its own virtual graphs and stages are ignored.

    Args:
      model: the model.
      loss: the name of the loss; None in inference.
      sent: the names of the tensors that are returned.
      options: the session's options.
      ipus: how many IPUs a replica has.
      micro_batches: those of a weight update, or of a step in inference.

    Returns:
      The model with the virtual graphs and stages of the plan, and these.

    Raises:
      PlanError: (a `ValueError`) nothing fits in memory, or can be planned.
    """
    nodes = model.graph.nodes
    numbered = _mark_nodes(model.graph, [{STAGE: number} for number in range(len(nodes))])
    forward = Forward(
        placement=Placed(ipus=tuple(range(len(nodes)))),
        loss=loss,
        model=dc.replace(model, graph=numbered),
        sent=tuple(sent),
    )
    trained = {name: value for name, value in model.variables.items() if name in forward.trained}
    others = {name: value for name, value in model.variables.items() if name not in trained}
    scale, key = jax.ShapeDtypeStruct((), "float32"), jax.ShapeDtypeStruct((2,), "uint32")

    def run_model(trained: Named, others: Named, scale: jax.Array, element: Any) -> Any:
        output = forward(trained, others, scale, *element)
        return output.send if output.loss is None else output.loss

    units = plan_units(
        run_model,
        (trained, others, scale, (*forward.input_avals.values(), key)),
        list(map(describe_placed_node, nodes)),
        split=(3,),
        differentiates=loss is not None,
        ipus=ipus,
        micro_batches=micro_batches,
        recompute=(options.autoRecomputation is not RecomputationType.NoRecompute,),
    )
    mapping = units.plan.device_mapping
    stages = [units.stage_of_unit(number) for number in range(len(nodes))]
    is_apart = len(mapping) > 1
    marks = [{STAGE: stage, IPU: mapping[stage]} if is_apart else {} for stage in stages]
    planned = dc.replace(model, graph=_mark_nodes(model.graph, marks))
    return planned, Placed(ipus=mapping, ipu_count=max(mapping) + 1, plan=units.plan)


def _mark_nodes(graph: Graph, marks: Sequence[dict[str, int]]) -> Graph:
    """Gives nodes other stages and IPUs; those of the graphs that they call have none."""
    bare = graph.map_nodes(_remove_marks)
    nodes = tuple(
        dc.replace(node, marks={**node.marks, **of_node})
        for node, of_node in zip(bare.nodes, marks, strict=True)
    )
    return dc.replace(bare, nodes=nodes)


def _remove_marks(node: Node) -> Node:
    marks = {name: value for name, value in node.marks.items() if name not in (IPU, STAGE)}
    return dc.replace(node, marks=marks)
