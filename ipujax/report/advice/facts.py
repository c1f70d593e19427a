"""What costs and their remedies rest on: a program, what the model found, and with what options."""

from __future__ import annotations

import collections
import dataclasses as dc
import functools
from collections.abc import Callable, Collection, Mapping

import numpy as np

from ipujax.report.advice.alternatives import Alternative, more_micro_batches, other_schedule
from ipujax.report.advice.index import Index
from ipujax.report.advice.tally import Total, tally
from ipujax.report.advice.waiting import waiting
from lowering import HOST, dtype_name, ir, jaxpr, machine, trace

_ALL_REDUCES = ("psum", "psum_invariant", "pmax", "pmin")
_HOST_KIND = trace.KINDS.index("host")


class Facts:
    """Found out once, however many rules ask.

    Attributes:
      program: what was modelled.
      index: what is where in it.
      profile: what came of it.
      options: what it was modelled with.
      whole: IPU-cycles of a call.
      waiting: why IPUs wait.
    """

    def __init__(self, index: Index, profile: machine.Profile, options: machine.ModelOptions):
        self.index, self.profile, self.options = index, profile, options
        self.program = index.program
        self.whole = profile.num_ipus * int(profile.cycles)
        self.waiting = waiting(index, profile, overlaps_io=options.overlaps_io)
        busy = trace.busy(profile.steps.trace, profile.num_ipus)
        self._host = busy[:, _HOST_KIND]
        self._rest = busy.sum(axis=1) - self._host
        self._tally = tally(profile.steps.trace)

    @property
    def fits(self) -> bool:
        """Whether there is enough memory: nobody needs to know what would be faster otherwise."""
        return self.profile.memory.fits

    def changed(self, change: Callable[[ir.Node], ir.Node]) -> machine.Profile:
        """What the model finds for the program with other nodes."""
        body = ir.with_nodes(self.program.body, change)
        return machine.model(dc.replace(self.program, body=body), self.options)

    @property
    def exposed_io(self) -> int:
        """Cycles in which I/O tiles are at work and the others wait for them, at most.

        Of IPUs whose queues take longer than the rest of their work; 0 where nothing overlaps.
        """
        if not self.options.overlaps_io:
            return 0
        alone = np.where(self._host > self._rest, self.profile.cycles - self._rest, 0)
        return int(alone.clip(0).sum())

    @property
    def spared_by_io_tiles(self) -> int:
        """Cycles of all IPUs that queues take and other work could hide, at most."""
        return int(np.minimum(self._host, self.profile.cycles - self._host).sum())

    def of_kind(self, kind: str) -> list[Total]:
        """Steps of a kind by name and line, most cycles first."""
        alike = (item for item in self._tally.items() if item[0].kind == kind)
        totals = [Total(k.name, k.origin, *amount, amount.cycles) for k, amount in alike]
        return sorted(totals, key=lambda each: -each.cycles)

    def total(self, kind: str) -> list[Total]:
        """All steps of a kind together; [] if there are none."""
        totals = self.of_kind(kind)
        return [Total.of(totals)] if totals else []

    def operations(self, steps: Total) -> list[machine.OperationTotal]:
        """The operations of the name and line of steps, most expensive first."""
        return [
            operation
            for operation in self.profile.operations
            if operation.origin == steps.origin
            and f"{operation.name} ".startswith(f"{steps.name} ")
        ]

    def dtypes(self, steps: Total) -> set[str]:
        """Of the numbers that a primitive at a line works on, or several that run as one."""
        primitives = (part.partition(":")[0] for part in steps.name.split())
        known = (self._dtypes.get((each, steps.origin), ()) for each in primitives)
        return set[str]().union(*known)

    @functools.cached_property
    def _dtypes(self) -> Mapping[tuple[str, str], set[str]]:
        """Of the operands of every primitive at every line."""
        dtypes: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
        for eqn in self.index.equations:
            operands = dtypes[eqn.primitive.name, jaxpr.user_line(eqn)]
            operands.update(dtype_name(atom.aval) for atom in eqn.invars)
        return dtypes

    @functools.cached_property
    def given_single(self) -> bool:
        """Whether the user gives the program more bytes of float32 than of halves.

        Where he gives halves, what is float32 is so for a reason: sums, statistics, losses.
        """
        fed = [value for node in self.index.of(ir.StreamIn) for value in node.writes]
        given = self.index.bytes_by_dtype([*self.program.inputs, *fed])
        return given["float32"] > given["float16"] + given["bfloat16"]

    def could_be_half(self, dtypes: Collection[str]) -> bool:
        """Whether some of these are float32, and the user has chosen that."""
        return "float32" in dtypes and self.given_single

    @property
    def merged_sums(self) -> int:
        """All-reduces that could go as one: the most of one IPU in one step of the program."""
        kernels = (node.kernel.jaxpr.jaxpr for node in self.index.of(ir.Execute))
        return max(map(_sums, kernels), default=0)

    @functools.cached_property
    def other_schedule(self) -> Alternative | None:
        """One that makes the program faster, if the model finds one and it fits."""
        old = self.waiting.schedule if self.fits else None
        return old and other_schedule(self, old)

    def more_micro_batches(self, times: int) -> Alternative | None:
        """The program with more of them, of the same size, if that makes it faster and it fits."""
        old = self.waiting.schedule if self.fits else None
        return old and more_micro_batches(self, old, times)

    @property
    def copied_dtypes(self) -> set[str]:
        """Of what goes from IPU to IPU."""
        copies = (node for node in self.index.of(ir.Copy) if HOST not in (node.source, node.target))
        return self.index.dtypes(value for node in copies for value in node.values)

    @property
    def queued_dtypes(self) -> set[str]:
        """Of what goes through queues."""
        fed = [value for node in self.index.of(ir.StreamIn) for value in node.writes]
        taken = [value for node in self.index.of(ir.StreamOut) for value in node.reads]
        return self.index.dtypes(fed + taken)

    @property
    def shards_storage(self) -> bool:
        """Whether replicas keep a part of what is stored each."""
        return any(node.storage.sharded for node in self.index.of(ir.Load, ir.Store))

    @property
    def half_sums(self) -> bool:
        """Whether an option asks for products whose sums are kept in half precision."""
        plans = self.options.plans
        if "float16" in (plans.matmul_partials, plans.convolution_partials):
            return True
        options = (dict(pairs) for task in self.index.of(ir.Task) for _, pairs in task.spec.options)
        return any(each.get("partialsType") in ("half", "float16") for each in options)


def _sums(body: jaxpr.Jaxpr) -> int:
    """All-reduces in a body; those in loops inside of it wait for each other in vain."""
    here = sum(eqn.primitive.name in _ALL_REDUCES for eqn in body.eqns)
    calls = (call for eqn in body.eqns if (call := jaxpr.call_body(eqn)) is not None)
    return here + sum(_sums(call.jaxpr) for call in calls)
