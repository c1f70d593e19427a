"""The promises that every Program keeps; a broken one is a bug of ours."""

from __future__ import annotations

from collections.abc import Iterable

from lowering.avals import dtype_name, shape_of, signature_of
from lowering.errors import InternalError
from lowering.ir import program as ir
from lowering.ir.text import ipu_text
from lowering.ir.tree import Place, births, bodies
from lowering.jaxpr import Aval
from lowering.units import HOST, IpuId, ValueId


def verify(program: ir.Program) -> None:
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
    def __init__(self, program: ir.Program):
        self.program = program
        self.written: set[ValueId] = set()
        self.present: set[Place] = set()

    def run(self) -> None:
        p = self.program
        if p.ipus < 1 or p.replicas < 1:
            raise InternalError(f"{p.name}: {p.replicas} replicas of {p.ipus} IPUs")
        self.write((*p.inputs, *(value for value, _ in p.constants)), HOST, "program")
        self.sequence(p.body, top=True)
        self.need(p.outputs, HOST, "outputs")

    def sequence(self, body: ir.Sequence, top: bool = False) -> None:
        for node in body.steps:
            self.node(node, top)

    def node(self, node: ir.Node, top: bool) -> None:
        match node:
            case ir.Execute():
                self.kernel(node, node.ipu, "execute")
            case ir.HostCall():
                if not top:
                    raise InternalError(f"host-call {node.name} inside control flow")
                self.kernel(node, HOST, "host-call")
            case ir.Copy():
                self.ipu(node.source)
                self.ipu(node.target)
                self.need(node.values, node.source, "copy")
                self.put(node.values, node.target)
            case ir.Send():
                self.need(node.values, node.source, "send")
            case ir.Receive():
                self.written.update(node.values)
                self.put(node.values, node.target)
            case ir.StreamIn():
                self.ipu(node.ipu)
                self.write(node.writes, node.ipu, "stream-in")
            case ir.StreamOut():
                self.need(node.reads, node.ipu, "stream-out")
            case ir.Load():
                self.need((node.kept,), node.ipu, "load")
                self.same(self.avals((node.kept,)), self.avals((node.value,)), "load")
                self.write((node.value,), node.ipu, "load")
            case ir.Store():
                self.need((node.value,), node.ipu, "store")
                self.same(self.avals((node.value,)), self.avals((node.kept,)), "store")
                self.write((node.kept,), node.ipu, "store")
            case ir.Task():
                self.sequence(node.body)
            case ir.Sequence():
                self.sequence(node, top)
            case ir.Repeat():
                self.repeat(node)
            case ir.Pipeline():
                self.pipeline(node)
            case ir.While():
                self.carried(node.carry)
                self.inside(node)
            case ir.Switch():
                self.switch(node)

    def kernel(self, node: ir.Execute | ir.HostCall, ipu: IpuId, what: str) -> None:
        self.ipu(ipu)
        self.need(node.reads, ipu, what)
        self.same(node.kernel.jaxpr.in_avals, self.avals(node.reads), f"{what} takes")
        self.same(node.kernel.jaxpr.out_avals, self.avals(node.writes), f"{what} gives")
        self.write(node.writes, ipu, what)

    def repeat(self, node: ir.Repeat) -> None:
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

    def pipeline(self, node: ir.Pipeline) -> None:
        """A pipelined body is tasks and the copies in front of them; each phase occurs once."""
        copies = (ir.Copy, ir.Send, ir.Receive)
        steps = [step for step in node.body.steps if not isinstance(step, copies)]
        if not all(isinstance(step, ir.Task) for step in steps):
            raise InternalError("a pipeline's body holds something that is no task")
        phases = [(s.spec.kind, s.spec.stage) for s in steps if isinstance(s, ir.Task)]
        if len(set(phases)) < len(phases):
            raise InternalError("a pipeline has two tasks for one phase of a stage")
        self.carried(node.carry)
        self.inside(node)

    def switch(self, node: ir.Switch) -> None:
        self.known(node.index, "switch")
        counts = {len(node.writes), len(node.ipus), *(len(b.results) for b in node.branches)}
        if len(counts) > 1:
            raise InternalError("switch: results, IPUs and branches' results do not pair up")
        for branch in node.branches:
            self.same(self.avals(branch.results), self.avals(node.writes), "branch gives")
        self.inside(node)

    def inside(self, node: ir.Repeat | ir.Pipeline | ir.While | ir.Switch) -> None:
        """Bodies read what enters them, and leave what the branch goes on with."""
        what = type(node).__name__.lower()
        for number, body in enumerate(bodies(node)):
            outside = set(self.present)
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
            self.present = outside
        for value, ipu in births(node):
            self.write((value,), ipu, what)

    def carried(self, carry: tuple[ir.Carry, ...]) -> None:
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
            self.present.add((value, ipu))

    def put(self, values: Iterable[ValueId], ipu: IpuId) -> None:
        self.present.update((value, ipu) for value in values)

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
