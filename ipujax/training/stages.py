"""A model cut into stages, as training and inference take it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedQueue
from ipujax.pipelines.cut import cut
from ipujax.pipelines.request import PipelineRequest
from ipujax.pipelines.stages import Arguments, call_stage
from ipujax.pipelines.state import with_changes
from ipujax.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipujax.training.checks import check
from ipujax.training.state import Tree

_GIVEN = frozenset({
    "computational_stages", "gradient_accumulation_count", "repeat_count", "inputs", "infeed_queue",
    "outfeed_queue", "optimizer_function", "variables", "optimizer_state", "state",
    "reduction_method", "gradient_accumulation_dtype",
})  # fmt: skip


@check.guard
@dc.dataclass(frozen=True)
class Pipeline:
    """Stages in place of a model that is one function.

    Attributes:
      stages: as `pipelining_ops.pipeline` takes them; or one function of all that the first is
        given, which is cut where marks say that another stage begins.
      options: more of its arguments by name, such as `device_mapping` or `pipeline_schedule`.
      count: how many stages a function is cut into; None for as many as have marks.
      policy: of `jax.checkpoint`, for each stage that a function is cut into: what it keeps for its
        backward pass; None for what derivatives need.
    """

    stages: Sequence[Any] | Callable[..., Any]
    options: Mapping[str, Any] = dc.field(default_factory=dict[str, Any])
    count: int | None = None
    policy: Callable[..., bool] | None = None

    def __post_init__(self) -> None:
        check.instance(self.options, Mapping, "the options of a Pipeline")
        if self.count is not None:
            check.integer(self.count, "the count of a Pipeline", at_least=1)
        if taken := sorted(_GIVEN.intersection(self.options)):
            raise check.refuse(
                f"the options of a Pipeline have {', '.join(taken)}, which Training and Inference "
                "give themselves",
                "leave it out, and say it there: `accumulation`, `steps`, `inputs`, `optimizer`...",
            )

    def stages_for(
        self, variables: Tree, state: Tree, args: Sequence[Tree], named: Mapping[str, Tree]
    ) -> Sequence[Any]:
        """The stage functions for arguments, or avals, of these shapes."""
        if not callable(self.stages):
            return self.stages
        function, count, policy = self.stages, self.count, self.policy
        return cut(function, variables, state, args, named, count=count, policy=policy)

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
        element, named = queues[0].arguments()
        return pipeline(
            self.stages_for(variables, more.get("state"), [*inputs, *element], named),
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

    def forward(self, variables: Tree, state: Tree, *args: Tree, **named: Tree) -> list[Tree]:
        """What the last stage gives for one element: all stages one after the other, on their IPUs.

        Args:
          variables: given to all stages.
          state: the untrained state, the same; None for none. What becomes of it is not returned.
          args: of the first stage: inputs, then the element.
          named: the element, if it is a dict.
        """
        options: dict[str, Any] = {"gradient_accumulation_count": 1, **self.options}
        stages = self.stages_for(variables, state, args, named)
        given = Arguments(args, named)
        for number, parts in enumerate(
            PipelineRequest(computational_stages=stages, **options).stages
        ):
            outputs, changed = call_stage(number, parts, variables, state, given)
            given, state = Arguments(tuple(outputs), {}), with_changes(state, changed)
        return list(given.args)
