"""The programs of an engine: what runs, in which order."""

from __future__ import annotations

import collections.abc as abc
import enum
from typing import Any

from ipujax.poplar.exceptions import check, graph_connection_error, index_error, type_error
from ipujax.poplar.graph import ComputeSet, DataStream, Function
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_places import user_place


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
        """Returns the tensors that it reads itself, to print them or to decide."""
        return ()

    def walk(self) -> abc.Iterator[Program]:
        """Yields this program and all below it."""
        yield self
        for part in self.parts():
            yield from part.walk()


class Sequence(Program):
    """Programs that run one after the other."""

    def __init__(self, *programs: Any):
        if len(programs) == 1 and isinstance(programs[0], (list, tuple)):
            programs = tuple(programs[0])
        self.where = user_place()
        self.programs = [require_program(each) for each in programs if not isinstance(each, str)]

    def add(self, program: Program) -> None:
        """Appends a program."""
        self.programs.append(require_program(program))

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return self.programs


class Execute(Program):
    """Runs the vertices of a compute set."""

    def __init__(self, cs: ComputeSet, debugContext: str = ""):
        self.where = user_place()
        self.compute_set = check.require_instance(cs, ComputeSet, "cs")
        self.name = debugContext or cs.name


class Copy(Program):
    """Copies a tensor to a tensor, a stream to a tensor, or a tensor to a stream."""

    def __init__(self, src: Any, dst: Any, dontOutline: bool = False, debugContext: str = ""):
        self.where = user_place()
        check.require_instance(dontOutline, bool, "dontOutline")
        for side in (src, dst):
            check.require_instance(side, (Tensor, DataStream), "src and dst", "tensors or streams")
        self.src, self.dst, self.name = src, dst, debugContext or "Copy"
        types = [side.type for side in (src, dst)]
        if types[0] != types[1]:
            raise type_error(
                f"copy from {_name(src)} to {_name(dst)}: the types differ", where=self.where
            )
        sizes = [_size(side) for side in (src, dst)]
        are_tensors = isinstance(src, Tensor) and isinstance(dst, Tensor)
        if sizes[0] != sizes[1] or (are_tensors and src.shape() != dst.shape()):
            raise index_error(
                f"copy from {_name(src)} to {_name(dst)}: the shapes differ", where=self.where
            )
        if isinstance(src, DataStream) and not src.to_device:
            raise graph_connection_error(f"copy from {_name(src)}", where=self.where)
        if isinstance(dst, DataStream) and (dst.to_device or isinstance(src, DataStream)):
            raise graph_connection_error(f"copy to {_name(dst)}", where=self.where)


class Operation(Program):
    """Computes tensors with a function of JAX: what PopLibs adds to a sequence.

    Args:
      name: of the operation, for reports.
      function: the inputs' arrays -> an array for each output, of its shape and dtype.
      inputs: the tensors that it reads.
      outputs: the tensors that it writes; they may be inputs too.
      cycles: of an elementwise operation, the cycles of a tile for so many elements of the output;
        None for one whose tiles the planner chooses.
    """

    def __init__(
        self,
        name: str,
        function: abc.Callable[..., abc.Sequence[Any]],
        inputs: abc.Sequence[Tensor],
        outputs: abc.Sequence[Tensor],
        cycles: abc.Callable[[int], float] | None = None,
    ):
        self.where, self.name, self.function = user_place(), name, function
        self.inputs, self.outputs, self.cycles = tuple(inputs), tuple(outputs), cycles

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensors that it reads."""
        return self.inputs


class WriteUndef(Program):
    """Says that what a tensor holds is not needed any more."""

    def __init__(self, t: Tensor, debugContext: str = ""):
        self.where = user_place()
        self.tensor, self.name = check.require_instance(t, Tensor, "t"), debugContext


class PrintTensor(Program):
    """Prints a tensor to standard error."""

    def __init__(self, *arguments: Any):
        self.where = user_place()
        title = arguments[0] if arguments and isinstance(arguments[0], str) else ""
        rest = arguments[1:] if title or arguments[:1] == ("",) else arguments
        if not rest or not isinstance(rest[0], Tensor):
            raise type_error("PrintTensor takes a title and a tensor", where=self.where)
        self.tensor = rest[0]
        self.title = title or (rest[1] if len(rest) > 1 else "") or self.tensor.name

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensor that it reads."""
        return (self.tensor,)


class Sync(Program):
    """Has all tiles wait for each other."""

    def __init__(self, type: SyncType = SyncType.INTERNAL):
        self.where = user_place()
        self.type = check.require_instance(type, SyncType, "type")


class Repeat(Program):
    """Runs a program a number of times."""

    def __init__(self, count: int, prog: Any, debugContext: str = ""):
        self.where, self.name = user_place(), debugContext
        self.count = check.require_integer(count, "count", at_least=0)
        self.body = require_program(prog)

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (self.body,)


class RepeatWhile(Program):
    """Runs `cond`, and `body` and `cond` again while `predicate` is as it must be."""

    goes_on: bool

    def __init__(self, cond: Any, predicate: Tensor, body: Any, debugContext: str = ""):
        self.where, self.name = user_place(), debugContext
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


class If(Program):
    """Runs one of two programs, by a tensor's value."""

    def __init__(self, predicate: Tensor, trueBody: Any, falseBody: Any, debugContext: str = ""):
        self.where, self.name = user_place(), debugContext
        self.predicate = _require_scalar(predicate, "predicate")
        self.true_body, self.false_body = require_program(trueBody), require_program(falseBody)

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensor that it reads."""
        return (self.predicate,)

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (self.true_body, self.false_body)


class Switch(Program):
    """Runs the program of the case that a tensor's value is, or else the default."""

    def __init__(
        self,
        control: Tensor,
        cases: abc.Sequence[tuple[int, Any]] = (),
        defaultCaseBody: Any = None,
        debugContext: str = "",
    ):
        self.where, self.name = user_place(), debugContext
        self.control = _require_scalar(control, "control")
        self.cases = [(int(value), require_program(body)) for value, body in cases]
        self.default = require_program(Sequence() if defaultCaseBody is None else defaultCaseBody)

    def read_tensors(self) -> abc.Sequence[Tensor]:
        """Returns the tensor that it reads."""
        return (self.control,)

    def add(self, val: int, body: Any) -> Switch:
        """Adds a case."""
        self.cases.append((check.require_integer(val, "val"), require_program(body)))
        return self

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (*(body for _, body in self.cases), self.default)


class Call(Program):
    """Runs the program of a function of the graph."""

    def __init__(self, f: Function, debugContext: str = ""):
        self.where, self.name = user_place(), debugContext
        self.function = check.require_instance(f, Function, "f")

    def parts(self) -> abc.Sequence[Program]:
        """Returns the programs that it runs."""
        return (require_program(self.function.body),)


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
            where=user_place(),
            fix="give a tensor of one element",
        )
    return tensor


def _size(side: Tensor | DataStream) -> int:
    return side.size if isinstance(side, DataStream) else side.numElements()


def _name(side: Tensor | DataStream) -> str:
    return f"stream '{side.name}'" if isinstance(side, DataStream) else str(side)
