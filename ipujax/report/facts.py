"""What costs and their remedies rest on: a program, what the model found, and with what options."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Mapping

import numpy as np

from ipujax.report.alternatives import Alternative, more_micro_batches, other_schedule
from ipujax.report.tally import Amount, Kind, tally
from ipujax.report.waiting import waiting
from lowering import HOST, avals, ir, jaxpr, machine, trace

_ALL_REDUCES = ("psum", "psum_invariant", "pmax", "pmin")
_HOST_KIND = trace.KINDS.index("host")


class Facts:
    """Found out once, however many rules ask.

    Attributes:
      program: what was modelled.
      profile: what came of it.
      options: what it was modelled with.
      whole: IPU-cycles of a call.
      waiting: why IPUs wait.
      exposed_io: cycles in which I/O tiles are at work and the others wait for them, at most; 0
        where nothing overlaps.
    """

    def __init__(
        self, program: ir.Program, profile: machine.Profile, options: machine.ModelOptions
    ):
        self.program, self.profile, self.options = program, profile, options
        self.whole = profile.num_ipus * int(profile.cycles)
        self.waiting = waiting(program, profile, overlaps_io=options.overlaps_io)
        self.exposed_io = self._exposed_io() if options.overlaps_io else 0
        self._tally = tally(profile.steps.trace)

    def _exposed_io(self) -> int:
        """Of IPUs whose queues take longer than the rest of their work."""
        busy = trace.busy(self.profile.steps.trace, self.profile.num_ipus)
        host = busy[:, _HOST_KIND]
        rest = busy.sum(axis=1) - host
        return int(np.where(host > rest, self.profile.cycles - rest, 0).clip(0).sum())

    @property
    def spared_by_io_tiles(self) -> int:
        """Cycles of all IPUs that queues take and other work could hide, at most."""
        busy = trace.busy(self.profile.steps.trace, self.profile.num_ipus)
        host = busy[:, _HOST_KIND]
        return int(np.minimum(host, self.profile.cycles - host).sum())

    def of_kind(self, kind: str) -> list[tuple[Kind, Amount]]:
        """Steps of a kind by name and line, most cycles first."""
        own = [item for item in self._tally.items() if item[0].kind == kind]
        return sorted(own, key=lambda item: -item[1].cycles)

    def cycles_of(self, kind: str) -> int:
        """Of all steps of a kind."""
        return sum(amount.cycles for _, amount in self.of_kind(kind))

    def operation(self, name: str, origin: str) -> machine.OperationTotal | None:
        """The most expensive operation of a name and line."""
        for operation in self.profile.operations:
            if operation.origin == origin and operation.name.startswith(f"{name} "):
                return operation
        return None

    def dtypes(self, name: str, origin: str) -> set[str]:
        """Of the numbers that a primitive at a line works on, or several that run as one."""
        primitives = (part.partition(":")[0] for part in name.split())
        return set[str]().union(*(self._dtypes.get((each, origin), ()) for each in primitives))

    @functools.cached_property
    def _dtypes(self) -> Mapping[tuple[str, str], set[str]]:
        """Of the operands of every primitive at every line."""
        found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
        for eqn in self._equations():
            operands = found[eqn.primitive.name, jaxpr.user_line(eqn)]
            operands.update(avals.dtype_name(atom.aval) for atom in eqn.invars)
        return found

    @property
    def merged_sums(self) -> int:
        """All-reduces that could go as one: the most of one IPU in one step of the program."""
        kernels = [node.kernel.jaxpr.jaxpr for node in self._nodes if isinstance(node, ir.Execute)]
        return max(map(_sums, kernels), default=0)

    @functools.cached_property
    def other_schedule(self) -> Alternative | None:
        """One that makes the program faster, if the model finds one."""
        old = self.waiting.schedule
        return old and other_schedule(self.program, self.profile, self.options, old)

    def more_micro_batches(self, times: int) -> Alternative | None:
        """The program with more of them, of the same size, if that makes it faster."""
        old = self.waiting.schedule
        return old and more_micro_batches(self.program, self.profile, self.options, old, times)

    def _equations(self) -> Iterator[jaxpr.JaxprEqn]:
        """All there are; those of a library are at the line of what is around them."""
        todo: list[tuple[jaxpr.Jaxpr, jaxpr.JaxprEqn | None]] = [
            (node.kernel.jaxpr.jaxpr, None) for node in self._nodes if isinstance(node, ir.Execute)
        ]
        while todo:
            body, around = todo.pop()
            for inner in body.eqns:
                eqn = jaxpr.at_line_of(inner, around, body)
                yield eqn
                todo.extend((each, eqn) for each in jaxpr.sub_jaxprs(eqn))

    @functools.cached_property
    def _nodes(self) -> list[ir.Node]:
        return list(ir.walk(self.program.body))

    @functools.cached_property
    def copied_dtypes(self) -> set[str]:
        """Of what goes from IPU to IPU."""
        copies = [node for node in self._nodes if isinstance(node, ir.Copy)]
        between = [node for node in copies if HOST not in (node.source, node.target)]
        return {self._dtype(value) for node in between for value in node.values}

    @functools.cached_property
    def queued_dtypes(self) -> set[str]:
        """Of what goes through queues."""
        found: set[str] = set()
        for node in self._nodes:
            if isinstance(node, ir.StreamIn):
                found |= {self._dtype(value) for value in node.writes}
            elif isinstance(node, ir.StreamOut):
                found |= {self._dtype(value) for value in node.reads}
        return found

    def _dtype(self, value: ir.ValueId) -> str:
        return avals.dtype_name(self.program.avals[value])

    @functools.cached_property
    def shards_storage(self) -> bool:
        """Whether replicas keep a part of what is stored each."""
        stored = [node for node in self._nodes if isinstance(node, (ir.Load, ir.Store))]
        return any(node.storage.sharded for node in stored)

    @functools.cached_property
    def half_sums(self) -> bool:
        """Whether an option asks for products whose sums are kept in half precision."""
        if "float16" in (
            self.options.plans.matmul_partials,
            self.options.plans.convolution_partials,
        ):
            return True
        tasks = [node for node in self._nodes if isinstance(node, ir.Task)]
        options = (dict(pairs) for task in tasks for _, pairs in task.spec.options)
        return any(own.get("partialsType") in ("half", "float16") for own in options)


def _sums(body: jaxpr.Jaxpr) -> int:
    """All-reduces in a body; those in loops inside of it wait for each other in vain."""
    own = sum(eqn.primitive.name in _ALL_REDUCES for eqn in body.eqns)
    calls = (call for eqn in body.eqns if (call := jaxpr.call_body(eqn)) is not None)
    return own + sum(_sums(call.jaxpr) for call in calls)
