"""The arguments of a compiled function: which are static, and how all become flat arrays."""

from __future__ import annotations

import dataclasses as dc
import itertools
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import keystr, tree_flatten, tree_unflatten

from ipujax.distribution import process_holding_array
from ipujax.driver.stacked_arrays import StackedArrays
from ipujax.ground import (
    ALONE,
    ConfigError,
    ConfigTypeError,
    ExecutableArgumentError,
    Instance,
    current_instance,
    structure_text,
)
from lowering import Ref, is_float0, is_ref, jaxpr, shape_of

CallArguments = tuple[tuple[object, ...], dict[str, object]]
"""The arguments of a call: by position, and by keyword."""


class Tree(Protocol):
    """The structure of a pytree: the interface of JAX's class, which has no type annotations."""

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        ...

    def children(self) -> Sequence[Tree]:
        """Returns the structures of the children of the root."""
        ...

    def node_data(self) -> Any:
        """Returns the class of the root and its metadata: for a dict, its keys."""
        ...


@dc.dataclass(frozen=True)
class Chosen:
    """Some of a function's arguments, selected by position and by name as in `jax.jit`.

    Attributes:
      numbers: by position; negative ones count from the last argument.
      names: by name, for those that a call gives by keyword.
    """

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def find_selected_positions(self, count: int) -> set[int]:
        """Returns which of `count` positional arguments are selected."""
        return {number % count for number in self.numbers if -count <= number < count}


@dc.dataclass(frozen=True)
class Static(Chosen):
    """The arguments of a function that are compile-time constants."""

    def split_arguments(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[tuple[object, ...], tuple[tuple[str, object], ...]], CallArguments]:
        """Returns the static arguments, by position and by name, and the dynamic arguments."""
        if not self.numbers and not self.names:
            return ((), ()), (args, kwargs)
        static = self.find_selected_positions(len(args))
        chosen = tuple(arg for i, arg in enumerate(args) if i in static)
        named = tuple((name, kwargs[name]) for name in self.names if name in kwargs)
        dynamic_args = tuple(arg for i, arg in enumerate(args) if i not in static)
        return (chosen, named), (
            dynamic_args,
            {k: v for k, v in kwargs.items() if k not in self.names},
        )

    def merge_arguments(
        self, args: tuple[object, ...], kwargs: dict[str, object], dynamic: CallArguments
    ) -> CallArguments:
        """Returns all arguments of a call, with its dynamic ones replaced by `dynamic`."""
        static, dynamic_args = self.find_selected_positions(len(args)), iter(dynamic[0])
        positional = tuple(arg if i in static else next(dynamic_args) for i, arg in enumerate(args))
        return positional, {**kwargs, **dynamic[1]}

    def dynamic_positions(self, count: int) -> tuple[int, ...]:
        """Returns which of `count` positional arguments are not static."""
        static = self.find_selected_positions(count)
        return tuple(i for i in range(count) if i not in static)

    def hash_key(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Hashable:
        """Returns a key that is equal for static arguments that share one `jax.jit` compilation.

        Equal keys mean equal types too: `True`, 1 and 1.0 have three keys.

        Raises:
          ConfigError: (a `ValueError`) a static argument that has no hash.
        """
        by_position, by_name = self.split_arguments(args, kwargs)[0]
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
    """The arguments of `ipu.compile` for one function.

    Without `replicas`, the device decides; `alone`, no other process runs it; without `gather`,
    results stay where they are computed. Reports call the first of the flat arguments by `names`.
    IPU i runs on `meshes[i]`; without meshes, on one JAX device.
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
    meshes: tuple[Mesh, ...] = ()

    @property
    def instance(self) -> Instance:
        """This process, among those that run the program together."""
        return ALONE if self.alone else current_instance()

    @property
    def spreads_ipus_over_processes(self) -> bool:
        """True if the IPUs of one replica are spread over several processes."""
        return self.instance.count > 1 and self.instance.spread == "ipus"

    def find_holding_processes(self, leaves: Iterable[object]) -> tuple[int | None, ...]:
        """Returns for each flat argument the one process that holds it, or None."""
        return tuple(map(process_holding_array, leaves)) if self.spreads_ipus_over_processes else ()


@dc.dataclass(frozen=True)
class Refs:
    """The Refs of a program: it takes their values, and their last ones are its last results.

    Attributes:
      positions: which of the program's inputs they are.
      closed_over: those that are no arguments of the user's function; the last inputs.
    """

    positions: tuple[int, ...]
    closed_over: tuple[Ref, ...]

    def find_refs(self, inputs: Sequence[object]) -> list[Ref]:
        """Returns all Refs of one call, in the order of the results.

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
    """The flat arguments and results of dtype float0, which a program takes as booleans.

    Attributes:
      arguments: the number and the shape of each flat argument that is one.
      results: the same of flat results.
    """

    arguments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    results: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @classmethod
    def find_float0(cls, closed: jaxpr.ClosedJaxpr) -> Tangents:
        """Finds the float0 arguments and results of a function of flat arguments."""
        arguments, results = (
            tuple((n, shape_of(aval)) for n, aval in enumerate(avals) if is_float0(aval))
            for avals in (closed.in_avals, closed.out_avals)
        )
        return cls(arguments, results)

    def replace_float0_arguments(self, flat: list[object]) -> list[object]:
        """Replaces float0 arguments by the boolean zeros that the program takes."""
        for number, _ in self.arguments:
            leaf = flat[number]
            if is_float0(leaf):  # of others the program says what it wants
                flat[number] = np.zeros(shape_of(leaf), np.bool_)
        return flat

    def restore_float0_results(self, flat: Sequence[object]) -> list[object]:
        """Replaces the program's boolean results by the float0 arrays that the user gets."""
        results = list(flat)
        for number, shape in self.results:
            results[number] = np.zeros(shape, jax.dtypes.float0)
        return results


@dc.dataclass(frozen=True)
class Signature:
    """The mapping of a user's arguments and results to flat ones, for one kind of call.

    Attributes:
      name: the name of the program.
      static: which arguments are compile-time constants.
      positions: the positions of the user's dynamic arguments, without keywords.
      in_tree: the structure of the dynamic arguments, `(args, kwargs)`.
      out_tree: the structure of the result.
      donated: which flat arguments are donated.
      refs: which flat arguments are Refs, those that the function closes over included.
      holders: for each flat argument the only process that holds it, or None; () if all hold all.
      parameters: the parameter names of the arguments at `positions`; () if unknown.
      names: names given to the first flat arguments instead of those.
      tangents: which flat arguments and results are of float0.
      stacked: which flat arguments and results the program takes and gives in parts; `donated` and
        `refs` count the parts.
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
    stacked: StackedArrays = dc.field(default_factory=StackedArrays)

    def flatten_arguments(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> list[object]:
        """Returns the flat dynamic arguments of a call, then the Refs closed over.

        Raises:
          ExecutableArgumentError: (a `TypeError` and `ValueError`) their structure is another one.
        """
        leaves, structure = tree_flatten(self.static.split_arguments(args, kwargs)[1])
        if structure != self.in_tree:
            raise ExecutableArgumentError(
                f"`{self.name}` was lowered for arguments of structure "
                f"{structure_text(self.in_tree)}, and called with {structure_text(structure)}: "
                f"{_describe_tree_difference(self.in_tree, structure)}",
                where=jaxpr.current_user_line(),
                fix="give arguments of that structure; or call the function that ipu.compile "
                "returned, which compiles for each structure, or lower again",
            )
        flat: list[object] = [*leaves, *self.refs.closed_over]
        if self.tangents.arguments:
            flat = self.tangents.replace_float0_arguments(flat)
        return self.stacked.split_arguments(flat) if self.stacked else flat

    def unflatten_results(self, flat: Sequence[object]) -> object:
        """Builds the function's result from the first of the program's flat results."""
        if self.stacked:
            flat = self.stacked.join_results(flat)
        if self.tangents.results:
            flat = self.tangents.restore_float0_results(flat)
        return tree_unflatten(self.out_tree, flat[: self.out_tree.num_leaves])

    def argument_paths(self) -> Iterator[str]:
        """Yields the path of each flat argument: `args[0]['w']`, `kwargs['x']`."""
        by_position, by_name = self.in_tree.children()
        paths = [
            f"args[{position}]{path}"
            for position, tree in zip(self.positions, by_position.children(), strict=True)
            for path in _leaf_paths(tree)
        ]
        paths += (f"kwargs{path}" for path in _leaf_paths(by_name))
        yield from self.stacked.name_arguments(paths)

    def argument_names_for_user(self) -> Iterator[str]:
        """Yields the user's name for each flat argument: `params['w']`, `x`, or a given name."""
        own_names = itertools.islice(self._parameter_paths(), len(self.names), None)
        yield from self.stacked.name_arguments([*self.names, *own_names])

    def _parameter_paths(self) -> Iterator[str]:
        """Yields the path of each flat argument from the function's parameter names."""
        by_position, _ = self.in_tree.children()
        parameters = self.parameters or [f"args[{position}]" for position in self.positions]
        for name, tree in zip(parameters, by_position.children(), strict=True):
            yield from (f"{name}{path}" for path in _leaf_paths(tree))
        for name, tree in _keyword_trees(self.in_tree).items():
            yield from (f"{name}{path}" for path in _leaf_paths(tree))

    def result_paths(self) -> Iterator[str]:
        """Yields the path of each flat result: `results`, `results[1]`."""
        yield from self.stacked.name_results(
            [f"results{path}" for path in _leaf_paths(self.out_tree)]
        )

    def split_arrays(self, stacked: StackedArrays) -> Signature:
        """Returns the signature of the same function whose program takes some arrays in parts."""
        return dc.replace(self, stacked=stacked, donated=stacked.numbers_in_program(self.donated))


def _describe_tree_difference(expected: Tree, actual: Tree) -> str:
    """Describes the first difference between two structures of call arguments."""
    positions, other_positions = (tree.children()[0].children() for tree in (expected, actual))
    if len(positions) != len(other_positions):
        return f"{len(positions)} arguments by position expected, {len(other_positions)} given"
    for number, (expected_tree, actual_tree) in enumerate(
        zip(positions, other_positions, strict=True)
    ):
        if expected_tree != actual_tree:
            return (
                f"argument {number} is {structure_text(actual_tree)}, expected "
                f"{structure_text(expected_tree)}"
            )
    named, other_named = (_keyword_trees(tree) for tree in (expected, actual))
    if named.keys() != other_named.keys():
        return f"keywords {sorted(named)} expected, {sorted(other_named)} given"
    name = next(name for name in named if named[name] != other_named[name])
    actual_tree, expected_tree = structure_text(other_named[name]), structure_text(named[name])
    return f"argument `{name}` is {actual_tree}, expected {expected_tree}"


def _keyword_trees(tree: Tree) -> dict[str, Tree]:
    """Returns the structure of each keyword argument by its name."""
    by_name = tree.children()[1]
    _, names = by_name.node_data()
    return dict(zip(names, by_name.children(), strict=True))


def _leaf_paths(tree: Tree) -> list[str]:
    """Returns the path of every leaf of a pytree in Python's indexing syntax."""
    leaves = jax.tree.unflatten(tree, range(tree.num_leaves))
    return [keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(leaves)]


def shape_struct(leaf: object) -> jax.ShapeDtypeStruct | Ref:
    """Returns an argument's shape, dtype and weak type; a Ref is returned as it is."""
    if is_ref(leaf):
        return leaf
    aval = leaf if isinstance(leaf, jaxpr.ShapedArray) else jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
