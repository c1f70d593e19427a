"""Pipelines before they are lowered: tasks, the stages' derivatives, and how both are cut."""

from lowering.equations import sliced as sliced
from lowering.equations import variables as variables
from lowering.ops.tasks import Kind as Kind
from lowering.ops.tasks import Options as Options
from lowering.ops.tasks import PipelineSpec as PipelineSpec
from lowering.ops.tasks import Recomputation as Recomputation
from lowering.ops.tasks import TaskSpec as TaskSpec
from lowering.ops.tasks import checkpoint as checkpoint
from lowering.ops.tasks import task as task
from lowering.pipelines.differentiate import Halves as Halves
from lowering.pipelines.differentiate import differentiate as differentiate
from lowering.pipelines.marked import marked_stages as marked_stages
from lowering.pipelines.marked import with_marks_on_top as with_marks_on_top
from lowering.pipelines.slices import dependent as dependent
from lowering.pipelines.slices import needed_for as needed_for
