"""The table of the classes that a saved executable may name, built from imported modules.

The names in a file are only looked up in this table: no attribute is read,
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

from ipujax.ground import ExecutableError
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
_CLASS_MODULES = (
    "optax",
    "ipujax.operators.metrics",
    "ipujax.operators.recurrent_layers",
    "ipujax.training.training_state",
    "ipujax.training.loss_scaling",
    "ipujax.training.device_loop",
    "ipujax.doors.estimators.function_mode",
    "ipujax.operators.nn.ctc_alignments",
    "ipujax.operators.nn.beam_search",
    "ipujax.operators.nn.sampled_losses",
    "ipujax.operators.rnn.gru",
    "ipujax.operators.rnn.lstm",
    "ipujax.optimizers.gradient_accumulation_optimizer",
)
"""Modules of ipujax, and optax, whose classes programs often hold; they are imported if needed."""

_MODULES_IN_FILES = {
    "ipujax.doors.estimators.function_mode:Untrained": "ipujax.estimators.function_mode",
    "ipujax.ground.events:IpuTraceEventType": "ipujax.events",
    "ipujax.host.outfeed_queue:IPUOutfeedMode": "ipujax.ipu_outfeed_queue",
    "ipujax.operators.metrics:Metric": "ipujax.metrics",
    "ipujax.operators.recurrent_layers:LSTMStateTuple": "ipujax.rnn_ops",
    "ipujax.optimizers.reduction_method:GradientAccumulationReductionMethod": (
        "ipujax.gradient_accumulation"
    ),
}
"""The module that files name for classes that have moved, so that older files stay readable."""


def name_class(kind: type, holder: str) -> str:
    """Returns the name by which a saved executable refers to a class.

    Args:
      kind: the class.
      holder: what holds the class, for messages.

    Raises:
      ExecutableError: a class that a reader would not find.
    """
    resolved: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        resolved = getattr(resolved, part, None)
    if resolved is not kind:
        raise ExecutableError(
            f"{holder} holds a {kind.__qualname__}, a class that no module has under that name, so "
            "that another process would not find it",
            fix="define the class at the top of a module, not in a function",
        )
    name = _class_name_in_files(kind)
    if _class_table().get(name) is not kind:
        clear_class_table()
    if _class_table().get(name) is not kind:
        raise ExecutableError(
            f"{holder} holds the class {name}, which cannot be put into a file",
            fix="hold plain types, enums, named tuples or registered pytree nodes only",
        )
    return name


def find_class(name: object) -> type:
    """Finds the class that a file names, without running code of the file.

    Raises:
      ExecutableError: there is none of that name among those that a file may name.
    """
    if not isinstance(name, str):
        raise ExecutableError(f"{name!r:.200} is no name of a class")
    named_class = _class_table().get(name)
    if named_class is None:
        for module_name in _CLASS_MODULES:
            importlib.import_module(module_name)
        clear_class_table()
        named_class = _class_table().get(name)
    if named_class is None:
        module, _, path = name.partition(":")
        raise ExecutableError(
            f"the program's arguments or results hold a {path:.200} of `{module:.200}`, which is "
            "not there",
            fix=f"import {module:.200} before loading the executable, in the version that it was "
            "saved with; only enums, named tuples and registered pytree nodes are looked for",
        )
    return named_class


def clear_class_table() -> None:
    """Clears the table, so that classes imported or defined since then are found."""
    _class_table.cache_clear()


def is_pytree_class(kind: type) -> bool:
    """Returns whether a class is registered with JAX as a pytree node."""
    return kind in _pytree_node_classes()


def is_named_tuple_class(kind: type) -> bool:
    """Returns whether a class is a named tuple, which JAX treats as a node unregistered."""
    fields = kind.__dict__.get("_fields") if issubclass(kind, tuple) else None
    return isinstance(fields, tuple)


@functools.cache
def _class_table() -> Mapping[str, type]:
    """Returns all classes that may be named; of two with one name, the one defined last."""
    _pytree_node_classes.cache_clear()
    several = (
        _subclasses(enum.Enum),
        filter(is_named_tuple_class, _subclasses(tuple)),
        _pytree_node_classes(),
        _PLAIN,
    )
    return {_class_name_in_files(kind): kind for kinds in several for kind in kinds}


@functools.cache
def _pytree_node_classes() -> Mapping[type, None]:
    return dict.fromkeys(jaxpr.PYTREE_NODE_CLASSES)


def _subclasses(kind: type) -> Iterator[type]:
    for subclass in type.__subclasses__(kind):
        yield subclass
        yield from _subclasses(subclass)


def _class_name_in_files(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    return f"{_MODULES_IN_FILES.get(name, kind.__module__)}:{kind.__qualname__}"
