"""The promises that every Program keeps; a broken one is a bug of ours."""

from __future__ import annotations

from collections.abc import Iterable

from lowering.avals import dtype_name, shape_of, signature_of
from lowering.errors import InternalError
from lowering.ir.program import (
    Carry,
    Copy,
    Execute,
    HostCall,
    Kernel,
    Load,
    Node,
    Pipeline,
    Program,
    Repeat,
    Sequence,
    Store,
    StreamIn,
    StreamOut,
    Switch,
    Task,
    While,
)
from lowering.ir.text import ipu_text
from lowering.ir.tree import births, bodies
from lowering.jaxpr import Aval
from lowering.units import HOST, IpuId, ValueId


def verify(program: Program) -> None:
    """Checks a program whose copies have been inserted.

    * every value is written once, before it is read, and read only where it lives;
    * kernels take and give exactly the shapes and dtypes of the values they name;
    * a loop variable's four names agree in shape, dtype and IPU;
    * IPUs exist; host calls stand at the top level only; results are on the host.

    Raises:
      InternalError: the first broken promise, by node.
    """
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: Program):
        self.program = program
        self.written: set[ValueId] = set()
        self.present: set[tuple[ValueId, IpuId]] = set()
        self.added: list[tuple[ValueId, IpuId]] = []

    def run(self) -> None:
        p = self.program
        if p.ipus < 1 or p.replicas < 1:
            raise InternalError(f"{p.name}: {p.replicas} replicas of {p.ipus} IPUs")
        self.write((*p.inputs, *(value for value, _ in p.constants)), HOST, "program")
        self.sequence(p.body, top=True)
        self.need(p.outputs, HOST, "outputs")

    def sequence(self, body: Sequence, top: bool = False) -> None:
        for node in body.steps:
            self.node(node, top)

    def node(self, node: Node, top: bool) -> None:
        match node:
            case Execute():
                self.kernel(node.kernel, node.reads, node.writes, node.ipu, "execute")
            case HostCall():
                if not top:
                    raise InternalError(f"host-call {node.name} inside control flow")
                self.kernel(node.kernel, node.reads, node.writes, HOST, "host-call")
            case Copy():
                self.ipu(node.source)
                self.ipu(node.target)
                self.need(node.values, node.source, "copy")
                self.put(node.values, node.target)
            case StreamIn():
                self.ipu(node.ipu)
                self.write(node.writes, node.ipu, "stream-in")
            case StreamOut():
                self.need(node.reads, node.ipu, "stream-out")
            case Load():
                self.need((node.kept,), node.ipu, "load")
                self.same(self.avals((node.kept,)), self.avals((node.value,)), "load")
                self.write((node.value,), node.ipu, "load")
            case Store():
                self.need((node.value,), node.ipu, "store")
                self.same(self.avals((node.value,)), self.avals((node.kept,)), "store")
                self.write((node.kept,), node.ipu, "store")
            case Task():
                self.sequence(node.body)
            case Sequence():
                self.sequence(node, top)
            case Repeat():
                self.repeat(node)
            case Pipeline():
                self.pipeline(node)
            case While():
                self.carried(node.carry)
                self.inside(node)
            case Switch():
                self.switch(node)

    def kernel(
        self,
        kernel: Kernel,
        reads: tuple[ValueId, ...],
        writes: tuple[ValueId, ...],
        ipu: IpuId,
        what: str,
    ) -> None:
        self.ipu(ipu)
        self.need(reads, ipu, what)
        self.same(kernel.in_avals, self.avals(reads), f"{what} takes")
        self.same(kernel.out_avals, self.avals(writes), f"{what} gives")
        self.write(writes, ipu, what)

    def repeat(self, node: Repeat) -> None:
        if (node.count is None) == (node.trips is None):
            raise InternalError("repeat needs either a static count or a value that holds it")
        if node.trips is not None:
            self.known(node.trips, "repeat")
        self.carried(node.carry)
        for s in node.slices:
            self.need((s.stacked,), s.ipu, "slice")
            self.sliced(s.stacked, s.element, node.count)
        for s in node.stacks:
            self.sliced(s.stacked, s.element, node.count)
        self.inside(node)

    def pipeline(self, node: Pipeline) -> None:
        """A pipelined body is tasks and the copies in front of them; each phase occurs once."""
        steps = [step for step in node.body.steps if not isinstance(step, Copy)]
        if not all(isinstance(step, Task) for step in steps):
            raise InternalError("a pipeline's body holds something that is no task")
        phases = [(s.spec.kind, s.spec.stage) for s in steps if isinstance(s, Task)]
        if len(set(phases)) < len(phases):
            raise InternalError("a pipeline has two tasks for one phase of a stage")
        self.carried(node.carry)
        self.inside(node)

    def switch(self, node: Switch) -> None:
        self.known(node.index, "switch")
        counts = {len(node.writes), len(node.ipus), *(len(b.results) for b in node.branches)}
        if len(counts) > 1:
            raise InternalError("switch: results, IPUs and branches' results do not pair up")
        for branch in node.branches:
            self.same(self.avals(branch.results), self.avals(node.writes), "branch gives")
        self.inside(node)

    def inside(self, node: Repeat | Pipeline | While | Switch) -> None:
        """Bodies read what enters them, and leave what the branch goes on with."""
        what = type(node).__name__.lower()
        for number, body in enumerate(bodies(node)):
            mark = len(self.added)
            for value, ipu in body.arguments:
                if number:  # a loop's condition has been given it as well
                    self.put((value,), ipu)
                else:
                    self.write((value,), ipu, what)
            self.sequence(body.sequence)
            if body.answer is not None:
                self.known(body.answer, what)
            for value, ipu in body.results:
                self.need((value,), ipu, what)
            self.forget_since(mark)
        for value, ipu in births(node):
            self.write((value,), ipu, what)

    def carried(self, carry: tuple[Carry, ...]) -> None:
        for c in carry:
            self.need((c.initial,), c.ipu, "carry")
            avals = self.avals((c.initial, c.entering, c.leaving, c.final))
            self.same(avals[1:], [avals[0]] * 3, "carry")

    def sliced(self, stacked: ValueId, element: ValueId, count: int | None) -> None:
        whole, part = self.avals((stacked, element))
        if shape_of(whole) != (count, *shape_of(part)) or dtype_name(whole) != dtype_name(part):
            raise InternalError(f"%{stacked} is not %{element} stacked {count} times")

    def write(self, values: Iterable[ValueId], ipu: IpuId, what: str) -> None:
        for value in values:
            if value in self.written:
                raise InternalError(f"{what} writes %{value}, which is written already")
            self.written.add(value)
            self.put((value,), ipu)

    def put(self, values: Iterable[ValueId], ipu: IpuId) -> None:
        for value in values:
            if (value, ipu) not in self.present:
                self.present.add((value, ipu))
                self.added.append((value, ipu))

    def forget_since(self, mark: int) -> None:
        while len(self.added) > mark:
            self.present.discard(self.added.pop())

    def need(self, values: Iterable[ValueId], ipu: IpuId, what: str) -> None:
        for value in values:
            if (value, ipu) not in self.present:
                raise InternalError(f"{what} reads %{value} on {ipu_text(ipu)}: not there")

    def known(self, value: ValueId, what: str) -> None:
        if value not in self.written:
            raise InternalError(f"{what} reads %{value} before it is written")

    def ipu(self, ipu: IpuId) -> None:
        if ipu != HOST and not 0 <= ipu < self.program.ipus:
            raise InternalError(f"{ipu_text(ipu)} of a program over {self.program.ipus} IPUs")

    def avals(self, values: Iterable[ValueId]) -> list[Aval]:
        return [self.program.avals[value] for value in values]

    def same(self, one: list[Aval], other: list[Aval], what: str) -> None:
        if signature_of(one) != signature_of(other):
            raise InternalError(f"{what} {signature_of(one)}, its values are {signature_of(other)}")
