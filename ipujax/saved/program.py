"""A Program as JSON and blobs, and back: its nodes by the names of their classes and fields."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.engine.iterations import typed
from ipujax.errors import ExecutableError
from ipujax.host.queues import Queue
from ipujax.saved.fields import make_node
from ipujax.saved.values import (
    Json,
    decode_array,
    decode_aval,
    decode_tree,
    encode_array,
    encode_aval,
    encode_tree,
)
from lowering import ir, jaxpr, ops, pipelines, schedules, shape_of, structure_key

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
    """Writes a Program.

    Args:
      program: what an engine reads.

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

    def write(self) -> Json:
        """The Program; kernels, queues and blobs are its numbers."""
        program = self.program
        written = {name: self._encoded(getattr(program, name)) for name in _FIELDS}
        written["avals"] = [encode_aval(aval) for aval in program.avals]
        written["constants"] = [self._constant(value, data) for value, data in program.constants]
        return written

    def _constant(self, value: int, data: Any) -> Json:
        described, content = encode_array(data)
        self.blobs.append(content)
        return [int(value), described]

    def _encoded(self, value: Any) -> Json:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, tuple):
            return [self._encoded(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, ir.Kernel):
            return {"Kernel": [self._kernel(value), value.origin]}
        if isinstance(value, Queue):
            return {"Queue": self._queue(value)}
        if isinstance(value, pipelines.Kind):
            return {"Kind": value.value}
        if isinstance(value, schedules.Schedule):
            return {"Schedule": _encoded_schedule(value)}
        if isinstance(value, jax.tree_util.PyTreeDef):
            return {"Tree": encode_tree(value, f"`{self.program.name}`: a loop or a queue")}
        name = type(value).__name__
        if _NODES.get(name) is not type(value):
            raise ExecutableError(
                f"`{self.program.name}` has a {name}, which cannot be put into a file",
                fix="run the program in the process that compiles it",
            )
        return {name: {f.name: self._encoded(getattr(value, f.name)) for f in dc.fields(value)}}

    def _kernel(self, kernel: ir.Kernel) -> int:
        key = structure_key(kernel.jaxpr)
        if key not in self._numbers:
            self._numbers[key] = len(self.kernels)
            self.kernels.append(kernel)
        return self._numbers[key]

    def _queue(self, queue: Queue) -> int:
        if queue not in self.queues:
            self.queues.append(queue)
        return self.queues.index(queue)


def read(
    written: Mapping[str, Json],
    kernels: Sequence[jaxpr.ClosedJaxpr],
    queues: Sequence[Queue],
    blobs: Sequence[bytes | memoryview],
) -> ir.Program:
    """The Program that a `Writer` wrote.

    Args:
      written: what it gave.
      kernels: by their numbers.
      queues: by their numbers.
      blobs: the constants' bytes, in their order.
    """

    def decoded(data: Json) -> Any:
        if isinstance(data, list):
            return tuple(map(decoded, data))  # pyright: ignore[reportUnknownArgumentType]
        if not isinstance(data, dict):
            return data
        ((name, content),) = data.items()  # pyright: ignore[reportUnknownVariableType]
        match name:
            case "Kernel":
                number, origin = content
                values = {"jaxpr": kernels[_number(number)], "origin": origin}
                return make_node(ir.Kernel, values, len(avals))
            case "Queue":
                return queues[_number(content)]
            case "Kind":
                return pipelines.Kind(content)
            case "Schedule":
                return _decoded_schedule(content)
            case "Tree":
                return decode_tree(content)
            case _:
                fields = {field: decoded(each) for field, each in content.items()}
                return make_node(_NODES[name], fields, len(avals))

    avals = tuple(map(decode_aval, written["avals"]))
    pairs = zip(written["constants"], blobs, strict=True)
    arrays = [(_number(value), decode_array(data, blob)) for (value, data), blob in pairs]
    fields = {name: decoded(written[name]) for name in _FIELDS} | {
        "avals": avals,
        "constants": tuple((value, _constant(array, avals[value])) for value, array in arrays),
    }
    return make_node(ir.Program, fields, len(avals))


def _number(data: Json) -> int:
    """A number of something, counted from 0: Python takes negative ones, and counts from behind."""
    if type(data) is not int or data < 0:
        raise ExecutableError(f"{data!r:.100} stands where a number should be")
    return data


def _constant(array: np.ndarray, aval: jaxpr.Aval) -> Any:
    """A constant of the type that it had; NumPy has no weak ones."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)  # of 64 bits, for those who have them
    if array.shape != shape_of(aval) or dtype != aval.dtype:
        raise ExecutableError(f"a constant is {array.dtype}{list(array.shape)}, and not {aval}")
    return typed(jnp.asarray(array), is_weak=True) if aval.weak_type else array


def _encoded_schedule(schedule: schedules.Schedule) -> Json:
    runs = [
        [run.times, run.step, [" ".join(map(str, tick)) for tick in run.ticks]]
        for run in schedules.runs_of(schedule.ticks)
    ]
    return {
        "name": schedule.name,
        "stages": schedule.stages,
        "micro_batches": schedule.micro_batches,
        "training": schedule.training,
        "ipus": schedule.ipus,
        "ticks": runs,
    }


def _decoded_schedule(data: dict[str, Json]) -> schedules.Schedule:
    runs = [
        schedules.Run(
            tuple(tuple(map(schedules.Task.parse, tick.split())) for tick in ticks), times, step
        )
        for times, step, ticks in data["ticks"]
    ]
    return schedules.Schedule(
        name=data["name"],
        stages=data["stages"],
        micro_batches=data["micro_batches"],
        training=data["training"],
        ipus=tuple(map(tuple, data["ipus"])),
        ticks=schedules.Ticks(runs),
    )
