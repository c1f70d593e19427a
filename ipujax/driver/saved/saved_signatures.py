"""Encodes the mapping of arguments and results to flat ones as JSON, and decodes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from ipujax.driver.call_arguments import Refs, Signature, Static, Tangents
from ipujax.driver.saved.encoded_values import decode_tree, encode_tree
from ipujax.driver.stacked_arrays import StackedArrays
from ipujax.ground import ExecutableError, Json
from lowering import RowSplit, ir, shape_of


def encode_signature(signature: Signature) -> Json:
    """Encodes a signature as JSON.

    Raises:
      ExecutableError: structures that cannot be put into a file.
    """
    function_name = f"`{signature.name}`"
    return {
        "name": signature.name,
        "numbers": signature.static.numbers,
        "names": signature.static.names,
        "positions": signature.positions,
        "in": encode_tree(signature.in_tree, f"{function_name}: an argument"),
        "out": encode_tree(signature.out_tree, f"{function_name}: a result"),
        "donated": signature.donated,
        "refs": signature.refs.positions,
        "float0": {
            "arguments": [[n, *shape] for n, shape in signature.tangents.arguments],
            "results": [[n, *shape] for n, shape in signature.tangents.results],
        },
        "stacked": {
            "arguments": list(map(_encode_split, signature.stacked.arguments)),
            "results": list(map(_encode_split, signature.stacked.results)),
        },
    }


def _encode_split(split: RowSplit | None) -> Json:
    return None if split is None else [split.bounds, split.ipus]


def decode_signature(data: Mapping[str, Json]) -> Signature:
    """Decodes the signature that `encode_signature` wrote.

    Raises:
      ExecutableError: nothing that it gives.
    """
    signature = Signature(
        name=_check_list_of_texts([data["name"]])[0],
        static=Static(
            _check_numbers_list(data["numbers"], -(2**31)), _check_list_of_texts(data["names"])
        ),
        positions=_check_numbers_list(data["positions"]),
        in_tree=decode_tree(data["in"]),
        out_tree=decode_tree(data["out"]),
        donated=_check_numbers_list(data["donated"]),
        refs=Refs(_check_numbers_list(data["refs"]), ()),
        tangents=_decode_tangents(data.get("float0", {})),
        stacked=_decode_stacked_arrays(data.get("stacked", {})),
    )
    leaf_numbers: Any = jax.tree.unflatten(signature.in_tree, range(signature.in_tree.num_leaves))
    is_call = type(leaf_numbers) is tuple and [type(part) for part in leaf_numbers] == [tuple, dict]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    if not is_call or len(leaf_numbers[0]) != len(signature.positions):
        raise ExecutableError("the structure of its arguments is not that of a call")
    return signature


def _decode_tangents(data: Mapping[str, Json]) -> Tangents:
    """Decodes the float0 arguments and results; files of older releases have none."""
    arguments, results = (
        tuple((numbers[0], numbers[1:]) for numbers in map(_check_numbers_list, data.get(key, ())))
        for key in ("arguments", "results")
    )
    return Tangents(arguments, results)


def _decode_stacked_arrays(data: Mapping[str, Json]) -> StackedArrays:
    """Decodes which arrays are in parts; files of older releases have none."""
    arguments, results = (
        tuple(map(_decode_split, _as_untyped_list(data.get(key, []))))
        for key in ("arguments", "results")
    )
    return StackedArrays(arguments, results)


def _decode_split(data: Json) -> RowSplit | None:
    if data is None:
        return None
    bounds, ipus = map(_check_numbers_list, _as_untyped_list(data))
    if len(ipus) < 2 or list(bounds) != sorted({0, *bounds}) or len(bounds) != len(ipus) + 1:
        raise ExecutableError(f"{data!r:.200} stands where rows of IPUs should be")
    return RowSplit(bounds, ipus)


def check_signature(signature: Signature, program: ir.Program) -> None:
    """Raises an error if a program takes or returns other values than its signature says.

    Raises:
      ExecutableError: such a program.
    """
    refs = signature.refs.positions
    arguments = _count_parts(signature.in_tree.num_leaves, signature.stacked.arguments)
    num_results = _count_parts(signature.out_tree.num_leaves, signature.stacked.results)
    results = num_results + len(refs) + bool(program.faults)
    counts = len(program.inputs), len(program.outputs)
    if counts != (arguments + program.draws, results):
        raise ExecutableError(
            f"its program takes {counts[0]} values and gives {counts[1]}, and its signature speaks "
            f"of {arguments + program.draws} and {results}"
        )
    if list(refs) != sorted({*refs}) or not {*refs, *signature.donated} <= {*range(arguments)}:
        raise ExecutableError("its signature speaks of arguments that are not there")
    for tangents, values in (
        (signature.tangents.arguments, program.inputs),
        (signature.tangents.results, program.outputs),
    ):
        for number, shape in tangents:
            if number >= len(values) or shape_of(program.avals[values[number]]) != shape:
                raise ExecutableError("its signature speaks of values of float0 that are not there")


def _count_parts(num_leaves: int, splits: Sequence[RowSplit | None]) -> int:
    """Returns how many flat values a program has for the leaves of a structure."""
    if len(splits) > num_leaves:
        raise ExecutableError("its signature speaks of parts of values that are not there")
    return num_leaves + sum(len(split.ipus) - 1 for split in splits if split is not None)


def _check_numbers_list(data: Json, least: int = 0) -> tuple[int, ...]:
    if not isinstance(data, list) or not all(
        type(n) is int and n >= least for n in _as_untyped_list(data)
    ):
        raise ExecutableError(f"{data!r:.200} stands where a list of numbers should be")
    return tuple(_as_untyped_list(data))


def _check_list_of_texts(data: Json) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(
        isinstance(text, str) for text in _as_untyped_list(data)
    ):
        raise ExecutableError(f"{data!r:.200} stands where texts should be")
    return tuple(_as_untyped_list(data))


def _as_untyped_list(data: Any) -> Sequence[Json]:
    return data
