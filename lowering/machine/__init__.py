"""The IPU Model: the cycles and the bytes per tile that a chip would need for a Program.

Data flows one way: a kernel's equations are listed (`listing`), costed (`primitives`, `planner`)
and laid out (`kernels`); one walk over the program finds the time of every step (`timing`), another
the contents of memory meanwhile (`residency`); `ipu_model` puts the two together.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lowering.machine import trace as trace
from lowering.machine import transfers as transfers
from lowering.machine.breakdown import CAUSES as CAUSES
from lowering.machine.compute_sets import ComputeSet as ComputeSet
from lowering.machine.compute_sets import Exchange as Exchange
from lowering.machine.compute_sets import list_compute_sets as list_compute_sets
from lowering.machine.compute_sets import list_exchanges as list_exchanges
from lowering.machine.cost import SUPERSTEP_CYCLES as SUPERSTEP_CYCLES
from lowering.machine.cost import Cost as Cost
from lowering.machine.cost import Operation as Operation
from lowering.machine.cost import Phase as Phase
from lowering.machine.cost import Shape as Shape
from lowering.machine.cost import Vertices as Vertices
from lowering.machine.cost import WantedLayout as WantedLayout
from lowering.machine.cost import name_units as name_units
from lowering.machine.labels import label_of_move as label_of_move
from lowering.machine.labels import label_operations as label_operations
from lowering.machine.liveness_report import Lifetime as Lifetime
from lowering.machine.liveness_report import Liveness as Liveness
from lowering.machine.liveness_report import OnTiles as OnTiles
from lowering.machine.liveness_report import TileBytes as TileBytes
from lowering.machine.mapping import TileMapping as TileMapping
from lowering.machine.mapping import map_evenly as map_evenly
from lowering.machine.mapping import map_linearly as map_linearly
from lowering.machine.primitives.elementwise_cost import ELEMENTWISE as ELEMENTWISE
from lowering.machine.primitives.rule_helpers import LAUNCH as LAUNCH
from lowering.machine.primitives.view_rules import COPY_BYTES_PER_CYCLE as COPY_BYTES_PER_CYCLE
from lowering.machine.profile import CATEGORIES as CATEGORIES
from lowering.machine.profile import DIRECTIONS as DIRECTIONS
from lowering.machine.profile import TASK_PHASES as TASK_PHASES
from lowering.machine.profile import Graph as Graph
from lowering.machine.profile import Grid as Grid
from lowering.machine.profile import Memory as Memory
from lowering.machine.profile import OperationTotal as OperationTotal
from lowering.machine.profile import PipelineProfile as PipelineProfile
from lowering.machine.profile import Profile as Profile
from lowering.machine.profile import Tensor as Tensor
from lowering.machine.program_tree import NodeKind as NodeKind
from lowering.machine.program_tree import ProgramNode as ProgramNode
from lowering.machine.programs.idle_cycles import TaskOf as TaskOf
from lowering.machine.programs.idle_cycles import count_idle_cycles as count_idle_cycles
from lowering.machine.programs.idle_cycles import work_of_tick as work_of_tick
from lowering.machine.roofline import Resource as Resource
from lowering.machine.roofline import Roof as Roof
from lowering.machine.roofline import Roofline as Roofline
from lowering.machine.roofline import RooflinePoint as RooflinePoint
from lowering.machine.roofline import build_roofline as build_roofline
from lowering.machine.target import IPU1 as IPU1
from lowering.machine.target import IPU2 as IPU2
from lowering.machine.target import IPU21 as IPU21
from lowering.machine.target import TARGETS as TARGETS
from lowering.machine.target import Links as Links
from lowering.machine.target import Target as Target
from lowering.machine.tile_activity import TileActivity as TileActivity
from lowering.machine.tile_activity import TileTotals as TileTotals
from lowering.machine.tile_activity import sum_tile_activity as sum_tile_activity
from lowering.machine.trace import Step as Step
from lowering.machine.trace import Steps as Steps
from lowering.machine.transfers.links import INTER_IPU_CYCLES as INTER_IPU_CYCLES

if TYPE_CHECKING:
    from lowering.machine.function_cycles import (
        estimate_function_cycles as estimate_function_cycles,
    )
    from lowering.machine.function_cycles import estimate_tile_cycles as estimate_tile_cycles
    from lowering.machine.ipu_model import model as model
    from lowering.machine.kernels.listing import PlanOptions as PlanOptions
    from lowering.machine.machine_options import ModelOptions as ModelOptions
    from lowering.machine.machine_options import plan_options_of_stage as plan_options_of_stage
    from lowering.machine.machine_options import (
        planner_options_from_poplar as planner_options_from_poplar,
    )
    from lowering.machine.programs.program_facts import KnownParts as KnownParts

# Modelling a program needs JAX, so it is imported on first use; reading a profile does not.
_MODELLING = {
    "KnownParts": "lowering.machine.programs.program_facts",
    "ModelOptions": "lowering.machine.machine_options",
    "PlanOptions": "lowering.machine.kernels.listing",
    "estimate_function_cycles": "lowering.machine.function_cycles",
    "estimate_tile_cycles": "lowering.machine.function_cycles",
    "model": "lowering.machine.ipu_model",
    "plan_options_of_stage": "lowering.machine.machine_options",
    "planner_options_from_poplar": "lowering.machine.machine_options",
}


def __getattr__(name: str) -> Any:
    if name not in _MODELLING:
        raise AttributeError(f"module 'lowering.machine' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODELLING[name]), name)
