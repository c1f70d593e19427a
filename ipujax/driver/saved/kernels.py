"""Exports the kernels of a Program as StableHLO with `jax.export`, and imports them again."""

from __future__ import annotations

import dataclasses as dc
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import export

from ipujax.driver import native_code
from ipujax.driver.saved.encoded_values import decode_aval, encode_aval
from ipujax.ground import ExecutableError, Json, require_package
from lowering import count_operations, dtype_name, ir, jaxpr, list_called_targets, ops, shape_of

# Custom calls of JAX's own functions that may be exported: linear algebra, random bits, sharding.
_LIBRARY = re.compile(
    r"lapack_\w+_ffi|(cu|hip)(solver|sparse)_\w+_ffi|(cu|hip)_threefry2x32_ffi"
    r"|(cu|hip)_lu_pivots_to_permutation|Qr|Eigh|LuDecomposition|ApproxTopK|AllocateBuffer"
    r"|ProductOfElementaryHouseholderReflectors|Sharding|SPMDFullToShardShape|SPMDShardToFullShape"
    r"|annotate_device_placement|shape_assertion|tpu_custom_call|mosaic_gpu_v2"
    r"|stablehlo\.dynamic_\w+"
)


def check_flatbuffers() -> None:
    """Raises an error if flatbuffers is missing, which `jax.export` serializes with.

    Raises:
      MissingExtraError: (an `ImportError`) it is not installed.
    """
    require_package("flatbuffers", "export", "saved executables need it")


def export_kernel(kernel: ir.Kernel, replicas: int, name: str) -> tuple[Json, bytes]:
    """Exports a kernel for all replicas as StableHLO, with a JSON description.

    Args:
      kernel: a kernel of a Program.
      replicas: copies of the graph.
      name: the name of the program.

    Raises:
      ExecutableError: code that only this machine, or this version of JAX, has.
    """
    closed = kernel.jaxpr
    lead = (replicas,) if replicas > 1 else ()

    def run_one_replica(*operands: jax.Array) -> list[jax.Array]:
        return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

    all_replicas = run_one_replica
    if replicas > 1:
        all_replicas = jax.vmap(run_one_replica, axis_name=ops.REPLICAS, axis_size=replicas)
    structs = [
        jax.ShapeDtypeStruct((*lead, *shape_of(aval)), aval.dtype, weak_type=aval.weak_type)
        for aval in closed.in_avals
    ]
    try:
        code = bytes(_export(all_replicas, structs, closed).serialize())
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        # Of a dtype that it has no number for, `jax.export` says nothing but the name.
        cause = f"arrays of {error}" if isinstance(error, KeyError) else error
        raise ExecutableError(
            f"`{name}` has code that JAX cannot put into a file: {cause}",
            where=kernel.origin,
            fix="run the program in the process that compiles it",
        ) from error
    description = {
        "in": [encode_aval(aval) for aval in closed.in_avals],
        "out": [encode_aval(aval) for aval in closed.out_avals],
        "operations": count_operations(closed.jaxpr),
    }
    return description, code


def _export(
    function: Callable[..., Any], structs: Sequence[Any], closed: jaxpr.ClosedJaxpr
) -> export.Exported:
    """Exports a function that may call codelets in C++, which are looked for where it is read."""
    targets = filter(native_code.is_target, sorted(list_called_targets(closed.jaxpr)))
    allowed = [*map(export.DisabledSafetyCheck.custom_call, targets)]
    exported = export.export(jax.jit(function), disabled_checks=allowed)(*structs)
    return dc.replace(exported, disabled_safety_checks=())


def import_kernel(description: Json, code: bytes | memoryview, replicas: int) -> jaxpr.ClosedJaxpr:
    """Imports an exported kernel, for one replica, as a kernel of a Program.

    Raises:
      ExecutableError: code of another form than is known of it, or that calls other code.
    """
    arguments = tuple(map(decode_aval, description["in"]))
    results = tuple(map(decode_aval, description["out"]))
    operations = description["operations"]
    if type(operations) not in (int, float) or not operations >= 0:
        raise ExecutableError(f"a kernel of {operations!r:.100} operations")
    exported = export.deserialize(bytearray(code))
    _check_exported_signature(exported, arguments, results, replicas)
    _check_called_libraries(exported)
    call: Callable[..., Any] = exported.call
    kernel = ops.Exported(function=call, avals=results, replicas=replicas, operations=operations)
    axis = (ops.REPLICAS, replicas) if replicas > 1 else None
    return jaxpr.trace_flat(lambda *operands: ops.call_exported(kernel, operands), arguments, axis)


def _check_exported_signature(
    exported: export.Exported,
    arguments: tuple[jaxpr.Aval, ...],
    results: tuple[jaxpr.Aval, ...],
    replicas: int,
) -> None:
    """Raises an error if exported code has other arguments, results or effects than described."""
    lead = (replicas,) if replicas > 1 else ()

    def shapes_and_dtypes(
        avals: Sequence[jaxpr.ShapedValue], lead: tuple[int, ...] = ()
    ) -> list[Any]:
        return [((*lead, *shape_of(aval)), dtype_name(aval)) for aval in avals]

    fits = (
        shapes_and_dtypes(exported.in_avals) == shapes_and_dtypes(arguments, lead)
        and shapes_and_dtypes(exported.out_avals) == shapes_and_dtypes(results, lead)
        and exported.in_tree == jax.tree.structure(((0,) * len(arguments), {}))
        and exported.out_tree == jax.tree.structure([0] * len(results))
        and set(exported.module_kept_var_idx) <= set(range(len(arguments)))
    )
    is_alone = exported.nr_devices == 1 and not (
        exported.ordered_effects or exported.unordered_effects or exported.disabled_safety_checks
    )
    if not fits or not is_alone:
        raise ExecutableError("a kernel's code does not take and give what the program says")


def _check_called_libraries(exported: export.Exported) -> None:
    """Raises an error if exported code calls anything but JAX's libraries and the user's codelets.

    `jax.export` looks at that when it writes, and not when it reads: a call by address, as Python's
    callbacks are, would run any code at that address.
    """
    with jaxpr.mlir.make_ir_context():
        module: Any = exported.mlir_module(serialized=False)
        for operation in _walk_operations(module.operation):
            if operation.name.endswith("custom_call"):
                target = str(operation.attributes["call_target_name"]).strip('"')
                if native_code.is_target(target):
                    native_code.require_target(target)
                elif not _LIBRARY.fullmatch(target):
                    raise ExecutableError(
                        f"a kernel's code calls {target!r:.100}, which is foreign"
                    )


def _walk_operations(operation: Any) -> Iterator[Any]:
    """Yields an MLIR operation and all operations inside it."""
    pending = [operation]
    while pending:
        operation = pending.pop()
        yield operation
        pending.extend(
            inner_operation.operation
            for region in operation.regions
            for block in region
            for inner_operation in block
        )
