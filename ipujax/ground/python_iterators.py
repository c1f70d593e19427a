"""Detects Python iterators in traced functions, where `next` would give one element forever.

A loop's body, or a pipeline's stage, is traced once. An element that it takes from an iterator of
Python then becomes a constant of the program. So iterators that such a function can reach are
watched while it is traced, and taking numbers or arrays from one is an error.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import itertools
import threading
import types
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, cast

import jax
import numpy as np

from ipujax.ground.errors import ConfigTypeError, LoopTypeError
from ipujax.ground.user_lines import current_user_line
from lowering import is_numeric_dtype, jaxpr

_DEPTH = 4  # functions, objects and containers that are looked into, one in the other
_MOST_ITEMS = 64  # of one container: a long one is data, or weights
_MOST_HOLDERS = 1000  # that are looked into in all
_PASSED_OVER = ("ipujax", "jax", "jaxlib", "lowering", "numpy", "threading")  # whose objects
_FIX = (
    "give the data set to a queue, ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), and that to the "
    "loop: ipu.loops.repeat(n, body, inputs, infeed_queue=queue); each iteration gets an element"
)


@dc.dataclass
class _HeldIterator:
    """An iterator, and the function that replaces it in what holds it."""

    iterator: Iterator[object]
    put: Callable[[object], None]


class WatchedIterator:
    """A stand-in for an iterator that a traced function can reach; refuses to give data.

    Elements that are no data (layers, names, traced values) are passed on: a function may use
    that while it is traced.

    Args:
      iterator: the user's.
      function_name: the function that is traced, for messages.
    """

    def __init__(self, iterator: Iterator[object], function_name: str):
        self._iterator, self._what = iterator, function_name
        self._thread = threading.get_ident()  # another one may read an infeed's data meanwhile

    def __iter__(self) -> WatchedIterator:
        return self

    def __next__(self) -> object:
        # Computed while a function is traced, an element would be part of the trace.
        holds_traced = _holds_traced(self._iterator, _DEPTH)
        with contextlib.nullcontext() if holds_traced else jax.ensure_compile_time_eval():
            value = next(self._iterator)
        if (
            threading.get_ident() == self._thread
            and not isinstance(self._iterator, itertools.count)  # numbers names
            and _holds_numbers(value)
        ):
            raise LoopTypeError(
                f"{self._what} takes an element from a {type(self._iterator).__name__} of "
                "Python's; it is traced once, so that every iteration would get this same element",
                where=current_user_line(),
                fix=_FIX,
            )
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


@contextlib.contextmanager
def watch_iterators(function: object, function_name: str) -> Generator[None]:
    """Watches the iterators that a function can reach, as long as the block traces it.

    These are in its closure, its defaults, the globals that it names, and in the functions,
    containers and objects that are there.

    Args:
      function: the user's.
      function_name: what it is, for messages.

    Raises:
      LoopTypeError: (a `TypeError`, in the block) the function takes data from one.
    """
    held_iterators = list(_find_iterators(function, _DEPTH, set()))
    try:
        for held_iterator in held_iterators:
            held_iterator.put(WatchedIterator(held_iterator.iterator, function_name))
        yield
    finally:
        for held_iterator in held_iterators:
            held_iterator.put(held_iterator.iterator)


def refuse_iterators(args: object, kwargs: object, name: str) -> None:
    """Refuses iterators among the arguments of a compiled function.

    Raises:
      ConfigTypeError: (a `TypeError`) there is one.
    """
    arguments = {"args": args, "kwargs": kwargs}
    for path, leaf in jax.tree_util.tree_leaves_with_path(arguments, is_leaf=_is_iterator):
        if _is_iterator(leaf):
            kind, *inside = path
            raise ConfigTypeError(
                f"{kind.key}{jax.tree_util.keystr(tuple(inside))} of `{name}` is a "
                f"{type(leaf).__name__}, an iterator of Python's, and programs take arrays",
                where=current_user_line(),
                fix=_FIX,
            )


# --- where iterators are --------------------------------------------------------------------------


def _find_iterators(holder: object, depth: int, visited_ids: set[int]) -> Iterator[_HeldIterator]:
    if depth == 0 or id(holder) in visited_ids or len(visited_ids) > _MOST_HOLDERS:
        return
    visited_ids.add(id(holder))
    for value, put in _list_references(holder):
        if _is_iterator(value):
            yield _HeldIterator(value, put)
        elif value is not None:
            yield from _find_iterators(value, depth - 1, visited_ids)


_Slots = Iterable[tuple[Any, Callable[[object], None]]]


def _list_references(holder: object) -> _Slots:
    """Returns the objects that a holder refers to, each with a function that replaces it."""
    if isinstance(holder, types.FunctionType):
        return _list_function_references(holder) if _is_defined_by_user(holder) else ()
    if isinstance(holder, types.MethodType):
        return [(holder.__func__, _leave_unchanged), (holder.__self__, _leave_unchanged)]
    if isinstance(holder, functools.partial):
        partial_function = cast(functools.partial[object], holder)
        return [
            (referenced, _leave_unchanged)
            for referenced in (
                partial_function.func,
                *partial_function.args,
                *partial_function.keywords.values(),
            )
        ]
    if isinstance(holder, (list, dict)):
        items = cast(list[object] | dict[object, object], holder)
        if len(items) > _MOST_ITEMS:
            return ()
        pairs = list(items.items()) if isinstance(items, dict) else list(enumerate(items))
        return [(value, functools.partial(items.__setitem__, key)) for key, value in pairs]
    if isinstance(holder, (tuple, jax.Array, np.ndarray, types.ModuleType, type)):
        return [(item, _leave_unchanged) for item in holder] if type(holder) is tuple else ()
    state = getattr(holder, "__dict__", None)
    if type(state) is not dict or type(holder).__module__.partition(".")[0] in _PASSED_OVER:
        return ()
    members = cast(dict[str, object], state)
    slots = [(value, functools.partial(members.__setitem__, n)) for n, value in members.items()]
    called = vars(type(holder)).get("__call__")
    return [(called, _leave_unchanged), *slots] if isinstance(called, types.FunctionType) else slots


def _list_function_references(function: types.FunctionType) -> _Slots:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # one that is empty yet
            yield cell.cell_contents, functools.partial(setattr, cell, "cell_contents")
    members = function.__globals__
    for name in _global_names(function.__code__):
        if name in members:
            yield members[name], functools.partial(members.__setitem__, name)
    for index, value in enumerate(function.__defaults__ or ()):
        yield value, functools.partial(_replace_default, function, index)
    named = function.__kwdefaults__ or {}
    for name, value in list(named.items()):
        yield value, functools.partial(named.__setitem__, name)


def _replace_default(function: types.FunctionType, index: int, value: Any) -> None:
    defaults = list(function.__defaults__ or ())
    defaults[index] = value
    function.__defaults__ = tuple(defaults)


def _leave_unchanged(_: object) -> None:
    """Does nothing: for references that cannot be replaced."""


def _global_names(code: types.CodeType) -> set[str]:
    """Returns the global names that a function and the functions inside it read."""
    nested_codes = (nested for nested in code.co_consts if isinstance(nested, types.CodeType))
    return set(code.co_names).union(*map(_global_names, nested_codes))


def _is_defined_by_user(function: types.FunctionType) -> bool:
    return jaxpr.is_user_file(function.__code__.co_filename)


# --- what they are --------------------------------------------------------------------------------


def _is_iterator(value: object) -> bool:
    return hasattr(type(value), "__next__") and not isinstance(value, WatchedIterator)


def _holds_numbers(value: object) -> bool:
    """Returns whether an iterator's element holds numbers, which a program would keep forever."""
    leaves = jax.tree.leaves(value)
    return not any(map(jaxpr.is_tracer, leaves)) and any(map(_is_array_or_number, leaves))


def _is_array_or_number(leaf: object) -> bool:
    if isinstance(leaf, bool):
        return False
    if isinstance(leaf, (int, float, complex)):
        return True
    dtype = getattr(leaf, "dtype", None)
    if isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
        return is_numeric_dtype(dtype)  # a key for random numbers is none
    return dtype is not None and hasattr(leaf, "__array__")  # PyTorch's, TensorFlow's


def _holds_traced(value: object, depth: int) -> bool:
    """Returns whether an iterator may give, or compute from, values that are being traced."""
    if jaxpr.is_tracer(value) or depth == 0:
        return True
    if isinstance(value, (types.GeneratorType, types.FunctionType)):
        return any(_holds_traced(value_inside, depth - 1) for value_inside in _values_inside(value))
    if _is_iterator(value):
        try:
            values_inside = (
                value.__reduce__()[1] if "__dict__" not in dir(value) else vars(value).values()
            )
        except TypeError:  # one that cannot be copied says nothing of what it holds
            return True
        return any(_holds_traced(value, depth - 1) for value in values_inside)
    leaves = jax.tree.leaves(value, is_leaf=_is_iterator)
    return any(
        _holds_traced(value, depth - 1) if _is_iterator(value) else jaxpr.is_tracer(value)
        for value in leaves
    )


def _values_inside(value: Any) -> list[Any]:
    """Returns the local variables of a generator, or what a function closes over."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return [] if frame is None else list(frame.f_locals.values())
    return (
        [referenced for referenced, _ in _list_function_references(value)]
        if _is_defined_by_user(value)
        else []
    )
