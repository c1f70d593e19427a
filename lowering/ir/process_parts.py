"""The part of a Program that one of several processes runs.

All processes have the whole program, and the arguments; each runs the steps of its own IPUs. Each
process computes the same parts, the numbers of channels included.
"""

from __future__ import annotations

import dataclasses as dc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lowering.ground import HOST, IpuId, ValueId
from lowering.ir import program as ir
from lowering.ir.program_liveness import PlacesOfReads, ipu_of_each_value
from lowering.ir.program_nodes import (
    Body,
    Place,
    places_of_writes,
    rewrite_bodies,
    scalars_deciding_control_flow,
    walk_nodes,
)

_ANYWHERE = 0  # the process that runs a step of no IPU, such as a host call that reads nothing


@dc.dataclass(frozen=True)
class Part:
    """The part of a program that one process runs.

    Attributes:
      program: its steps, and the results that it has in the end.
      kept: the process of each result that not all processes have.
    """

    program: ir.Program
    kept: Mapping[ValueId, int]


def part_of_process(
    program: ir.Program,
    process_of_ipu: Sequence[int],
    num_processes: int,
    own_process: int,
    owner_of_input: Mapping[ValueId, int] = MappingProxyType({}),
    local_outputs: Collection[ValueId] = (),
) -> Part:
    """Returns the part of a program that one process runs.

    Before: a verified program.
    After:  the part has the steps of this process's IPUs alone. A copy between the IPUs of two
            processes is a Send in one (as soon as the value is there) and a Receive in the other;
            so is a value that steers a branch in which the other has work, and in the end each
            result that is not local. The process that uses a queue first reads it; a host call
            runs in a process that has the values it reads.

    Args:
      program: for all IPUs of a replica.
      process_of_ipu: the process that runs each IPU, counting from 0.
      num_processes: how many processes there are; some may have no IPU.
      own_process: the one whose part is returned.
      owner_of_input: for each input that one process alone has, that process.
      local_outputs: outputs that stay with a process that has them.
    """
    parting = _PartBuilder(program, process_of_ipu, num_processes, own_process, owner_of_input)
    body = parting.keep_local_steps(program.body)
    results = [(value, HOST) for value in program.outputs if value not in local_outputs]
    final_steps = [
        node for process in parting.all for node in parting.send_missing_values(results, process)
    ]
    holders = {value: parting.held[value, HOST] for value in program.outputs}
    part = dc.replace(
        program,
        body=ir.Sequence(_move_sends_behind_producers((*body.steps, *final_steps))),
        outputs=tuple(value for value in program.outputs if own_process in holders[value]),
    )
    owner_of_result = {
        value: min(owners) for value, owners in holders.items() if len(owners) < num_processes
    }
    return Part(part, owner_of_result)


class _PartBuilder:
    """A walk along a program that collects the steps of one process.

    Attributes:
      all: the numbers of all processes.
      held: the processes that have a value, by the value and its IPU. In a process that does not
        run that IPU, the value is the host's copy.
    """

    def __init__(
        self,
        program: ir.Program,
        process_of_ipu: Sequence[int],
        num_processes: int,
        own_process: int,
        owner_of_input: Mapping[ValueId, int],
    ):
        self.processes, self.here = process_of_ipu, own_process
        self.all = range(num_processes)
        self.homes = ipu_of_each_value(program)
        self.channels = 0
        host_values = (*program.inputs, *(value for value, _ in program.constants))
        self.held: dict[Place, frozenset[int]] = {
            (value, HOST): frozenset(
                (owner_of_input[value],) if value in owner_of_input else self.all
            )
            for value in host_values
        }
        self.readers: dict[Any, int] = {}
        for node in walk_nodes(program.body):
            if isinstance(node, ir.StreamIn):
                self.readers.setdefault(node.queue, self.process_of(node.ipu))

    def process_of(self, ipu: IpuId) -> int:
        """Returns the process that runs an IPU."""
        return _ANYWHERE if ipu == HOST else self.processes[ipu]

    def keep_local_steps(self, body: ir.Sequence, results: Collection[Place] = ()) -> ir.Sequence:
        """Returns the steps of a body that this process runs."""
        steps = [step for node in body.steps for step in self.split_node(node)]
        for value_on_ipu in results:
            steps += self.send_missing_values([value_on_ipu], self.process_of(value_on_ipu[1]))
        return ir.Sequence(_move_sends_behind_producers(steps))

    def split_node(self, node: ir.Node) -> Iterator[ir.Node]:
        """Yields what this process runs of a node, and the messages before and after it."""
        match node:
            case ir.Copy() if HOST not in (node.source, node.target):
                yield from self.split_copy(node)
            case ir.Copy():
                ipu = node.target if node.source == HOST else node.source
                yield from self.yield_node_in_process(node, self.process_of(ipu))
            case ir.HostCall():
                yield from self.yield_node_in_process(node, self.process_of_host_call(node))
            case ir.StreamIn():
                yield from self.yield_node_in_process(node, self.readers[node.queue])
                yield from self.send_missing_values(
                    places_of_writes(node), self.process_of(node.ipu)
                )
            case ir.Execute() | ir.Load() | ir.Store() | ir.StreamOut():
                yield from self.yield_node_in_process(node, self.process_of(node.ipu))
            case ir.Task():
                yield dc.replace(node, body=self.keep_local_steps(node.body))
            case ir.Sequence():
                yield from self.keep_local_steps(node).steps
            case ir.Send() | ir.Receive():
                yield node  # a part has no parts
            case _:
                yield from self.split_branch(node)

    def yield_node_in_process(self, node: ir.Node, process: int) -> Iterator[ir.Node]:
        """Yields a node in the one process that runs it, and brings its operands there before."""
        yield from self.send_missing_values(PlacesOfReads()(node), process)
        self.held.update(
            (value_on_ipu, frozenset((process,))) for value_on_ipu in places_of_writes(node)
        )
        if process == self.here:
            yield node

    def split_copy(self, node: ir.Copy) -> Iterator[ir.Node]:
        """Yields a copy between two IPUs, or the message that replaces it between processes."""
        sender, receiver = self.process_of(node.source), self.process_of(node.target)
        if sender == receiver:
            yield from self.yield_node_in_process(node, receiver)
            return
        yield from self.send_values(node.values, node.source, node.target, sender, receiver)
        self.held.update(
            (value_on_ipu, frozenset((receiver,))) for value_on_ipu in places_of_writes(node)
        )

    def process_of_host_call(self, node: ir.HostCall) -> int:
        """Returns the process of a host call: one that has all values it reads, if any has."""
        have = [self.held[value, HOST] for value in node.reads]
        return min(frozenset(self.all).intersection(*have), default=_ANYWHERE)

    def send_missing_values(
        self, values_on_ipus: Iterable[Place], process: int
    ) -> Iterator[ir.Node]:
        """Yields the messages after which a process has the given values of IPUs."""
        missing: defaultdict[tuple[IpuId, int], list[ValueId]] = defaultdict(list)
        for value, ipu in sorted(set(values_on_ipus)):
            holders = self.held.get((value, ipu), frozenset((self.process_of(ipu),)))
            if process not in holders:
                missing[ipu, min(holders)].append(value)
                self.held[value, ipu] = holders | {process}
        for (ipu, holder), values in missing.items():
            yield from self.send_values(tuple(values), ipu, ipu, holder, process)

    def send_values(
        self, values: tuple[ValueId, ...], source: IpuId, target: IpuId, sender: int, receiver: int
    ) -> Iterator[ir.Node]:
        """Yields the Send or Receive of values that go from one process to another."""
        self.channels += 1
        if sender == self.here:
            yield ir.Send(values, source, receiver, self.channels)
        if receiver == self.here:
            yield ir.Receive(values, target, sender, self.channels)

    # --- branches -------------------------------------------------------------------------------

    def split_branch(
        self, node: ir.Repeat | ir.Pipeline | ir.While | ir.Switch
    ) -> Iterator[ir.Node]:
        """Yields a loop or switch in every process that has work in it."""
        workers = sorted(self.processes_with_work(node))
        scalars = [(value, self.homes[value]) for value in scalars_deciding_control_flow(node)]
        for process in workers:
            if not isinstance(node, ir.While):
                yield from self.send_missing_values(scalars, process)
        for value_on_ipu in _read_before_first_iteration(node):
            yield from self.send_missing_values([value_on_ipu], self.process_of(value_on_ipu[1]))
        changed = rewrite_bodies(node, lambda body: self.keep_local_body(body, workers))
        self.held.update(
            (place, frozenset((self.process_of(place[1]),))) for place in places_of_writes(node)
        )
        if self.here in workers:
            yield _keep_entries_of_ipus(changed, lambda ipu: self.process_of(ipu) == self.here)

    def keep_local_body(self, body: Body, workers: Sequence[int]) -> ir.Sequence:
        """Returns a body's steps in this process; values brought there are gone after it."""
        holders_outside = dict(self.held)
        self.held.update(
            (value_on_ipu, frozenset((self.process_of(value_on_ipu[1]),)))
            for value_on_ipu in body.arguments
        )
        local_steps = self.keep_local_steps(body.sequence, body.results)
        if body.answer is not None:
            answer = [(body.answer, self.homes[body.answer])]
            answer_messages = [
                node for process in workers for node in self.send_missing_values(answer, process)
            ]
            local_steps = ir.Sequence(
                _move_sends_behind_producers((*local_steps.steps, *answer_messages))
            )
        self.held = holders_outside
        return local_steps

    def processes_with_work(self, node: ir.Node) -> frozenset[int]:
        """Returns the processes that have work in a loop or switch."""
        nodes, places_read = list(walk_nodes(ir.Sequence((node,)))), PlacesOfReads()
        births = (
            ipu
            for nested_node in nodes
            for _, ipu in (*places_of_writes(nested_node), *places_read(nested_node))
        )
        readers = (self.readers[n.queue] for n in nodes if isinstance(n, ir.StreamIn))
        return frozenset((*map(self.process_of, set(births)), *readers))


def _read_before_first_iteration(node: ir.Node) -> Iterator[Place]:
    """Yields the values that a loop reads before its first iteration, with their IPUs."""
    if isinstance(node, (ir.Repeat, ir.Pipeline, ir.While)):
        yield from ((c.initial, c.ipu) for c in node.carry)
    if isinstance(node, ir.Repeat):
        yield from ((s.stacked, s.ipu) for s in node.slices)


def _keep_entries_of_ipus(node: ir.Node, is_kept_ipu: Callable[[IpuId], bool]) -> ir.Node:
    """Returns a branch with the variables of some IPUs alone; its bodies are local already."""

    def select_entries(entries: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(entry for entry in entries if is_kept_ipu(entry.ipu))

    match node:
        case ir.Repeat() | ir.While():
            carry = select_entries(node.carry)
            # `loop` names all the user's loop variables, which a part of them is not.
            loop = node.loop if len(carry) == len(node.carry) else None
            if isinstance(node, ir.While):
                return dc.replace(node, carry=carry, loop=loop)
            slices_and_stacks = {
                "slices": select_entries(node.slices),
                "stacks": select_entries(node.stacks),
            }
            return dc.replace(node, carry=carry, loop=loop, **slices_and_stacks)
        case ir.Pipeline():
            return dc.replace(
                node, carry=select_entries(node.carry), fifos=select_entries(node.fifos)
            )
        case ir.Switch():
            kept_results = [n for n, ipu in enumerate(node.ipus) if is_kept_ipu(ipu)]
            branches = [
                dc.replace(b, results=tuple(b.results[n] for n in kept_results))
                for b in node.branches
            ]
            return dc.replace(
                node,
                branches=tuple(branches),
                writes=tuple(node.writes[n] for n in kept_results),
                ipus=tuple(node.ipus[n] for n in kept_results),
            )
        case _:
            return node


def _move_sends_behind_producers(steps: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
    """Moves every Send right behind the step that makes its value, into a task even."""
    early: list[ir.Node] = []
    for node in steps:
        if not isinstance(node, ir.Send):
            early.append(node)
            continue
        sent = {(value, node.source) for value in node.values}
        makers = (n for n, step in enumerate(early) if not sent.isdisjoint(places_of_writes(step)))
        last = max(makers, default=None)
        maker = None if last is None else early[last]
        if last is None:
            early.append(node)
        elif isinstance(maker, ir.Task):
            body = ir.Sequence(_move_sends_behind_producers((*maker.body.steps, node)))
            early[last] = dc.replace(maker, body=body)
        else:
            early.insert(last + 1, node)
    return tuple(early)
