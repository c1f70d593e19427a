"""The `optimizer_function` of a pipeline: what users may give for it, and how it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import optax
from jax.typing import ArrayLike

from ipujax.ground import Checks, PipelineError, find_signature_mismatch
from ipujax.pipelines.pipeline_arguments import OptimizerFunctionOutput, is_optimizer
from ipujax.pipelines.pipeline_stages import Pytree, describe_definition_line, describe_shapes
from ipujax.pipelines.single_argument_checks import check as pipeline_check

OptimizerFunction = Callable[..., OptimizerFunctionOutput]
OptimizerOrFunction = OptimizerFunction | optax.GradientTransformation | None
"""A function of the last stage's outputs, or the optimizer where these are the loss alone."""


def check_optimizer_function(optimizer: Any, check: Checks) -> OptimizerFunction | None:
    """Returns the function that an argument `optimizer_function` stands for.

    Args:
      optimizer: a function of the last stage's outputs; an optimizer, which makes it one of the
        loss; or None.
      check: makes the error.

    Raises:
      IPUError: of `check`: something else.
    """
    if is_optimizer(optimizer):

        def optimize_loss(loss: ArrayLike) -> OptimizerFunctionOutput:
            return OptimizerFunctionOutput(optimizer, loss)

        return optimize_loss
    if optimizer is not None and not callable(optimizer):
        expected = "a function of the last stage's outputs, an optimizer, or None"
        raise check.wrong_type_error(expected, optimizer, "optimizer_function")
    return cast(OptimizerFunction | None, optimizer)


def call_optimizer_function(
    function: OptimizerFunction, outputs: Sequence[Pytree]
) -> OptimizerFunctionOutput:
    """Calls an optimizer function on the last stage's outputs.

    Raises:
      PipelineError: (a `ValueError`) it takes other arguments than these outputs.
      PipelineTypeError: (a `TypeError`) it gives something else.
    """
    if refusal := find_signature_mismatch(function, outputs, {}):
        signature, mismatch = refusal
        raise PipelineError(
            f"optimizer_function does not take what the last stage returns: {mismatch}\n"
            f"  given: ({', '.join(map(describe_shapes, outputs))})\n"
            f"  takes: {signature}",
            where=describe_definition_line(function),
            fix="give a function of each output of the last stage, in this order, such as "
            "`lambda loss, ...: OptimizerFunctionOutput(optax.sgd(0.1), loss)`",
        )
    return pipeline_check.require_instance(
        function(*outputs),
        OptimizerFunctionOutput,
        "what optimizer_function returns",
        "an OptimizerFunctionOutput(opt, loss)",
    )
