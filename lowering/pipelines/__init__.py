"""Pipelines before they are lowered: tasks, the stages' derivatives, and how both are cut."""

from lowering.ops.tasks import Kind as Kind
from lowering.ops.tasks import Options as Options
from lowering.ops.tasks import PipelineSpec as PipelineSpec
from lowering.ops.tasks import Recomputation as Recomputation
from lowering.ops.tasks import TaskSpec as TaskSpec
from lowering.ops.tasks import checkpoint as checkpoint
from lowering.ops.tasks import task as task
from lowering.pipelines.differentiate import Halves as Halves
from lowering.pipelines.differentiate import differentiate as differentiate
from lowering.pipelines.slices import dependent as dependent
