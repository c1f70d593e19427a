"""A model cut into pipeline stages, as training and inference take it."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipujax.ground import Keywords, PyTree
from ipujax.host import IPUInfeedQueue, IPUOutfeedQueue
from ipujax.pipelines import (
    Arguments,
    OptimizerFunctionOutput,
    PipelineRequest,
    call_stage,
    pipeline,
    replace_leaves,
    split_into_stages,
)
from ipujax.pipelines import StageOutput as StageOutput
from ipujax.training.training_checks import check
from ipujax.training.training_state import Tree

_RESERVED_OPTIONS = frozenset({
    "computational_stages", "gradient_accumulation_count", "repeat_count", "inputs", "infeed_queue",
    "outfeed_queue", "optimizer_function", "variables", "optimizer_state", "state",
    "reduction_method", "gradient_accumulation_dtype",
})  # fmt: skip


def _take_keywords_as_dict(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Returns a function that takes as keyword arguments the dict that another takes last."""

    @functools.wraps(function)
    def call_with_dict(*args: PyTree, **element: PyTree) -> PyTree:
        return function(*args, element)

    return call_with_dict


@check.guard
@dc.dataclass(frozen=True)
class Pipeline:
    """A model of pipeline stages, in place of one function.

    Attributes:
      stages: the stages, as `pipelining_ops.pipeline` takes them; or one function with the
        arguments of the first stage, which is cut at the marks of stages. An element that is a dict
        goes to it by keyword; `(dict,)`, a dict alone in a tuple, goes by position.
      options: more arguments of `pipelining_ops.pipeline`, such as `device_mapping`.
      count: the number of stages that a function is cut into; None for as many as have marks.
      policy: the `jax.checkpoint` policy of each stage that a function is cut into, which selects
        the values to keep for its backward pass; None for those that derivatives need.
      shares_variables: whether a variable that several stages of a function read is read by each
        of them, so that they must be on one IPU. Otherwise it lives in the first one, and its value
        and gradient travel with each micro-batch.
    """

    stages: Sequence[PyTree] | Callable[..., PyTree]
    options: Mapping[str, Any] = dc.field(default_factory=Keywords)
    count: int | None = None
    policy: Callable[..., bool] | None = None
    shares_variables: bool = False

    def __post_init__(self) -> None:
        check.require_instance(self.options, Mapping, "the options of a Pipeline")
        check.require_flag(self.shares_variables, "the shares_variables of a Pipeline")
        if self.count is not None:
            check.require_integer(self.count, "the count of a Pipeline", at_least=1)
        if reserved := sorted(_RESERVED_OPTIONS.intersection(self.options)):
            raise check.value_error(
                f"the options of a Pipeline have {', '.join(reserved)}, which Training and "
                "Inference give themselves",
                "leave it out, and say it there: `accumulation`, `steps`, `inputs`, `optimizer`...",
            )

    def get_stage_functions(
        self,
        variables: Tree,
        state: Tree,
        args: Sequence[Tree],
        keyword_arguments: Mapping[str, Tree],
    ) -> Sequence[PyTree]:
        """Returns the stage functions for arguments, or avals, of these shapes."""
        if not callable(self.stages):
            return self.stages
        return split_into_stages(
            self.stages,
            variables,
            state,
            args,
            keyword_arguments,
            count=self.count,
            policy=self.policy,
            shares_variables=self.shares_variables,
        )

    def run(
        self,
        steps: int,
        count: int,
        queues: tuple[IPUInfeedQueue, IPUOutfeedQueue],
        inputs: Sequence[Tree],
        variables: Tree,
        optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
        **options: object,
    ) -> Tree:
        """Runs executions of the pipeline, of some micro-batches each; returns its results."""
        element, keyword_element = queues[0].arguments()
        model = self
        if queues[0].has_dict_in_tuple and callable(self.stages) and not self.shares_variables:
            model = dc.replace(self, stages=_take_keywords_as_dict(self.stages))
        return pipeline(
            model.get_stage_functions(
                variables, options.get("state"), [*inputs, *element], keyword_element
            ),
            count,
            repeat_count=steps,
            inputs=inputs,
            infeed_queue=queues[0],
            outfeed_queue=queues[1],
            optimizer_function=optimizer_function,
            variables=variables,
            **options,
            **self.options,
        )

    def forward(
        self, variables: Tree, state: Tree, *args: Tree, **keyword_element: Tree
    ) -> list[Tree]:
        """Returns the last stage's outputs for one element: runs all stages, on their IPUs.

        Args:
          variables: the variables, which all stages take.
          state: the untrained state, which all stages take; None for none. It is not returned.
          args: the arguments of the first stage: inputs, then the element.
          keyword_element: the element, if it is a dict.
        """
        options: Keywords = {"gradient_accumulation_count": 1, **self.options}
        stages = self.get_stage_functions(variables, state, args, keyword_element)
        stage_arguments = Arguments(args, keyword_element)
        for stage_number, stage_parts in enumerate(
            PipelineRequest(computational_stages=stages, **options).stages
        ):
            outputs, state_changes = call_stage(
                stage_number, stage_parts, variables, state, stage_arguments
            )
            stage_arguments, state = (
                Arguments(tuple(outputs), {}),
                replace_leaves(state, state_changes),
            )
        return list(stage_arguments.args)
