"""The user's functions of an estimator, called with the arguments that they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ipujax.doors.estimators.estimator_checks import check
from ipujax.ground import PyTree


class FunctionByName:
    """A function that is called with the named values that its signature takes.

    Args:
      function: the user's function.
      label: the name of the function in messages.
      offered: the names of the values that it may take.
      positional: the names of arguments that come first, whatever the function calls them.

    Raises:
      EstimatorTypeError: (a `TypeError`) a value that is no function.
      EstimatorError: (a `ValueError`) a signature that needs another value.
    """

    def __init__(
        self,
        function: Any,
        label: str,
        offered: Collection[str],
        positional: Collection[str] = (),
    ):
        check.require_function(function, label)
        self.function = function
        parameters = list(inspect.signature(function).parameters.values())
        kinds = inspect.Parameter
        by_position = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.VAR_POSITIONAL)
        ordered = [parameter for parameter in parameters if parameter.kind in by_position]
        takes_any = any(p.kind is kinds.VAR_POSITIONAL for p in ordered)
        if len(ordered) < len(positional) and not takes_any:
            raise check.value_error(
                f"{label} takes {len(ordered)} positional arguments",
                f"take {', '.join(positional)} first, as in def {_name_of_user_function(function)}"
                f"({', '.join([*positional, *list(offered)[:3]])}, ...)",
            )
        for parameter, expected in zip(ordered, positional, strict=False):
            if parameter.name != expected and parameter.name in {*offered, *positional}:
                raise check.value_error(
                    f"{label} is given {expected} where it takes {parameter.name}",
                    f"take {', '.join(positional)} first, as in "
                    f"def {_name_of_user_function(function)}"
                    f"({', '.join([*positional, *list(offered)[:3]])}, ...)",
                )
        other_parameters = [p for p in parameters if p not in ordered[: len(positional)]]
        takes_all = any(p.kind is kinds.VAR_KEYWORD for p in other_parameters)
        keyword_names = {
            p.name for p in other_parameters if p.kind in (kinds.KEYWORD_ONLY, by_position[1])
        }
        self.names = frozenset(offered if takes_all else keyword_names & set(offered))
        required_names = {
            p.name for p in other_parameters if p.default is p.empty and p.name in keyword_names
        }
        if unknown := sorted(required_names - set(offered)):
            raise check.value_error(
                f"{label} takes {', '.join(unknown)}, which nobody gives it",
                f"take any of {', '.join(offered)}, or give the others default values",
            )

    def takes(self, name: str) -> bool:
        """Returns whether the function takes a value of this name."""
        return name in self.names

    def __call__(self, *args: Any, **values: Any) -> PyTree:
        """Calls the function with those of the values that it takes."""
        return self.function(*args, **{n: v for n, v in values.items() if n in self.names})


def _name_of_user_function(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "model_fn")


def split_element_arguments(element: object) -> tuple[tuple[PyTree, ...], dict[str, PyTree]]:
    """Returns positional and keyword arguments of a loop's body for an element."""
    if isinstance(element, (tuple, list)) and len(element) == 1 and isinstance(element[0], dict):
        element = element[0]
    if isinstance(element, dict):
        return (), element
    return tuple(element) if isinstance(element, (tuple, list)) else (element,), {}


def features_and_labels(
    args: tuple[object, ...], keyword_arguments: Mapping[str, object]
) -> tuple[PyTree, PyTree]:
    """Returns the features and labels of an element of a data set.

    Args:
      args: the arguments that an infeed gives by position.
      keyword_arguments: those that it gives by keyword: a flat dict is all features (fact
        estimator.flat_dict).

    Returns:
      Features, and labels or None.
    """
    if keyword_arguments:
        return dict(keyword_arguments), None
    if len(args) not in (1, 2):
        raise check.value_error(
            f"an element of the data set is a tuple of {len(args)} entries",
            "give (features, labels), or features alone; put several arrays into a dict",
        )
    return args[0], args[1] if len(args) == 2 else None
