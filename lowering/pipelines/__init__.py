"""Pipelines before they are lowered: tasks, the stages' derivatives, and how both are cut."""

from lowering.jaxprs import inline_jitted_calls as inline_jitted_calls
from lowering.jaxprs import jaxpr_of_equations as jaxpr_of_equations
from lowering.jaxprs import unique_variables as unique_variables
from lowering.ops import Combination as Combination
from lowering.ops import LoopVariable as LoopVariable
from lowering.ops import Options as Options
from lowering.ops import PipelineSpec as PipelineSpec
from lowering.ops import Recomputation as Recomputation
from lowering.ops import TaskRole as TaskRole
from lowering.ops import TaskSpec as TaskSpec
from lowering.ops import call_without_tracing as call_without_tracing
from lowering.ops import evaluate_without_tracing as evaluate_without_tracing
from lowering.ops import mark_recomputation_checkpoint as mark_recomputation_checkpoint
from lowering.ops import run_as_task as run_as_task
from lowering.ops import trace_with_untraced_calls as trace_with_untraced_calls
from lowering.pipelines.backward_slices import (
    add_equations_with_actions as add_equations_with_actions,
)
from lowering.pipelines.backward_slices import equations_reading as equations_reading
from lowering.pipelines.backward_slices import (
    has_effect_besides_collectives as has_effect_besides_collectives,
)
from lowering.pipelines.backward_slices import select_equations_for as select_equations_for
from lowering.pipelines.backward_slices import variables_depending_on as variables_depending_on
from lowering.pipelines.backward_slices import (
    variables_read_from_outside as variables_read_from_outside,
)
from lowering.pipelines.cuts import StageMemory as StageMemory
from lowering.pipelines.cuts import bytes_between_equations as bytes_between_equations
from lowering.pipelines.cuts import has_product as has_product
from lowering.pipelines.differentiate import StageDerivative as StageDerivative
from lowering.pipelines.differentiate import differentiate_stage as differentiate_stage
from lowering.pipelines.pullbacks import PullbackTracer as PullbackTracer
from lowering.pipelines.recut import FlatPipeline as FlatPipeline
from lowering.pipelines.reshard import ShardedBody as ShardedBody
from lowering.pipelines.slice_leaves import slice_leaves_first as slice_leaves_first
from lowering.pipelines.stage_marks import (
    inline_jits_with_stage_marks as inline_jits_with_stage_marks,
)
from lowering.pipelines.stage_marks import stages_in_marks as stages_in_marks
from lowering.pipelines.task_edits import copy_task_with_kind as copy_task_with_kind
from lowering.pipelines.task_edits import lift_constants_of_tasks as lift_constants_of_tasks
from lowering.pipelines.task_edits import prune_tasks as prune_tasks
from lowering.pipelines.task_edits import replace_equations_by_id as replace_equations_by_id
from lowering.pipelines.task_edits import replace_task_body as replace_task_body
from lowering.pipelines.task_edits import stages_with_tasks as stages_with_tasks
from lowering.pipelines.task_edits import tasks_of_stage as tasks_of_stage
from lowering.pipelines.write_stage_marks import write_stage_marks as write_stage_marks
