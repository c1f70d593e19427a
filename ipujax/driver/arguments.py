"""The arguments of a compiled function: which are static, and how all become flat arrays."""

from __future__ import annotations

import dataclasses as dc
import itertools
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten, tree_unflatten

from ipujax.checks.structures import shown
from ipujax.distribution.holding import holder
from ipujax.distribution.instance import ALONE, Instance
from ipujax.distribution.join import here
from ipujax.errors import ConfigError, ConfigTypeError, ExecutableArgumentError
from lowering import Ref, is_float0, is_ref, jaxpr, shape_of

Given = tuple[tuple[object, ...], dict[str, object]]
"""The arguments of a call: by position, and by keyword."""


class Tree(Protocol):
    """The structure of a pytree: JAX's own class, which has no types."""

    @property
    def num_leaves(self) -> int:
        """How many there are."""
        ...

    def children(self) -> Sequence[Tree]:
        """The structures inside."""
        ...

    def node_data(self) -> Any:
        """The class of a node, and what that keeps of one: of a dict, its keys."""
        ...


@dc.dataclass(frozen=True)
class Chosen:
    """Some of a function's arguments, as `jax.jit` chooses them.

    Attributes:
      numbers: by position; negative ones count from the last argument.
      names: by name, for those that a call gives by keyword.
    """

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def positions(self, count: int) -> set[int]:
        """Which of so many arguments by position are chosen."""
        return {number % count for number in self.numbers if -count <= number < count}


@dc.dataclass(frozen=True)
class Static(Chosen):
    """Which arguments are compile-time constants."""

    def split(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[tuple[object, ...], tuple[tuple[str, object], ...]], Given]:
        """The static arguments, those by position and those by name, and the others."""
        if not self.numbers and not self.names:
            return ((), ()), (args, kwargs)
        static = self.positions(len(args))
        chosen = tuple(arg for i, arg in enumerate(args) if i in static)
        named = tuple((name, kwargs[name]) for name in self.names if name in kwargs)
        rest = tuple(arg for i, arg in enumerate(args) if i not in static)
        return (chosen, named), (rest, {k: v for k, v in kwargs.items() if k not in self.names})

    def joined(self, args: tuple[object, ...], kwargs: dict[str, object], dynamic: Given) -> Given:
        """All arguments, with others in the place of the dynamic ones."""
        static, rest = self.positions(len(args)), iter(dynamic[0])
        positional = tuple(arg if i in static else next(rest) for i, arg in enumerate(args))
        return positional, {**kwargs, **dynamic[1]}

    def dynamic(self, count: int) -> tuple[int, ...]:
        """Those of so many positions that are not static."""
        static = self.positions(count)
        return tuple(i for i in range(count) if i not in static)

    def key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Hashable:
        """Equal for static arguments for which `jax.jit` would use what it compiled once.

        Those have equal types as well: `True`, 1 and 1.0 are three.

        Raises:
          ConfigError: (a `ValueError`) a static argument that has no hash.
        """
        by_position, by_name = self.split(args, kwargs)[0]
        for value in (*by_position, *(value for _, value in by_name)):
            try:
                hash(value)
            except TypeError as missing:
                raise ConfigError(
                    f"a static argument has no hash: {reprlib.repr(value)}, of type "
                    f"{type(value).__name__} ({missing})",
                    fix="give what has one, such as a tuple for a list; or an array, as an "
                    "argument that is not static",
                ) from None
        positional = tuple((type(value), value) for value in by_position)
        return positional, frozenset((name, type(value), value) for name, value in by_name)


@dc.dataclass(frozen=True, eq=False)
class Settings:
    """What `ipu.compile` was told about a function.

    Without `replicas`, the device decides; `alone`, no other process runs it; without `gather`,
    what one process has stays there. Reports call the first of the flat arguments by `names`.
    """

    device: str
    engine: str
    static: Static
    donated: Chosen
    name: str
    replicas: int | None = None
    alone: bool = False
    gather: bool = True
    names: tuple[str, ...] = ()

    @property
    def among(self) -> Instance:
        """This process, among those that run the program together."""
        return ALONE if self.alone else here()

    @property
    def has_parts(self) -> bool:
        """Whether other processes have IPUs of the same replicas."""
        return self.among.count > 1 and self.among.spread == "ipus"

    def holders(self, leaves: Iterable[object]) -> tuple[int | None, ...]:
        """Of each flat argument the process that alone has it, if one has."""
        return tuple(map(holder, leaves)) if self.has_parts else ()


@dc.dataclass(frozen=True)
class Refs:
    """The Refs of a program: it takes their values, and their last ones are its last results.

    Attributes:
      positions: which of the program's inputs they are.
      closed_over: those that are no arguments of the user's function; the last inputs.
    """

    positions: tuple[int, ...]
    closed_over: tuple[Ref, ...]

    def among(self, inputs: Sequence[object]) -> list[Ref]:
        """All Refs of one call, in the order of the results.

        Raises:
          ConfigTypeError: (a `TypeError`) arguments that were Refs are not, or the other way round.
          ConfigError: (a `ValueError`) one Ref is given twice.
        """
        if not self.positions and Ref not in map(type, inputs):
            return []  # as almost always
        refs = {i: value for i, value in enumerate(inputs) if is_ref(value)}
        if tuple(refs) != self.positions:
            raise ConfigTypeError(
                f"the program was lowered with Refs as inputs {list(self.positions)}, and those "
                f"given are {list(refs)}",
                fix="call the function that ipu.compile returned, or lower again",
            )
        if len(set(map(id, refs.values()))) < len(refs):
            raise ConfigError(
                "a program was given one Ref twice: as two arguments, or as an argument of a "
                "function that closes over it",
                fix="give it once",
            )
        return list(refs.values())


@dc.dataclass(frozen=True)
class Tangents:
    """The arguments and results of float0, as gradients of integers are; a program has booleans.

    Attributes:
      arguments: the number and the shape of each flat argument that is one.
      results: the same of flat results.
    """

    arguments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    results: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, closed: jaxpr.ClosedJaxpr) -> Tangents:
        """Those of a function of flat arguments."""
        arguments, results = (
            tuple((n, shape_of(aval)) for n, aval in enumerate(avals) if is_float0(aval))
            for avals in (closed.in_avals, closed.out_avals)
        )
        return cls(arguments, results)

    def taken(self, flat: list[object]) -> list[object]:
        """Flat arguments as the program takes them."""
        for number, _ in self.arguments:
            leaf = flat[number]
            if is_float0(leaf):  # of others the program says what it wants
                flat[number] = np.zeros(shape_of(leaf), np.bool_)
        return flat

    def given(self, flat: Sequence[object]) -> list[object]:
        """Flat results as the user gets them."""
        results = list(flat)
        for number, shape in self.results:
            results[number] = np.zeros(shape, jax.dtypes.float0)
        return results


@dc.dataclass(frozen=True)
class Signature:
    """How arguments and results of a user's function become flat ones, for one kind of arguments.

    Attributes:
      name: of the program.
      static: which arguments are compile-time constants.
      positions: of the user's other arguments, but for keywords.
      in_tree: structure of the others, `(args, kwargs)`.
      out_tree: structure of the result.
      donated: which flat arguments are donated.
      refs: which flat arguments are Refs, those that the function closes over included.
      holders: of each flat argument the process that alone has it; nothing where all have all.
      parameters: what the user's function calls the arguments at `positions`; () if unknown.
      names: what the first of the flat arguments are called in the place of that.
      tangents: which flat arguments and results are of float0.
    """

    name: str
    static: Static
    positions: tuple[int, ...]
    in_tree: Tree
    out_tree: Tree
    donated: tuple[int, ...]
    refs: Refs
    holders: tuple[int | None, ...] = ()
    parameters: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tangents: Tangents = dc.field(default_factory=Tangents)

    def flatten(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[object]:
        """The flat dynamic arguments of a call; the Refs that the function closes over come last.

        Raises:
          ExecutableArgumentError: (a `TypeError` and `ValueError`) their structure is another one.
        """
        leaves, structure = tree_flatten(self.static.split(args, kwargs)[1])
        if structure != self.in_tree:
            raise ExecutableArgumentError(
                f"`{self.name}` was lowered for arguments of structure {shown(self.in_tree)}, "
                f"and called with {shown(structure)}: {_difference(self.in_tree, structure)}"
            )
        flat: list[object] = [*leaves, *self.refs.closed_over]
        return self.tangents.taken(flat) if self.tangents.arguments else flat

    def unflatten(self, flat: Sequence[object]) -> object:
        """The function's result, which the first of some flat values are."""
        if self.tangents.results:
            flat = self.tangents.given(flat)
        return tree_unflatten(self.out_tree, flat[: self.out_tree.num_leaves])

    def argument_names(self) -> Iterator[str]:
        """What a user calls each flat argument: `args[0]['w']`, `kwargs['x']`."""
        by_position, by_name = self.in_tree.children()
        for position, tree in zip(self.positions, by_position.children(), strict=True):
            yield from (f"args[{position}]{path}" for path in _paths(tree))
        yield from (f"kwargs{path}" for path in _paths(by_name))

    def user_names(self) -> Iterator[str]:
        """What the user calls each flat argument: `params['w']`, `x`, or as it was named."""
        yield from self.names
        yield from itertools.islice(self._parameter_paths(), len(self.names), None)

    def _parameter_paths(self) -> Iterator[str]:
        """What the user's function calls each flat argument."""
        by_position, _ = self.in_tree.children()
        parameters = self.parameters or [f"args[{position}]" for position in self.positions]
        for name, tree in zip(parameters, by_position.children(), strict=True):
            yield from (f"{name}{path}" for path in _paths(tree))
        for name, tree in _keywords(self.in_tree).items():
            yield from (f"{name}{path}" for path in _paths(tree))

    def result_names(self) -> Iterator[str]:
        """What a user calls each flat result: `results`, `results[1]`."""
        return (f"results{path}" for path in _paths(self.out_tree))


def _difference(expected: Tree, given: Tree) -> str:
    """Where the structures of two calls' arguments first differ."""
    positions, other_positions = (tree.children()[0].children() for tree in (expected, given))
    if len(positions) != len(other_positions):
        return f"{len(positions)} arguments by position expected, {len(other_positions)} given"
    for number, (own, other) in enumerate(zip(positions, other_positions, strict=True)):
        if own != other:
            return f"argument {number} is {shown(other)}, expected {shown(own)}"
    named, other_named = (_keywords(tree) for tree in (expected, given))
    if named.keys() != other_named.keys():
        return f"keywords {sorted(named)} expected, {sorted(other_named)} given"
    name = next(name for name in named if named[name] != other_named[name])
    other, own = shown(other_named[name]), shown(named[name])
    return f"argument `{name}` is {other}, expected {own}"


def _keywords(tree: Tree) -> dict[str, Tree]:
    """The structure of each argument by keyword."""
    by_name = tree.children()[1]
    _, names = by_name.node_data()
    return dict(zip(names, by_name.children(), strict=True))


def _paths(tree: Tree) -> list[str]:
    """Of the leaves, as Python would look them up."""
    leaves = jax.tree.unflatten(tree, range(tree.num_leaves))
    return [keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(leaves)]


def struct(leaf: object) -> jax.ShapeDtypeStruct | Ref:
    """An argument's shape and dtype, weak types kept; a Ref stays what it is."""
    if is_ref(leaf):
        return leaf
    aval = leaf if isinstance(leaf, jaxpr.ShapedArray) else jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
