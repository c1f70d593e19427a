"""The user's functions of an estimator, called with what their signatures ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ipujax.estimators.checks import check


class ByName:
    """A function that is given those of some values whose names its signature has.

    Args:
      function: the user's.
      what: names it in messages.
      offered: names of what it may take.
      positional: names of arguments that come first, whatever the function calls them.

    Raises:
      EstimatorTypeError: (a `TypeError`) no function.
      EstimatorError: (a `ValueError`) a signature that needs something else.
    """

    def __init__(
        self,
        function: Any,
        what: str,
        offered: Collection[str],
        positional: Collection[str] = (),
    ):
        check.function(function, what)
        self.function = function
        parameters = list(inspect.signature(function).parameters.values())
        kinds = inspect.Parameter
        by_position = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.VAR_POSITIONAL)
        ordered = [p for p in parameters if p.kind in by_position]
        takes_any = any(p.kind is kinds.VAR_POSITIONAL for p in ordered)
        if len(ordered) < len(positional) and not takes_any:
            raise check.refuse(
                f"{what} takes {len(ordered)} positional arguments",
                f"take {', '.join(positional)} first, as in def {_name(function)}"
                f"({', '.join([*positional, *list(offered)[:3]])}, ...)",
            )
        rest = [p for p in parameters if p not in ordered[: len(positional)]]
        takes_all = any(p.kind is kinds.VAR_KEYWORD for p in rest)
        named = {p.name for p in rest if p.kind in (kinds.KEYWORD_ONLY, by_position[1])}
        self.names = frozenset(offered if takes_all else named & set(offered))
        needed = {p.name for p in rest if p.default is p.empty and p.name in named}
        if unknown := sorted(needed - set(offered)):
            raise check.refuse(
                f"{what} takes {', '.join(unknown)}, which nobody gives it",
                f"take any of {', '.join(offered)}, or give the others default values",
            )

    def takes(self, name: str) -> bool:
        """Whether a value of this name is asked for."""
        return name in self.names

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Calls it with those of the values that it takes."""
        return self.function(*args, **{n: v for n, v in values.items() if n in self.names})


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "model_fn")


def body_arguments(element: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An element as the body of a loop gets it: by position, and by keyword."""
    if isinstance(element, (tuple, list)) and len(element) == 1 and isinstance(element[0], dict):
        element = element[0]
    if isinstance(element, dict):
        return (), element
    return tuple(element) if isinstance(element, (tuple, list)) else (element,), {}


def features_and_labels(args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, Any]:
    """What an element of a data set is to an estimator.

    Args:
      args: what an infeed gives of it by position.
      named: what an infeed gives by keyword: a flat dict is all features (fact
        estimator.flat_dict).

    Returns:
      Features, and labels or None.
    """
    if named:
        return dict(named), None
    if len(args) not in (1, 2):
        raise check.refuse(
            f"an element of the data set is a tuple of {len(args)} entries",
            "give (features, labels), or features alone; put several arrays into a dict",
        )
    return args[0], args[1] if len(args) == 2 else None
