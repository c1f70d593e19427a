"""The keywords of `Options.autoPlan`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from ipujax.ground import Keywords, PlanError
from ipujax.pipelines import plan, read_plan_arguments
from ipujax.poptorch.poptorch_checks import check

_OF_FUNCTIONS = ("has_aux", "argnums", "batch_argnums")
_DEFAULTS: Keywords = {
    name: parameter.default
    for name, parameter in inspect.signature(plan).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in _OF_FUNCTIONS
}
"""The keywords of `ipu.plan` that say what to choose from; those without a default are `empty`."""


def read_plan_choices(choices: Mapping[str, object]) -> Keywords:
    """Checks keywords of `ipu.plan`, and returns them.

    Raises:
      Error: (a `ValueError`) a keyword that PopTorch knows by itself, or a value that no plan can
        be made with; or, as a `TypeError`, one that `ipu.plan` does not have.
    """
    for name in choices:
        if name in _OF_FUNCTIONS:
            raise check.value_error(
                f"autoPlan({name}=...): PopTorch knows what to differentiate and to split",
                "leave it out",
            )
        if name not in _DEFAULTS:
            raise check.type_error(
                f"autoPlan has no keyword {name!r}",
                f"it takes those of ipu.plan: {', '.join(_DEFAULTS)}",
            )
    if choices.get("costs", "model") not in ("model", "measured"):
        raise check.value_error(
            f"autoPlan(costs={choices['costs']!r:.60}): costs of your own are for functions of JAX",
            'say costs="model" or costs="measured"',
        )
    memory = choices.get("memory")
    ipus = len(memory) if isinstance(memory, (list, tuple)) else 1
    complete = complete_plan_choices(choices, ipus=ipus, micro_batches=1)
    check.require_sequence(complete.pop("consider"), "consider", "dicts of arguments")
    try:
        read_plan_arguments(**complete)
    except PlanError as error:
        raise check.value_error(f"autoPlan: {error.what}", error.fix) from error
    return dict(choices)


def complete_plan_choices(choices: Mapping[str, object], **defaults: object) -> Keywords:
    """Returns all keywords of `ipu.plan` that say what to choose from.

    Args:
      choices: those that are given.
      defaults: values of those that are not given, and have no default in `ipu.plan`.
    """
    return {**_DEFAULTS, **defaults, **choices}
