"""A model cut into stages, as training and inference take it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipujax.training.state import Tree


@dc.dataclass(frozen=True)
class Pipeline:
    """Stages in place of a model that is one function.

    Attributes:
      stages: as `pipelining_ops.pipeline` takes them.
      options: more of its arguments by name, such as `device_mapping` or `pipeline_schedule`.
    """

    stages: Sequence[Any]
    options: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])

    def run(
        self,
        steps: int,
        count: int,
        queues: tuple[IPUInfeedQueue, IPUOutfeedQueue],
        inputs: Sequence[Tree],
        variables: Tree,
        optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
        **more: Any,
    ) -> Tree:
        """So many executions of so many micro-batches each; gives what the pipeline gives."""
        return pipeline(
            self.stages,
            count,
            repeat_count=steps,
            inputs=inputs,
            infeed_queue=queues[0],
            outfeed_queue=queues[1],
            optimizer_function=optimizer_function,
            variables=variables,
            **more,
            **self.options,
        )
