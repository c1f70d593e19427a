"""A reader of Programs: the part of one that one of several processes runs.

All processes have the whole program, and the arguments; each runs the steps of its own IPUs. What
is said here is worked out alike in all of them, the numbers of channels included.
"""

from __future__ import annotations

import dataclasses as dc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lowering import ir
from lowering.ir.tree import steering
from lowering.units import HOST, IpuId, ValueId

_ANYWHERE = 0  # the process of what has no place of its own, such as a call that reads nothing


@dc.dataclass(frozen=True)
class Part:
    """What one process runs of a program.

    Attributes:
      program: its steps, and the results that it has in the end.
      kept: results that one process alone has, and which.
    """

    program: ir.Program
    kept: Mapping[ValueId, int]


def part_of(
    program: ir.Program,
    processes: Sequence[int],
    count: int,
    here: int,
    held: Mapping[ValueId, int] = MappingProxyType({}),
    staying: Collection[ValueId] = (),
) -> Part:
    """The part of a program that one process runs.

    Before: a verified program.
    After:  there are the steps of this process's IPUs alone. What is copied between the IPUs of
            two processes is sent in one (as soon as it is there) and received in the other; so is
            what steers a branch in which the other has work, and in the end each result that does
            not stay. A queue is read by the process that uses it first; a host call runs where
            what it reads is.

    Args:
      program: for all IPUs of a replica.
      processes: which one runs each IPU, counting from 0.
      count: how many there are; some may have no IPU.
      here: the one whose part it is.
      held: inputs that one process alone has, and which.
      staying: outputs that stay with a process that has them.
    """
    parting = _Parting(program, processes, count, here, held)
    body = parting.sequence(program.body)
    results = [(value, HOST) for value in program.outputs if value not in staying]
    last = [node for process in parting.all for node in parting.bring(results, process)]
    holders = {value: parting.held[value, HOST] for value in program.outputs}
    part = dc.replace(
        program,
        body=ir.Sequence(_early_sends((*body.steps, *last))),
        outputs=tuple(value for value in program.outputs if here in holders[value]),
    )
    kept = {value: min(each) for value, each in holders.items() if len(each) < count}
    return Part(part, kept)


class _Parting:
    """One walk along a program.

    Attributes:
      all: the processes.
      held: which of them have a value, by its place. In processes other than an IPU's own, values
        at its place are what the host has of them.
    """

    def __init__(
        self,
        program: ir.Program,
        processes: Sequence[int],
        count: int,
        here: int,
        held: Mapping[ValueId, int],
    ):
        self.processes, self.here = processes, here
        self.all = range(count)
        self.homes = ir.homes(program)
        self.channels = 0
        known = (*program.inputs, *(value for value, _ in program.constants))
        self.held: dict[ir.Place, frozenset[int]] = {
            (value, HOST): frozenset((held[value],) if value in held else self.all)
            for value in known
        }
        self.readers: dict[Any, int] = {}
        for node in ir.walk(program.body):
            if isinstance(node, ir.StreamIn):
                self.readers.setdefault(node.queue, self.at(node.ipu))

    def at(self, ipu: IpuId) -> int:
        """The process of an IPU."""
        return _ANYWHERE if ipu == HOST else self.processes[ipu]

    def sequence(self, body: ir.Sequence, leaving: Collection[ir.Place] = ()) -> ir.Sequence:
        """The steps of a body that run here; what leaves it is then where its IPU is."""
        steps = [step for node in body.steps for step in self.node(node)]
        for place in leaving:
            steps += self.bring([place], self.at(place[1]))
        return ir.Sequence(_early_sends(steps))

    def node(self, node: ir.Node) -> Iterator[ir.Node]:
        """What of a node runs here, and what comes before and behind it."""
        match node:
            case ir.Copy() if HOST not in (node.source, node.target):
                yield from self.copy(node)
            case ir.Copy():
                ipu = node.target if node.source == HOST else node.source
                yield from self.leaf(node, self.at(ipu))
            case ir.HostCall():
                yield from self.leaf(node, self.caller(node))
            case ir.StreamIn():
                yield from self.leaf(node, self.readers[node.queue])
                yield from self.bring(ir.births(node), self.at(node.ipu))
            case ir.Execute() | ir.Load() | ir.Store() | ir.StreamOut():
                yield from self.leaf(node, self.at(node.ipu))
            case ir.Task():
                yield dc.replace(node, body=self.sequence(node.body))
            case ir.Sequence():
                yield from self.sequence(node).steps
            case ir.Send() | ir.Receive():
                yield node  # a part has no parts
            case _:
                yield from self.branch(node)

    def leaf(self, node: ir.Node, process: int) -> Iterator[ir.Node]:
        """A node that one process runs, once it has what the node reads."""
        yield from self.bring(ir.Needs()(node), process)
        self.held.update((place, frozenset((process,))) for place in ir.births(node))
        if process == self.here:
            yield node

    def copy(self, node: ir.Copy) -> Iterator[ir.Node]:
        """Between two IPUs; one message, if they are of two processes."""
        source, target = self.at(node.source), self.at(node.target)
        if source == target:
            yield from self.leaf(node, target)
            return
        yield from self.message(node.values, node.source, node.target, source, target)
        self.held.update((place, frozenset((target,))) for place in ir.births(node))

    def caller(self, node: ir.HostCall) -> int:
        """The process of a host call: one that has what it reads, if any has all of it."""
        have = [self.held[value, HOST] for value in node.reads]
        return min(frozenset(self.all).intersection(*have), default=_ANYWHERE)

    def bring(self, places: Iterable[ir.Place], process: int) -> Iterator[ir.Node]:
        """Has a process have values at their places."""
        missing: defaultdict[tuple[IpuId, int], list[ValueId]] = defaultdict(list)
        for value, ipu in sorted(set(places)):
            holders = self.held.get((value, ipu), frozenset((self.at(ipu),)))
            if process not in holders:
                missing[ipu, min(holders)].append(value)
                self.held[value, ipu] = holders | {process}
        for (ipu, holder), values in missing.items():
            yield from self.message(tuple(values), ipu, ipu, holder, process)

    def message(
        self, values: tuple[ValueId, ...], source: IpuId, target: IpuId, sender: int, receiver: int
    ) -> Iterator[ir.Node]:
        """Values on their way between two processes."""
        self.channels += 1
        if sender == self.here:
            yield ir.Send(values, source, receiver, self.channels)
        if receiver == self.here:
            yield ir.Receive(values, target, sender, self.channels)

    # --- branches -------------------------------------------------------------------------------

    def branch(self, node: ir.Repeat | ir.Pipeline | ir.While | ir.Switch) -> Iterator[ir.Node]:
        """A branch in every process that has work in it."""
        workers = sorted(self.workers(node))
        scalars = [(value, self.homes[value]) for value in steering(node)]
        for process in workers:
            if not isinstance(node, ir.While):
                yield from self.bring(scalars, process)
        for place in _entering(node):
            yield from self.bring([place], self.at(place[1]))
        changed = ir.with_bodies(node, lambda body: self.body(body, workers))
        self.held.update((place, frozenset((self.at(place[1]),))) for place in ir.births(node))
        if self.here in workers:
            yield _own(changed, lambda ipu: self.at(ipu) == self.here)

    def body(self, body: ir.Body, workers: Sequence[int]) -> ir.Sequence:
        """The steps of a branch's body; what is brought there is gone after it."""
        outside = dict(self.held)
        self.held.update((place, frozenset((self.at(place[1]),))) for place in body.arguments)
        inside = self.sequence(body.sequence, body.results)
        if body.answer is not None:
            answer = [(body.answer, self.homes[body.answer])]
            asked = [node for process in workers for node in self.bring(answer, process)]
            inside = ir.Sequence(_early_sends((*inside.steps, *asked)))
        self.held = outside
        return inside

    def workers(self, node: ir.Node) -> frozenset[int]:
        """The processes with work in a branch."""
        nodes = list(ir.walk(ir.Sequence((node,))))
        births = (ipu for each in nodes for _, ipu in (*ir.births(each), *ir.Needs()(each)))
        readers = (self.readers[n.queue] for n in nodes if isinstance(n, ir.StreamIn))
        return frozenset((*map(self.at, set(births)), *readers))


def _entering(node: ir.Node) -> Iterator[ir.Place]:
    """What a loop reads before its first iteration."""
    if isinstance(node, (ir.Repeat, ir.Pipeline, ir.While)):
        yield from ((c.initial, c.ipu) for c in node.carry)
    if isinstance(node, ir.Repeat):
        yield from ((s.stacked, s.ipu) for s in node.slices)


def _own(node: ir.Node, is_own: Callable[[IpuId], bool]) -> ir.Node:
    """A branch with the variables of some IPUs alone; its bodies are theirs already."""

    def own(entries: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(each for each in entries if is_own(each.ipu))

    match node:
        case ir.Repeat() | ir.While():
            carry = own(node.carry)
            # A part of the user's loop variables is no value of theirs.
            loop = node.loop if len(carry) == len(node.carry) else None
            if isinstance(node, ir.While):
                return dc.replace(node, carry=carry, loop=loop)
            lists = {"slices": own(node.slices), "stacks": own(node.stacks)}
            return dc.replace(node, carry=carry, loop=loop, **lists)
        case ir.Pipeline():
            return dc.replace(node, carry=own(node.carry), fifos=own(node.fifos))
        case ir.Switch():
            kept = [n for n, ipu in enumerate(node.ipus) if is_own(ipu)]
            branches = [
                dc.replace(b, results=tuple(b.results[n] for n in kept)) for b in node.branches
            ]
            return dc.replace(
                node,
                branches=tuple(branches),
                writes=tuple(node.writes[n] for n in kept),
                ipus=tuple(node.ipus[n] for n in kept),
            )
        case _:
            return node


def _early_sends(steps: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
    """Steps in which all that is sent is sent right behind what makes it, in a task even."""
    early: list[ir.Node] = []
    for node in steps:
        if not isinstance(node, ir.Send):
            early.append(node)
            continue
        sent = {(value, node.source) for value in node.values}
        makers = (n for n, step in enumerate(early) if not sent.isdisjoint(ir.births(step)))
        last = max(makers, default=None)
        maker = None if last is None else early[last]
        if last is None:
            early.append(node)
        elif isinstance(maker, ir.Task):
            body = ir.Sequence(_early_sends((*maker.body.steps, node)))
            early[last] = dc.replace(maker, body=body)
        else:
            early.insert(last + 1, node)
    return tuple(early)
