"""The classes that a saved file may name, in a table that is made of what is imported already.

A file gives names, and nothing is done with a name but to look it up here: no attribute is read,
no module imported. In the table are Python's plain types, enums, named tuples, and the classes that
are registered with JAX as nodes of pytrees.
"""

from __future__ import annotations

import collections
import enum
import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ipujax.errors import ExecutableError
from lowering import jaxpr

_PLAIN: tuple[type, ...] = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    list,
    dict,
    set,
    frozenset,
    type(None),
    collections.OrderedDict,
    collections.defaultdict,
    collections.deque,
)
_HOMES = (
    "optax",
    "ipujax.metrics",
    "ipujax.rnn_ops",
    "ipujax.training.state",
    "ipujax.training.loss_scaling",
    "ipujax.training.device_loop",
    "ipujax.estimators.function_mode",
    "ipujax.operators.nn.ctc_alignments",
    "ipujax.operators.nn.beam_search",
    "ipujax.operators.nn.sampled_losses",
    "ipujax.operators.rnn.gru",
    "ipujax.operators.rnn.lstm",
    "ipujax.optimizers.gradient_accumulation_optimizer",
)
"""Modules of ours, and one that we stand on, whose classes programs have: always the same ones."""


def name_class(kind: type, what: str) -> str:
    """The name by which a file speaks of a class.

    Args:
      kind: the class.
      what: whose value holds it, for messages.

    Raises:
      ExecutableError: a class that a reader would not find.
    """
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not kind:
        raise ExecutableError(
            f"{what} holds a {kind.__qualname__}, a class that no module has under that name, so "
            "that another process would not find it",
            fix="define the class at the top of a module, not in a function",
        )
    name = _name(kind)
    if _table().get(name) is not kind:
        look_again()
    if _table().get(name) is not kind:
        raise ExecutableError(
            f"{what} holds the class {name}, which cannot be put into a file",
            fix="hold plain types, enums, named tuples or registered pytree nodes only",
        )
    return name


def find_class(name: object) -> type:
    """The class that a file names; whatever the name is, no code runs.

    Raises:
      ExecutableError: there is none of that name among those that a file may name.
    """
    if not isinstance(name, str):
        raise ExecutableError(f"{name!r:.200} is no name of a class")
    found = _table().get(name)
    if found is None:
        for home in _HOMES:
            importlib.import_module(home)
        look_again()
        found = _table().get(name)
    if found is None:
        module, _, path = name.partition(":")
        raise ExecutableError(
            f"the program's arguments or results hold a {path:.200} of `{module:.200}`, which is "
            "not there",
            fix=f"import {module:.200} before loading the executable, in the version that it was "
            "saved with; only enums, named tuples and registered pytree nodes are looked for",
        )
    return found


def look_again() -> None:
    """Has the next look at the table find what has been imported or defined meanwhile."""
    _table.cache_clear()


def is_node(kind: type) -> bool:
    """Whether a class is registered with JAX as a node of pytrees."""
    return kind in _nodes()


def is_named_tuple(kind: type) -> bool:
    """Whether a class is a named tuple, which JAX takes for a node without registration."""
    fields = kind.__dict__.get("_fields") if issubclass(kind, tuple) else None
    return isinstance(fields, tuple)


@functools.cache
def _table() -> Mapping[str, type]:
    """All classes that may be named; where two have one name, the one that was defined last."""
    _nodes.cache_clear()
    several = (_subclasses(enum.Enum), filter(is_named_tuple, _subclasses(tuple)), _nodes(), _PLAIN)
    return {_name(kind): kind for kinds in several for kind in kinds}


@functools.cache
def _nodes() -> Mapping[type, None]:
    return dict.fromkeys(jaxpr.NODES)


def _subclasses(kind: type) -> Iterator[type]:
    for each in type.__subclasses__(kind):
        yield each
        yield from _subclasses(each)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
