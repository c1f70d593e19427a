"""Pipelines before they are lowered: tasks, the stages' derivatives, and how both are cut."""

from lowering.equations import jaxpr_of_equations as jaxpr_of_equations
from lowering.equations import unique_variables as unique_variables
from lowering.ops.tasks import Options as Options
from lowering.ops.tasks import PipelineSpec as PipelineSpec
from lowering.ops.tasks import Recomputation as Recomputation
from lowering.ops.tasks import TaskRole as TaskRole
from lowering.ops.tasks import TaskSpec as TaskSpec
from lowering.ops.tasks import mark_recomputation_checkpoint as mark_recomputation_checkpoint
from lowering.ops.tasks import run_as_task as run_as_task
from lowering.pipelines.backward_slices import select_equations_for as select_equations_for
from lowering.pipelines.backward_slices import variables_depending_on as variables_depending_on
from lowering.pipelines.differentiate import StageDerivative as StageDerivative
from lowering.pipelines.differentiate import differentiate_stage as differentiate_stage
from lowering.pipelines.stage_marks import open_jits_with_stage_marks as open_jits_with_stage_marks
from lowering.pipelines.stage_marks import stages_in_marks as stages_in_marks
