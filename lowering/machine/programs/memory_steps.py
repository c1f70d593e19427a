"""The steps of a program as its memory sees them: what dies when, whatever lies where.

None of it depends on a chip or its options, so all models of a program share it.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Sequence

from lowering import ir
from lowering.ground import IpuId, ValueId
from lowering.jaxprs import JaxprEqn
from lowering.machine.programs.updates import Updates


@dc.dataclass(frozen=True, slots=True, eq=False)
class RunInMemory:
    """What one run of a kernel does to the values of a program.

    Attributes:
      ipu: where it runs.
      reads: its operands.
      donated: positions of those that nobody needs afterwards.
      successors: pairs (operand given away, result): a value and its update.
      results: its results, each with the equation that makes it; None for an operand as it is.
    """

    ipu: IpuId
    reads: tuple[ir.Place, ...]
    donated: frozenset[int]
    successors: frozenset[tuple[int, int]]
    results: tuple[tuple[ir.Place, JaxprEqn | None], ...]


@dc.dataclass(frozen=True, slots=True, eq=False)
class MemoryStep:
    """One step of a body, and the values that nobody needs after it.

    Attributes:
      node: the step.
      run: what it does if it runs a kernel; None for all other nodes.
      dying: the values that nobody needs any more, those that it makes included.
      dropped: those of them whose memory is given back, unless another takes it.
      out_of_date: those of them that have an update.
      replaced: the values whose updates may move to their memory after it.
    """

    node: ir.Node
    run: RunInMemory | None
    dying: frozenset[ir.Place]
    dropped: tuple[ir.Place, ...]
    out_of_date: tuple[ir.Place, ...]
    replaced: tuple[ir.Place, ...]


class MemorySteps:
    """The steps of each body of a program, found when they are asked for.

    Args:
      reads: returns the values that a node reads.
      equation_that_makes: returns the equation that makes a value of a kernel.
      updates: the values that take the memory of others, by those.
    """

    def __init__(
        self,
        reads: ir.PlacesOfReads,
        equation_that_makes: Callable[[ValueId], JaxprEqn | None],
        updates: Updates,
    ) -> None:
        self._reads, self._equation_that_makes = reads, equation_that_makes
        self._new = updates
        self._old = {new: old for old, new in updates.items()}
        # Each with the body, so that no other one gets its identity.
        self._known: dict[int, tuple[Sequence[ir.Node], tuple[MemoryStep, ...]]] = {}

    def steps_of_body(
        self, steps: Sequence[ir.Node], results: Iterable[ir.Place], entering: frozenset[ir.Place]
    ) -> tuple[MemoryStep, ...]:
        """Returns the steps of a body, tasks inlined.

        Args:
          steps: the steps of the body.
          results: the values that are needed after the last step.
          entering: its loop variables, whose memory is not given back.
        """
        if id(steps) not in self._known:
            flat = ir.Sequence(ir.inline_tasks(steps))
            dead = ir.find_dead_values_after_steps(flat, results, self._reads, entering)
            pairs = zip(flat.steps, dead, strict=True)
            found = tuple(self._describe_step(node, dying, entering) for node, dying in pairs)
            self._known[id(steps)] = steps, found
        return self._known[id(steps)][1]

    def _describe_step(
        self, node: ir.Node, dying: Sequence[ir.Place], entering: frozenset[ir.Place]
    ) -> MemoryStep:
        all_dying = frozenset(dying)
        out_of_date = tuple(place for place in dying if place in self._new)
        written = (self._old[place] for place in ir.places_of_writes(node) if place in self._old)
        return MemoryStep(
            node=node,
            run=self._describe_run(node, all_dying) if isinstance(node, ir.Execute) else None,
            dying=all_dying,
            dropped=tuple(place for place in dying if place not in entering),
            out_of_date=out_of_date,
            replaced=(*out_of_date, *written),
        )

    def _describe_run(self, node: ir.Execute, dying: frozenset[ir.Place]) -> RunInMemory:
        reads = tuple((value, node.ipu) for value in node.reads)
        donated = frozenset(i for i, read in enumerate(reads) if read in dying)
        number = {(value, node.ipu): i for i, value in enumerate(node.writes)}
        pairs = ((i, number.get(self._new.get(reads[i], reads[i]))) for i in donated)
        return RunInMemory(
            ipu=node.ipu,
            reads=reads,
            donated=donated,
            successors=frozenset((old, new) for old, new in pairs if new is not None),
            results=tuple(
                ((value, node.ipu), self._equation_that_makes(value)) for value in node.writes
            ),
        )
