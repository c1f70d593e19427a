"""Pipelines before they are lowered: tasks, the stages' derivatives, and how both are cut."""

from lowering.pipelines.differentiate import Halves as Halves
from lowering.pipelines.differentiate import differentiate as differentiate
from lowering.pipelines.slices import dependent as dependent
from lowering.pipelines.task import Kind as Kind
from lowering.pipelines.task import Options as Options
from lowering.pipelines.task import PipelineSpec as PipelineSpec
from lowering.pipelines.task import Recomputation as Recomputation
from lowering.pipelines.task import TaskSpec as TaskSpec
from lowering.pipelines.task import checkpoint as checkpoint
from lowering.pipelines.task import task as task
