"""Programs: the steps and control flow that an engine runs.

The debug contexts of compute sets, copies and operations name their steps in reports; loops,
branches and calls have no steps of their own, so that theirs are not seen.
"""

from __future__ import annotations

import collections.abc as abc
import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.poplar.exceptions import check, graph_connection_error, index_error, type_error
from ipujax.poplar.graph_parts import (
    ComputeSet,
    DataStream,
    Function,
    OperationComputeSet,
    RemoteBuffer,
)
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line


class SyncType(enum.Enum):
    """The tiles that a sync waits for."""

    INTERNAL = 0
    EXTERNAL = 1
    GLOBAL = 2


class Program:
    """A program; `where` is the user's line that made it."""

    where: str

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs, in order."""
        return ()

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensors that it reads itself."""
        return ()

    def walk(self) -> abc.Iterator[Program]:
        """Yields this program and all below it."""
        yield self
        for part in self.parts():
            yield from part.walk()


@check.guard
class Sequence(Program):
    """Programs that run one after the other."""

    def __init__(self, *programs: Any):
        if len(programs) == 1 and isinstance(programs[0], (list, tuple)):
            programs = tuple(programs[0])
        self.where = user_line()
        self.programs: list[Program] = [
            require_program(program) for program in programs if not isinstance(program, str)
        ]

    def add(self, program: Program) -> None:
        """Appends a program."""
        self.programs.append(require_program(program))

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return self.programs


@check.guard
class Execute(Program):
    """Runs the vertices of a compute set."""

    def __new__(cls, cs: ComputeSet, debugContext: str = "") -> Any:
        """Returns the operation of a compute set that PopLibs made, instead of an `Execute`."""
        return cs.operation if isinstance(cs, OperationComputeSet) else super().__new__(cls)

    def __init__(self, cs: ComputeSet, debugContext: str = ""):
        self.where = user_line()
        self.compute_set = check.require_instance(cs, ComputeSet, "cs")
        self.name = debugContext or cs.name


@check.guard
class Copy(Program):
    """Copies between two tensors, or between a tensor and a stream or remote buffer.

    After the two come, in this order and each if it is wanted: for remote buffers a tensor of the
    rows' indices (UNSIGNED_INT or INT), `dontOutline` or `optimiseMemory`, and a name. The last two
    flags change nothing here.
    """

    def __init__(
        self,
        src: Any,
        dst: Any,
        *arguments: Any,
        dontOutline: bool = False,
        optimiseMemory: bool = False,
        debugContext: str = "",
    ):
        self.where = user_line()
        sides = (Tensor, DataStream, RemoteBuffer)
        for side in (src, dst):
            check.require_instance(side, sides, "src and dst", "tensors, streams or remote buffers")
        for flag in (dontOutline, optimiseMemory):
            check.require_flag(flag, "dontOutline and optimiseMemory")
        self.offset: Tensor | None = None
        for argument in arguments:
            if isinstance(argument, Tensor):
                self.offset = argument
            elif isinstance(argument, str):
                debugContext = argument
            else:
                check.require_flag(argument, "dontOutline")
        self.src, self.dst, self.name = src, dst, debugContext or "Copy"
        _check_sides(self)


def _check_sides(copy: Copy) -> None:
    """Raises an error for a copy whose sides do not fit."""
    src, dst, source_line = copy.src, copy.dst, copy.where
    names = f"copy from {_name(src)} to {_name(dst)}"
    if not isinstance(src, Tensor) and not isinstance(dst, Tensor):
        raise graph_connection_error(
            names, where=source_line, fix="copy to a tensor, and from that"
        )
    if isinstance(src, DataStream) and not src.to_device:
        raise graph_connection_error(
            f"copy from {_name(src)}, which is to the host", where=source_line
        )
    if isinstance(dst, DataStream) and dst.to_device:
        raise graph_connection_error(
            f"copy to {_name(dst)}, which comes from the host", where=source_line
        )
    if src.elementType() != dst.elementType():
        raise type_error(f"{names}: the types differ", where=source_line)
    rows = _count_rows(copy)
    sizes = {side.numElements() // (rows if isinstance(side, Tensor) else 1) for side in (src, dst)}
    is_whole = all(s.numElements() % rows == 0 for s in (src, dst) if isinstance(s, Tensor))
    if len(sizes) > 1 or not is_whole or _differ_in_shape(src, dst):
        raise index_error(f"{names}: the shapes differ", where=source_line)


def _differ_in_shape(src: object, dst: object) -> bool:
    if not isinstance(src, Tensor) or not isinstance(dst, Tensor):
        return False
    return src.shape() != dst.shape()


def _count_rows(copy: Copy) -> int:
    """Returns how many rows of a remote buffer are copied; 1 for all other copies."""
    if copy.offset is None:
        return 1
    if not isinstance(copy.src, RemoteBuffer) and not isinstance(copy.dst, RemoteBuffer):
        raise NotImplementedError("copies of streams and tensors with an offset are left out")
    if copy.offset.elementType().name not in ("UNSIGNED_INT", "INT"):
        raise type_error(
            f"the indices are {copy.offset}", where=copy.where, fix="give UNSIGNED_INT or INT"
        )
    return max(copy.offset.numElements(), 1)


class Operation(Program):
    """An operation of PopLibs: computes tensors with a JAX function.

    Args:
      name: the operation's name in reports.
      function: the inputs' arrays -> an array for each output, of its shape and dtype.
      inputs: the tensors that it reads.
      outputs: the tensors that it writes; they may be inputs too.
      cycles: for an elementwise operation, number of elements on a tile -> cycles of the tile; None
        for an operation whose tiles the planner chooses.
    """

    def __init__(
        self,
        name: str,
        function: abc.Callable[..., abc.Sequence[Any]],
        inputs: abc.Sequence[Tensor],
        outputs: abc.Sequence[Tensor],
        cycles: abc.Callable[[int], float] | None = None,
    ):
        self.where, self.name, self.function = user_line(), name, function
        self.inputs, self.outputs, self.cycles = tuple(inputs), tuple(outputs), cycles

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensors that it reads."""
        return self.inputs


@check.guard
class WriteUndef(Program):
    """Marks a tensor's elements as undefined: their values are not needed any more."""

    def __init__(self, t: Tensor, debugContext: str = ""):
        self.where = user_line()
        self.tensor, self.name = check.require_instance(t, Tensor, "t"), debugContext


@check.guard
class PrintTensor(Program):
    """Prints a tensor to standard error."""

    def __init__(self, *arguments: Any):
        self.where = user_line()
        titles = [argument for argument in arguments if isinstance(argument, str)]
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        if len(tensors) != 1 or len(titles) + 1 < len(arguments):
            raise type_error("PrintTensor takes a title and a tensor", where=self.where)
        self.tensor = tensors[0]
        self.title = next(filter(None, titles), self.tensor.name)

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensor that it reads."""
        return (self.tensor,)


@check.guard
class Sync(Program):
    """Does nothing: tiles wait for each other at the end of every step anyway."""

    def __init__(self, type: SyncType = SyncType.INTERNAL):
        self.where = user_line()
        self.type = check.require_instance(type, SyncType, "type")


@check.guard
class Repeat(Program):
    """Runs a program `count` times."""

    def __init__(self, count: int, prog: Any, debugContext: str = ""):
        self.where, self.name = user_line(), debugContext
        self.count = check.require_integer(count, "count", at_least=0)
        self.body = require_program(prog)

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (self.body,)


@check.guard
class RepeatWhile(Program):
    """The base class of loops: runs `cond`, then `body` and `cond` while a predicate holds."""

    goes_on: bool

    def __init__(self, cond: Any, predicate: Tensor, body: Any, debugContext: str = ""):
        self.where, self.name = user_line(), debugContext
        self.condition, self.body = require_program(cond), require_program(body)
        self.predicate = _require_scalar(predicate, "predicate")

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensor that it reads."""
        return (self.predicate,)

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (self.condition, self.body)


class RepeatWhileTrue(RepeatWhile):
    """Runs `cond`, then `body` and `cond` while the predicate is not zero."""

    goes_on = True


class RepeatWhileFalse(RepeatWhile):
    """Runs `cond`, then `body` and `cond` while the predicate is zero."""

    goes_on = False


@check.guard
class If(Program):
    """Runs one of two programs, by a predicate."""

    def __init__(self, predicate: Tensor, trueBody: Any, falseBody: Any, debugContext: str = ""):
        self.where, self.name = user_line(), debugContext
        self.predicate = _require_scalar(predicate, "predicate")
        self.true_body, self.false_body = require_program(trueBody), require_program(falseBody)

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensor that it reads."""
        return (self.predicate,)

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (self.true_body, self.false_body)


@check.guard
class Switch(Program):
    """Runs the program of the case that equals a tensor's value, or else the default.

    After the control, a tensor of one integer, come, each if it is wanted: a list of pairs of a
    value and a program, the program of all other values, and a name.
    """

    def __init__(
        self,
        control: Tensor,
        *arguments: Any,
        cases: abc.Sequence[tuple[int, Any]] = (),
        defaultCaseBody: Any = None,
        debugContext: str = "",
    ):
        self.where = user_line()
        for argument in arguments:
            if isinstance(argument, str):
                debugContext = argument
            elif isinstance(argument, Program):
                defaultCaseBody = argument
            else:
                cases = check.require_instance(argument, (list, tuple), "the cases", "a list")
        self.name = debugContext
        self.control = _require_scalar(control, "control")
        self.cases: list[tuple[int, Program]] = []
        for value, body in cases:
            self.add(value, body)
        self.default = require_program(Sequence() if defaultCaseBody is None else defaultCaseBody)

    @classmethod
    def switchWithUnreachableDefault(
        cls,
        control: Tensor,
        cases: abc.Sequence[tuple[int, Any]] = (),
        debugContext: str = "",
    ) -> Switch:
        """Returns a switch whose control holds no other values; those would do nothing here."""
        return cls(control, cases, debugContext)

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensor that it reads."""
        return (self.control,)

    def add(self, val: int, body: Any) -> Switch:
        """Adds a case."""
        self.cases.append((check.require_integer(val, "val"), require_program(body)))
        return self

    def find_case(self, control: jax.Array) -> jax.Array:
        """Returns the index in `parts`, int32, of the program that the control's value selects."""
        index = jnp.int32(len(self.cases))
        for number, (value, _) in reversed([*enumerate(self.cases)]):
            index = jnp.where(control == np.asarray(value, control.dtype), number, index)
        return index

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (*(body for _, body in self.cases), self.default)


@check.guard
class Call(Program):
    """Runs the program of a function of the graph."""

    def __init__(self, f: Function, debugContext: str = ""):
        self.where, self.name = user_line(), debugContext
        self.function = check.require_instance(f, Function, "f")

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (self.function.body,)


class CycleMark(Program):
    """Writes modelled cycles to a tensor, UNSIGNED_INT [2]: the low and the high 32 bits."""

    tensor: Tensor


class CycleCount(CycleMark):
    """Runs a program, and writes the cycles that it takes."""

    def __init__(self, body: Program, tensor: Tensor):
        self.where, self.body, self.tensor = user_line(), body, tensor

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (self.body,)


class CycleStamp(CycleMark):
    """Writes the cycles that have passed since the engine was made."""

    def __init__(self, tensor: Tensor):
        self.where, self.tensor = user_line(), tensor


def require_program(value: Any) -> Program:
    """Returns a program; a list of programs is a sequence."""
    if isinstance(value, (list, tuple)):
        return Sequence(value)
    return check.require_instance(value, Program, "a program")


def _require_scalar(value: Any, argument: str) -> Tensor:
    tensor = check.require_instance(value, Tensor, argument)
    if tensor.numElements() != 1:
        raise type_error(
            f"{argument} is {tensor}, of more than one element",
            where=user_line(),
            fix="give a tensor of one element",
        )
    return tensor


def _name(side: Tensor | DataStream | RemoteBuffer) -> str:
    if isinstance(side, DataStream):
        return f"stream '{side.name}'"
    return f"remote buffer '{side.handle}'" if isinstance(side, RemoteBuffer) else str(side)
