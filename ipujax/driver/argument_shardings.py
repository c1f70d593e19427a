"""How the arguments of a program on meshes are sharded, and the results that follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from ipujax.driver.call_arguments import Signature
from ipujax.engine import Machine
from ipujax.system import get_logger


def pair_results_with_arguments(signature: Signature) -> tuple[tuple[int, int], ...]:
    """Returns the numbers of each flat result and the flat argument at the same path.

    The results of a function that returns no tuple are at the paths of its first argument.
    """
    returns_tuple = signature.out_tree.node_data() == (tuple, None)
    prefix = "args" if returns_tuple else "args[0]"
    numbers = {name: number for number, name in enumerate(signature.argument_paths())}
    paths = [name.replace("results", prefix, 1) for name in signature.result_paths()]
    return tuple((n, numbers[path]) for n, path in enumerate(paths) if path in numbers)


def keep_shardings(
    pairs: Sequence[tuple[int, int]], arguments: Sequence[Any], results: list[Any]
) -> None:
    """Shards each result as the argument at its path was, over the mesh of the result's IPU.

    Args:
      pairs: the numbers of results and arguments, from `pair_results_with_arguments`.
      arguments: the flat arguments of the call.
      results: the flat results, which are replaced in place. One of another shape or dtype than its
        argument, or whose argument was not sharded over such a mesh, stays as it is.
    """
    for result_number, argument_number in pairs:
        argument, result = arguments[argument_number], results[result_number]
        wanted = getattr(argument, "sharding", None)
        current = result.sharding
        if not isinstance(wanted, NamedSharding) or wanted.is_fully_replicated:
            continue
        if not isinstance(current, NamedSharding):  # of a constant, which no IPU has computed
            continue
        if current == wanted or (argument.shape, argument.dtype) != (result.shape, result.dtype):
            continue
        if current.mesh.axis_names == wanted.mesh.axis_names:
            target = NamedSharding(current.mesh, wanted.spec)
            if not current.is_equivalent_to(target, result.ndim):
                results[result_number] = jax.device_put(result, target)


def log_moved_arguments(machine: Machine, signature: Signature, flat: Sequence[object]) -> None:
    """Logs the arguments that are copied to each device of the mesh of the IPU that reads them."""
    names = dict(enumerate(signature.argument_names_for_user()))
    meshes = machine.placement.meshes
    moves = [
        f"`{names[number]}` to IPU {ipu}"
        for number, ipu in machine.argument_reads
        if number in names and _mesh_of(flat[number]) != meshes[ipu]
    ]
    if moves:
        get_logger().info(
            "Program `%s`: these arguments are not sharded over the mesh of the IPU that reads "
            "them, so that each call moves them there: %s",
            signature.name,
            _list_some(moves),
        )


def _list_some(texts: Sequence[str], most: int = 8) -> str:
    """Returns the first of some texts, and how many more there are."""
    num_left_out = max(len(texts) - most, 0)
    return ", ".join(texts[:most]) + f", and {num_left_out} more" * bool(num_left_out)


def _mesh_of(argument: object) -> object:
    """Returns the mesh over which an array is sharded; None for anything else."""
    return getattr(getattr(argument, "sharding", None), "mesh", None)
