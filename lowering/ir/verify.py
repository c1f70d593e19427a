"""The verifier of Programs; a broken promise is a bug of ours."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from lowering.ground import HOST, InternalError, IpuId, ValueId
from lowering.ir import program as ir
from lowering.ir.program_nodes import Place, bodies_of_node, places_of_writes
from lowering.ir.program_text import ipu_text, to_text
from lowering.jaxprs import Aval, dtype_name, shape_of, signature_of


def verify(program: ir.Program, *, has_copies: bool = True) -> None:
    """Checks the promises of a program.

    * every value is written once, before it is read, and read only where it lives;
    * kernels take and give exactly the shapes and dtypes of the values they name;
    * a loop variable's four names agree in shape, dtype and IPU;
    * IPUs exist; host calls stand at the top level only; results are on the host.

    Args:
      program: any program.
      has_copies: whether its copies are inserted; before, values may be read anywhere.

    Raises:
      InternalError: the first broken promise, by node.
    """
    _Verifier(program, has_copies).verify_program()


def verify_after_pass(name: str, program: ir.Program, *, has_copies: bool = True) -> ir.Program:
    """Returns the result of a pass after `verify`, whose errors name the pass and show the result.

    Raises:
      InternalError: the first broken promise.
    """
    try:
        verify(program, has_copies=has_copies)
    except InternalError as broken_promise:
        broken_promise.add_note(f"after pass `{name}`:\n{to_text(program)}")
        raise
    return program


class _Verifier:
    def __init__(self, program: ir.Program, has_copies: bool):
        self.program, self.has_copies = program, has_copies
        self.written: set[ValueId] = set()
        self.present: set[Place] = set()

    def verify_program(self) -> None:
        p = self.program
        if p.ipus < 1 or p.replicas < 1:
            raise InternalError(f"{p.name}: {p.replicas} replicas of {p.ipus} IPUs")
        self.record_writes((*p.inputs, *(value for value, _ in p.constants)), HOST, "program")
        self.verify_steps(p.body, is_top=True)
        self.require_presence(p.outputs, HOST, "outputs")

    def verify_steps(self, body: ir.Sequence, is_top: bool = False) -> None:
        for node in body.steps:
            self.verify_node(node, is_top)

    def verify_node(self, node: ir.Node, is_top: bool) -> None:
        match node:
            case ir.Execute():
                self.verify_kernel(node, node.ipu, "execute")
            case ir.HostCall():
                if not is_top:
                    raise InternalError(f"host-call {node.name} inside control flow")
                self.verify_kernel(node, HOST, "host-call")
            case ir.Copy():
                self.verify_ipu(node.source)
                self.verify_ipu(node.target)
                self.require_presence(node.values, node.source, "copy")
                self.record_presence(node.values, node.target)
            case ir.Send():
                self.require_presence(node.values, node.source, "send")
            case ir.Receive():
                self.written.update(node.values)
                self.record_presence(node.values, node.target)
            case ir.StreamIn():
                self.verify_ipu(node.ipu)
                self.record_writes(node.writes, node.ipu, "stream-in")
            case ir.StreamOut():
                self.require_presence(node.reads, node.ipu, "stream-out")
            case ir.Load():
                self.require_presence((node.kept,), node.ipu, "load")
                self.require_same_avals(
                    self.avals_of_values((node.kept,)), self.avals_of_values((node.value,)), "load"
                )
                self.record_writes((node.value,), node.ipu, "load")
            case ir.Store():
                self.require_presence((node.value,), node.ipu, "store")
                self.require_same_avals(
                    self.avals_of_values((node.value,)), self.avals_of_values((node.kept,)), "store"
                )
                self.record_writes((node.kept,), node.ipu, "store")
            case ir.Task():
                self.verify_steps(node.body)
            case ir.Sequence():
                self.verify_steps(node, is_top)
            case ir.Repeat():
                self.verify_repeat(node)
            case ir.Pipeline():
                self.verify_pipeline(node)
            case ir.While():
                self.verify_carries(node.carry)
                self.verify_bodies(node)
            case ir.Switch():
                self.verify_switch(node)

    def verify_kernel(self, node: ir.Execute | ir.HostCall, ipu: IpuId, node_text: str) -> None:
        self.verify_ipu(ipu)
        self.require_presence(node.reads, ipu, node_text)
        self.require_same_avals(
            node.kernel.jaxpr.in_avals, self.avals_of_values(node.reads), f"{node_text} takes"
        )
        self.require_same_avals(
            node.kernel.jaxpr.out_avals, self.avals_of_values(node.writes), f"{node_text} gives"
        )
        self.record_writes(node.writes, ipu, node_text)

    def verify_repeat(self, node: ir.Repeat) -> None:
        if (node.count is None) == (node.trips is None):
            raise InternalError("repeat needs either a static count or a value that holds it")
        if node.trips is not None:
            self.require_written(node.trips, "repeat")
        self.verify_carries(node.carry)
        for s in node.slices:
            self.require_presence((s.stacked,), s.ipu, "slice")
            self.verify_slice(s.stacked, s.element, node.count)
        for s in node.stacks:
            self.verify_slice(s.stacked, s.element, node.count)
        self.verify_bodies(node)

    def verify_pipeline(self, node: ir.Pipeline) -> None:
        """Checks that a pipeline's body is tasks and copies, and each phase occurs once."""
        copies = (ir.Copy, ir.Send, ir.Receive)
        steps = [step for step in node.body.steps if not isinstance(step, copies)]
        if not all(isinstance(step, ir.Task) for step in steps):
            raise InternalError("a pipeline's body holds something that is no task")
        phases = [(s.spec.kind, s.spec.stage) for s in steps if isinstance(s, ir.Task)]
        if len(set(phases)) < len(phases):
            raise InternalError("a pipeline has two tasks for one phase of a stage")
        self.verify_carries(node.carry)
        self.verify_bodies(node)

    def verify_switch(self, node: ir.Switch) -> None:
        self.require_written(node.index, "switch")
        counts = {len(node.writes), len(node.ipus), *(len(b.results) for b in node.branches)}
        if len(counts) > 1:
            raise InternalError("switch: results, IPUs and branches' results do not pair up")
        for branch in node.branches:
            self.require_same_avals(
                self.avals_of_values(branch.results),
                self.avals_of_values(node.writes),
                "branch gives",
            )
        self.verify_bodies(node)

    def verify_bodies(self, node: ir.Repeat | ir.Pipeline | ir.While | ir.Switch) -> None:
        """Checks that bodies read available values, and leave those that the node reads."""
        node_text = type(node).__name__.lower()
        for body_index, body in enumerate(bodies_of_node(node)):
            outside = set(self.present)
            for value, ipu in body.arguments:
                if body_index:  # a loop's condition has the same arguments
                    self.record_presence((value,), ipu)
                else:
                    self.record_writes((value,), ipu, node_text)
            self.verify_steps(body.sequence)
            if body.answer is not None:
                self.require_written(body.answer, node_text)
            for value, ipu in body.results:
                self.require_presence((value,), ipu, node_text)
            self.present = outside
        for value, ipu in places_of_writes(node):
            self.record_writes((value,), ipu, node_text)

    def verify_carries(self, carry: tuple[ir.Carry, ...]) -> None:
        for c in carry:
            self.require_presence((c.initial,), c.ipu, "carry")
            avals = self.avals_of_values((c.initial, c.entering, c.leaving, c.final))
            self.require_same_avals(avals[1:], [avals[0]] * 3, "carry")

    def verify_slice(self, stacked: ValueId, element: ValueId, count: int | None) -> None:
        stacked_aval, element_aval = self.avals_of_values((stacked, element))
        if shape_of(stacked_aval) != (count, *shape_of(element_aval)) or dtype_name(
            stacked_aval
        ) != dtype_name(element_aval):
            raise InternalError(f"%{stacked} is not %{element} stacked {count} times")

    def record_writes(self, values: Iterable[ValueId], ipu: IpuId, node_text: str) -> None:
        for value in values:
            if value in self.written:
                raise InternalError(f"{node_text} writes %{value}, which is written already")
            self.written.add(value)
            self.present.add((value, ipu))

    def record_presence(self, values: Iterable[ValueId], ipu: IpuId) -> None:
        self.present.update((value, ipu) for value in values)

    def require_presence(self, values: Iterable[ValueId], ipu: IpuId, node_text: str) -> None:
        for value in values:
            if not self.has_copies:
                self.require_written(value, node_text)
            elif (value, ipu) not in self.present:
                raise InternalError(f"{node_text} reads %{value} on {ipu_text(ipu)}: not there")

    def require_written(self, value: ValueId, node_text: str) -> None:
        if value not in self.written:
            raise InternalError(f"{node_text} reads %{value} before it is written")

    def verify_ipu(self, ipu: IpuId) -> None:
        if ipu != HOST and not 0 <= ipu < self.program.ipus:
            raise InternalError(f"{ipu_text(ipu)} of a program over {self.program.ipus} IPUs")

    def avals_of_values(self, values: Iterable[ValueId]) -> list[Aval]:
        return [self.program.avals[value] for value in values]

    def require_same_avals(self, want: list[Aval], got: list[Aval], text: str) -> None:
        if len(want) == len(got) and all(map(operator.is_, want, got)):
            return  # mostly they are the same objects, which saves their signatures
        if signature_of(want) != signature_of(got):
            raise InternalError(f"{text} {signature_of(want)}, its values are {signature_of(got)}")
