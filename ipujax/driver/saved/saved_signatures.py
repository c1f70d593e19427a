"""Encodes the mapping of arguments and results to flat ones as JSON, and decodes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from ipujax.driver.call_arguments import Refs, Signature, Static, Tangents
from ipujax.driver.saved.encoded_values import decode_tree, encode_tree
from ipujax.ground import ExecutableError, Json
from lowering import ir, shape_of


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
    }


def decode_signature(data: Mapping[str, Json]) -> Signature:
    """Decodes the signature that `encode_signature` wrote.

    Raises:
      ExecutableError: nothing that it gives.
    """
    signature = Signature(
        name=_check_texts([data["name"]])[0],
        static=Static(_check_numbers_list(data["numbers"], -(2**31)), _check_texts(data["names"])),
        positions=_check_numbers_list(data["positions"]),
        in_tree=decode_tree(data["in"]),
        out_tree=decode_tree(data["out"]),
        donated=_check_numbers_list(data["donated"]),
        refs=Refs(_check_numbers_list(data["refs"]), ()),
        tangents=_decode_tangents(data.get("float0", {})),
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


def check_signature(signature: Signature, program: ir.Program) -> None:
    """Raises an error if a program takes or returns other values than its signature says.

    Raises:
      ExecutableError: such a program.
    """
    refs, arguments = signature.refs.positions, signature.in_tree.num_leaves
    results = signature.out_tree.num_leaves + len(refs) + bool(program.faults)
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


def _check_numbers_list(data: Json, least: int = 0) -> tuple[int, ...]:
    if not isinstance(data, list) or not all(
        type(n) is int and n >= least for n in _as_untyped_list(data)
    ):
        raise ExecutableError(f"{data!r:.200} stands where a list of numbers should be")
    return tuple(_as_untyped_list(data))


def _check_texts(data: Json) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(
        isinstance(text, str) for text in _as_untyped_list(data)
    ):
        raise ExecutableError(f"{data!r:.200} stands where texts should be")
    return tuple(_as_untyped_list(data))


def _as_untyped_list(data: Any) -> Sequence[Json]:
    return data
