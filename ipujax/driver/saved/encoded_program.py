"""Encodes a Program as JSON and blobs, and decodes it: nodes by class and field names."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.driver.saved.encoded_values import (
    Json,
    decode_array,
    decode_aval,
    decode_tree,
    encode_array,
    encode_aval,
    encode_tree,
)
from ipujax.driver.saved.fields import make_program_node
from ipujax.ground import ExecutableError
from ipujax.host import Queue
from lowering import (
    ir,
    jaxpr,
    ops,
    pipelines,
    schedules,
    set_weak_type,
    shape_of,
    structure_key,
)

_NODES: dict[str, Any] = {
    each.__name__: each
    for each in (
        ir.Execute,
        ir.Copy,
        ir.Load,
        ir.Store,
        ir.StreamIn,
        ir.StreamOut,
        ir.Sequence,
        ir.Task,
        ir.Repeat,
        ir.Pipeline,
        ir.While,
        ir.Switch,
        ir.Branch,
        ir.Carry,
        ir.Slice,
        ir.Stack,
        ir.Fifo,
        ir.Fault,
        ops.Storage,
        pipelines.TaskSpec,
    )
}
_OWN = ("avals", "constants")  # of a Program: not written field by field
_FIELDS = [field.name for field in dc.fields(ir.Program) if field.name not in _OWN]


class Writer:
    """Encodes a Program as JSON; collects its kernels, queues and constants.

    Args:
      program: the program that an engine reads.

    Attributes:
      kernels: each kind once, in the order of their numbers.
      queues: in the order of their numbers.
      blobs: the constants' bytes.
    """

    def __init__(self, program: ir.Program):
        self.program = program
        self.kernels: list[ir.Kernel] = []
        self.queues: list[Queue] = []
        self.blobs: list[bytes] = []
        self._numbers: dict[Any, int] = {}

    def encode_program(self) -> Json:
        """Encodes the Program; kernels, queues and blobs appear as numbers."""
        program = self.program
        encoded = {name: self._encode_value(getattr(program, name)) for name in _FIELDS}
        encoded["avals"] = [encode_aval(aval) for aval in program.avals]
        encoded["constants"] = [
            self._encode_constant(value, data) for value, data in program.constants
        ]
        return encoded

    def _encode_constant(self, value: int, data: object) -> Json:
        described, content = encode_array(data)
        self.blobs.append(content)
        return [int(value), described]

    def _encode_value(self, value: Any) -> Json:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, tuple):
            return [self._encode_value(element) for element in value]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, ir.Kernel):
            return {"Kernel": [self._kernel_number(value), value.origin]}
        if isinstance(value, Queue):
            return {"Queue": self._queue_number(value)}
        if isinstance(value, pipelines.TaskRole):
            return {"Kind": value.value}
        if isinstance(value, schedules.Schedule):
            return {"Schedule": _encode_schedule(value)}
        if isinstance(value, jax.tree_util.PyTreeDef):
            return {"Tree": encode_tree(value, f"`{self.program.name}`: a loop or a queue")}
        name = type(value).__name__
        if _NODES.get(name) is not type(value):
            raise ExecutableError(
                f"`{self.program.name}` has a {name}, which cannot be put into a file",
                fix="run the program in the process that compiles it",
            )
        return {
            name: {f.name: self._encode_value(getattr(value, f.name)) for f in dc.fields(value)}
        }

    def _kernel_number(self, kernel: ir.Kernel) -> int:
        key = structure_key(kernel.jaxpr)
        if key not in self._numbers:
            self._numbers[key] = len(self.kernels)
            self.kernels.append(kernel)
        return self._numbers[key]

    def _queue_number(self, queue: Queue) -> int:
        if queue not in self.queues:
            self.queues.append(queue)
        return self.queues.index(queue)


def decode_program(
    written: Mapping[str, Json],
    kernels: Sequence[jaxpr.ClosedJaxpr],
    queues: Sequence[Queue],
    blobs: Sequence[bytes | memoryview],
) -> ir.Program:
    """Decodes the Program that a `Writer` encoded.

    Args:
      written: the JSON of the Program.
      kernels: by their numbers.
      queues: by their numbers.
      blobs: the constants' bytes, in their order.
    """

    def decode_node(data: Json) -> Any:
        if isinstance(data, list):
            return tuple(map(decode_node, data))  # pyright: ignore[reportUnknownArgumentType]
        if not isinstance(data, dict):
            return data
        ((name, content),) = data.items()  # pyright: ignore[reportUnknownVariableType]
        match name:
            case "Kernel":
                number, origin = content
                values = {"jaxpr": kernels[_check_number(number)], "origin": origin}
                return make_program_node(ir.Kernel, values, len(avals))
            case "Queue":
                return queues[_check_number(content)]
            case "Kind":
                # Files of 0.1.0 spell this one out.
                return pipelines.TaskRole("R" if content == "recompute" else content)
            case "Schedule":
                return _decode_schedule(content)
            case "Tree":
                return decode_tree(content)
            case _:
                fields = {field: decode_node(field_value) for field, field_value in content.items()}
                return make_program_node(_NODES[name], fields, len(avals))

    avals = tuple(map(decode_aval, written["avals"]))
    pairs = zip(written["constants"], blobs, strict=True)
    arrays = [(_check_number(value), decode_array(data, blob)) for (value, data), blob in pairs]
    fields = {name: decode_node(written[name]) for name in _FIELDS} | {
        "avals": avals,
        "constants": tuple(
            (value, _restore_constant(array, avals[value])) for value, array in arrays
        ),
    }
    return make_program_node(ir.Program, fields, len(avals))


def _check_number(data: Json) -> int:
    """Returns a number from a file, or raises an error if it is not an integer from 0 on."""
    if type(data) is not int or data < 0:
        raise ExecutableError(f"{data!r:.100} stands where a number should be")
    return data


def _restore_constant(array: np.ndarray, aval: jaxpr.Aval) -> Any:
    """Restores a constant's type: NumPy arrays have no weak types."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)  # of 64 bits, for those who have them
    if array.shape != shape_of(aval) or dtype != aval.dtype:
        raise ExecutableError(f"a constant is {array.dtype}{list(array.shape)}, and not {aval}")
    return set_weak_type(jnp.asarray(array), is_weak=True) if aval.weak_type else array


def _encode_schedule(schedule: schedules.Schedule) -> Json:
    runs = [
        [run.times, run.step, [" ".join(map(str, tick)) for tick in run.ticks]]
        for run in schedules.runs_of_ticks(schedule.ticks)
    ]
    return {
        "name": schedule.name,
        "stages": schedule.stages,
        "micro_batches": schedule.micro_batches,
        "training": schedule.training,
        "ipus": schedule.ipus,
        "copies": schedule.copies[1:],
        "pattern": schedule.copy_pattern,
        "segments": schedule.segments,
        "needs": schedules.needs_to_text(schedule.needs_table),
        "ticks": runs,
    }


def _decode_schedule(data: dict[str, Json]) -> schedules.Schedule:
    runs = [
        schedules.Run(
            tuple(tuple(map(schedules.Task.parse, tick.split())) for tick in ticks), times, step
        )
        for times, step, ticks in data["ticks"]
    ]
    # Files of 0.1.0 know neither copies, nor segments, nor needs.
    placings = [data["ipus"], *data.get("copies", ())]
    copies = tuple(tuple(map(tuple, placing)) for placing in placings)
    return schedules.Schedule(
        name=data["name"],
        stages=data["stages"],
        micro_batches=data["micro_batches"],
        training=data["training"],
        ipus=copies[0],
        ticks=schedules.Ticks(runs),
        copies=copies,
        copy_pattern=tuple(data.get("pattern", (0,))),
        segments=data.get("segments", 1),
        needs_table=schedules.needs_from_text(needs) if (needs := data.get("needs")) else (),
    )
