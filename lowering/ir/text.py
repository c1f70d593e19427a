"""The stable text of a Program: the same program always prints the same."""

from __future__ import annotations

from collections.abc import Iterator

from lowering.ir import program as ir
from lowering.jaxpr import JaxprEqn, call_body
from lowering.ops import user_ops
from lowering.units import HOST, IpuId, ValueId

_SHOWN = 6  # primitives named in one kernel's line; the rest are counted


def to_text(program: ir.Program, *, origins: bool = False) -> str:
    """The whole program, one step per line.

    Args:
      program: any verified program.
      origins: end each step that has one with the user's `file:line`.
    """
    return "\n".join(_Printer(program, origins).lines()) + "\n"


def ipu_text(ipu: IpuId) -> str:
    """`ipu 3`, or `host`."""
    return "host" if ipu == HOST else f"ipu {ipu}"


class _Printer:
    def __init__(self, program: ir.Program, origins: bool):
        self.program, self.origins = program, origins

    def lines(self) -> Iterator[str]:
        p = self.program
        instances = f" in {p.instances} instances" if p.instances > 1 else ""
        replicas = f"{_count(p.replicas, 'replica')} of {_count(p.ipus, 'IPU')}{instances}"
        yield f"program {p.name}: {replicas}"
        yield f"  inputs {self.typed(p.inputs)}"
        if p.constants:
            yield f"  constants {self.typed(tuple(value for value, _ in p.constants))}"
        yield from self.block(p.body, "  ")
        yield f"  outputs {_names(p.outputs)}"

    def block(self, body: ir.Sequence, indent: str) -> Iterator[str]:
        for node in body.steps:
            head, *rest = self.node(node)
            origin = self.origin(node)
            yield f"{indent}{head}{f'  # {origin}' if origin else ''}"
            yield from (indent + line for line in rest)

    def node(self, node: ir.Node) -> Iterator[str]:
        match node:
            case ir.Execute():
                yield f"execute {ipu_text(node.ipu)}: {self.call(node)}"
            case ir.HostCall():
                yield f"host-call {node.name}: {self.call(node)}"
            case ir.Copy():
                route = f"{ipu_text(node.source)} -> {ipu_text(node.target)}"
                yield f"copy {route}: {_names(node.values)}"
            case ir.Send():
                yield f"send {_channel(node)} <- {ipu_text(node.source)}: {_names(node.values)}"
            case ir.Receive():
                values = self.typed(node.values)
                yield f"receive {_channel(node)} -> {ipu_text(node.target)}: {values}"
            case ir.StreamIn():
                yield f"stream-in {ipu_text(node.ipu)}: {self.typed(node.writes)} = {_queue(node)}"
            case ir.StreamOut():
                yield f"stream-out {ipu_text(node.ipu)}: {_queue(node)} <- {_names(node.reads)}"
            case ir.Store():
                yield f"store {ipu_text(node.ipu)}{_kept(node)}: %{node.kept} = %{node.value}"
            case ir.Load():
                yield (
                    f"load {ipu_text(node.ipu)}{_kept(node)}: "
                    f"{self.typed((node.value,))} = %{node.kept}"
                )
            case ir.Sequence():
                yield "sequence"
                yield from self.block(node, "  ")
            case ir.Task():
                spec = node.spec
                yield f"task {spec.kind}{f' {spec.stage}' if spec.stage >= 0 else ''}"
                for group, options in spec.options:
                    settings = ", ".join(f"{name}={value}" for name, value in options)
                    yield f"  {group} {settings or '-'}"
                yield from self.block(node.body, "  ")
            case ir.Repeat():
                yield from self.repeat(node)
            case ir.Pipeline():
                yield from self.pipeline(node)
            case ir.While():
                yield "while"
                yield from (f"  carry {self.carry(c)}" for c in node.carry)
                yield "  condition"
                yield from self.block(node.condition, "    ")
                yield f"    test {_names((node.predicate,))}"
                yield "  body"
                yield from self.block(node.body, "    ")
            case ir.Switch():
                results = zip(node.writes, node.ipus, strict=True)
                typed = ", ".join(f"{ipu_text(ipu)} {self.typed((v,))}" for v, ipu in results)
                yield f"switch {_names((node.index,))}: {typed or '-'}"
                for number, branch in enumerate(node.branches):
                    yield f"  branch {number}: {_names(branch.results)}"
                    yield from self.block(branch.body, "    ")

    def repeat(self, node: ir.Repeat) -> Iterator[str]:
        times = str(node.count) if node.trips is None else _names((node.trips,))
        yield f"repeat {times}{' reverse' if node.reverse else ''}"
        yield from (f"  carry {self.carry(c)}" for c in node.carry)
        for s in node.slices:
            yield f"  slice {ipu_text(s.ipu)}: {self.typed((s.element,))} = %{s.stacked}[i]"
        for s in node.stacks:
            yield f"  stack {ipu_text(s.ipu)}: {self.typed((s.stacked,))}[i] = %{s.element}"
        yield from self.block(node.body, "  ")

    def pipeline(self, node: ir.Pipeline) -> Iterator[str]:
        schedule = node.schedule
        yield f"repeat {schedule.micro_batches}"
        ticks = _count(len(schedule.ticks), "tick")
        yield f"  pipeline {node.name}: {schedule.name}, {schedule.stages} stages, {ticks}"
        for fifo in node.fifos:
            values = self.typed(fifo.values)
            yield f"  fifo {ipu_text(fifo.ipu)}: stage {fifo.stage}, depth {fifo.depth}: {values}"
        yield from (f"  carry {self.carry(c)}" for c in node.carry)
        yield from self.block(node.body, "  ")

    def call(self, node: ir.Execute | ir.HostCall) -> str:
        return f"{self.typed(node.writes)} = {kernel_text(node.kernel)}({_names(node.reads)})"

    def carry(self, c: ir.Carry) -> str:
        return (
            f"{ipu_text(c.ipu)}: {self.typed((c.entering,))} = %{c.initial}, "
            f"next %{c.leaving}, final %{c.final}"
        )

    def typed(self, values: tuple[ValueId, ...]) -> str:
        return ", ".join(f"%{v} {self.program.describe(v)}" for v in values) or "-"

    def origin(self, node: ir.Node) -> str:
        if not self.origins:
            return ""
        kernel = getattr(node, "kernel", None)
        return kernel.origin if kernel is not None else getattr(node, "origin", "")


def _channel(node: ir.Send | ir.Receive) -> str:
    return f"process {node.process} #{node.channel}"


def _queue(node: ir.StreamIn | ir.StreamOut) -> str:
    return f"{node.queue.name}{f' x{node.count}' if node.count is not None else ''}"


def _kept(node: ir.Load | ir.Store) -> str:
    storage = node.storage
    return f"{' remote' if storage.remote else ''}{' sharded' if storage.sharded else ''}"


def kernel_text(kernel: ir.Kernel) -> str:
    """The primitives of a kernel, the first few by name."""
    names = [operation_name(eqn) for eqn in kernel.jaxpr.jaxpr.eqns]
    shown = " ".join(names[:_SHOWN]) or "pass"
    return f"[{shown} +{len(names) - _SHOWN}]" if len(names) > _SHOWN else f"[{shown}]"


def operation_name(eqn: JaxprEqn) -> str:
    """The primitive's name; with it that of an inner jit, or of an operation of the user's own."""
    body = call_body(eqn)
    inner = body.jaxpr.eqns if body is not None else []
    custom = user_ops.name_of(inner[0] if len(inner) == 1 else eqn)
    if custom is not None:
        return custom
    name = eqn.primitive.name
    return f"{name}:{eqn.params['name']}" if name in ("jit", "pjit") else name


def _names(values: tuple[ValueId, ...]) -> str:
    return ", ".join(f"%{v}" for v in values) or "-"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
