"""The stable text of a Program: the same program always prints the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowering import marks
from lowering.ground import HOST, IpuId, ValueId
from lowering.ir import program as ir
from lowering.jaxprs import name_stack
from lowering.ops import word_of_equation

_SHOWN = 6  # operations named in one kernel's line; the rest are counted


def to_text(program: ir.Program, *, origins: bool = False) -> str:
    """Returns the text of the whole program, one step per line.

    Args:
      program: any verified program.
      origins: end each step that has one with the user's `file:line`.
    """
    return "\n".join(_Printer(program, origins).print_program()) + "\n"


def ipu_text(ipu: IpuId) -> str:
    """Returns `ipu 3`, or `host`."""
    return "host" if ipu == HOST else f"ipu {ipu}"


class _Printer:
    def __init__(self, program: ir.Program, origins: bool):
        self.program, self.origins = program, origins

    def print_program(self) -> Iterator[str]:
        p = self.program
        instances = f" in {p.instances} instances" if p.instances > 1 else ""
        replicas = (
            f"{_count_text(p.replicas, 'replica')} of {_count_text(p.ipus, 'IPU')}{instances}"
        )
        yield f"program {p.name}: {replicas}"
        yield f"  inputs {self.text_of_typed_values(p.inputs)}"
        if p.constants:
            yield (
                f"  constants {self.text_of_typed_values(tuple(value for value, _ in p.constants))}"
            )
        yield from self.print_steps(p.body, "  ")
        yield f"  outputs {_value_names(p.outputs)}"

    def print_steps(self, body: ir.Sequence, indent: str) -> Iterator[str]:
        for node in body.steps:
            first_line, *further_lines = self.print_node(node)
            origin = self.origin_text(node)
            yield f"{indent}{first_line}{f'  # {origin}' if origin else ''}"
            yield from (indent + line for line in further_lines)

    def print_node(self, node: ir.Node) -> Iterator[str]:
        match node:
            case ir.Execute():
                yield f"execute {ipu_text(node.ipu)}: {self.kernel_call_text(node)}"
                yield from _attribute_lines(node.kernel)
            case ir.HostCall():
                yield f"host-call {node.name}: {self.kernel_call_text(node)}"
                yield from _attribute_lines(node.kernel)
            case ir.Copy():
                route = f"{ipu_text(node.source)} -> {ipu_text(node.target)}"
                yield f"copy {route}: {_value_names(node.values)}"
            case ir.Send():
                yield (
                    f"send {_channel_text(node)} <- {ipu_text(node.source)}: "
                    f"{_value_names(node.values)}"
                )
            case ir.Receive():
                values = self.text_of_typed_values(node.values)
                yield f"receive {_channel_text(node)} -> {ipu_text(node.target)}: {values}"
            case ir.StreamIn():
                yield (
                    f"stream-in {ipu_text(node.ipu)}: {self.text_of_typed_values(node.writes)} = "
                    f"{_queue_text(node)}"
                )
            case ir.StreamOut():
                yield (
                    f"stream-out {ipu_text(node.ipu)}: {_queue_text(node)} <- "
                    f"{_value_names(node.reads)}"
                )
            case ir.Store():
                yield f"store {_storage_text(node, 'to')}: %{node.kept} = %{node.value}"
            case ir.Load():
                yield (
                    f"load {_storage_text(node, 'from')}: "
                    f"{self.text_of_typed_values((node.value,))} = %{node.kept}"
                )
            case ir.Sequence():
                yield "sequence"
                yield from self.print_steps(node, "  ")
            case ir.Task():
                spec = node.spec
                yield f"task {spec.kind}{f' {spec.stage}' if spec.stage >= 0 else ''}"
                for group, options in spec.options:
                    settings = ", ".join(f"{name}={value}" for name, value in options)
                    yield f"  {group} {settings or '-'}"
                yield from self.print_steps(node.body, "  ")
            case ir.Repeat():
                yield from self.print_repeat(node)
            case ir.Pipeline():
                yield from self.print_pipeline(node)
            case ir.While():
                yield "while"
                yield from (f"  carry {self.carry_text(c)}" for c in node.carry)
                yield "  condition"
                yield from self.print_steps(node.condition, "    ")
                yield f"    test {_value_names((node.predicate,))}"
                yield "  body"
                yield from self.print_steps(node.body, "    ")
            case ir.Switch():
                results = zip(node.writes, node.ipus, strict=True)
                typed = ", ".join(
                    f"{ipu_text(ipu)} {self.text_of_typed_values((v,))}" for v, ipu in results
                )
                yield f"switch {_value_names((node.index,))}: {typed or '-'}"
                for number, branch in enumerate(node.branches):
                    yield f"  branch {number}: {_value_names(branch.results)}"
                    yield from self.print_steps(branch.body, "    ")

    def print_repeat(self, node: ir.Repeat) -> Iterator[str]:
        times = str(node.count) if node.trips is None else _value_names((node.trips,))
        yield f"repeat {times}{' reverse' if node.reverse else ''}"
        yield from (f"  carry {self.carry_text(c)}" for c in node.carry)
        for s in node.slices:
            yield (
                f"  slice {ipu_text(s.ipu)}: {self.text_of_typed_values((s.element,))} = "
                f"%{s.stacked}[i]"
            )
        for s in node.stacks:
            yield (
                f"  stack {ipu_text(s.ipu)}: {self.text_of_typed_values((s.stacked,))}[i] = "
                f"%{s.element}"
            )
        yield from self.print_steps(node.body, "  ")

    def print_pipeline(self, node: ir.Pipeline) -> Iterator[str]:
        schedule = node.schedule
        yield f"repeat {schedule.micro_batches}"
        ticks = _count_text(len(schedule.ticks), "tick")
        yield f"  pipeline {node.name}: {schedule.name}, {schedule.stages} stages, {ticks}"
        for fifo in node.fifos:
            values = self.text_of_typed_values(fifo.values)
            yield f"  fifo {ipu_text(fifo.ipu)}: stage {fifo.stage}, depth {fifo.depth}: {values}"
        yield from (f"  carry {self.carry_text(c)}" for c in node.carry)
        yield from self.print_steps(node.body, "  ")

    def kernel_call_text(self, node: ir.Execute | ir.HostCall) -> str:
        return (
            f"{self.text_of_typed_values(node.writes)} = "
            f"{kernel_text(node.kernel)}({_value_names(node.reads)})"
        )

    def carry_text(self, carry: ir.Carry) -> str:
        return (
            f"{ipu_text(carry.ipu)}: {self.text_of_typed_values((carry.entering,))} = "
            f"%{carry.initial}, next %{carry.leaving}, final %{carry.final}"
        )

    def text_of_typed_values(self, values: tuple[ValueId, ...]) -> str:
        return ", ".join(f"%{v} {self.program.describe_aval(v)}" for v in values) or "-"

    def origin_text(self, node: ir.Node) -> str:
        if not self.origins:
            return ""
        kernel = getattr(node, "kernel", None)
        return kernel.origin if kernel is not None else getattr(node, "origin", "")


def _channel_text(node: ir.Send | ir.Receive) -> str:
    return f"process {node.process} #{node.channel}"


def _queue_text(node: ir.StreamIn | ir.StreamOut) -> str:
    return f"{node.queue.name}{f' x{node.count}' if node.count is not None else ''}"


def _storage_text(node: ir.Load | ir.Store, way: str) -> str:
    storage = node.storage
    place = f" {way} streaming memory" if storage.remote else ""
    return f"{ipu_text(node.ipu)}{place}{' sharded' if storage.sharded else ''}"


def kernel_text(kernel: ir.Kernel) -> str:
    """Returns the operations of a kernel in words, the first few of them."""
    words = list(map(word_of_equation, kernel.jaxpr.jaxpr.eqns))
    return f"[{_list_words(words) or 'pass'}]"


def _attribute_lines(kernel: ir.Kernel) -> Iterator[str]:
    """Yields a line for each frontend attribute of a kernel's operations, with those that have it.

    How a front end lets convolutions be computed is not among them.
    """
    words_of: dict[tuple[str, str], list[str]] = {}
    for eqn in kernel.jaxpr.jaxpr.eqns:
        for attribute in marks.read_marks(name_stack(eqn)).attributes:
            words_of.setdefault(attribute, []).append(word_of_equation(eqn))
    for (name, value), words in words_of.items():
        if name != marks.CONVOLUTIONS:
            yield f"  attribute {name}={value}: {_list_words(words)}"


def _list_words(words: Sequence[str]) -> str:
    hidden = len(words) - _SHOWN
    return f"{', '.join(words[:_SHOWN])}{f' and {hidden} more' if hidden > 0 else ''}"


def _value_names(values: tuple[ValueId, ...]) -> str:
    return ", ".join(f"%{v}" for v in values) or "-"


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
