"""Runs a Program node by node: kernels go out in order, devices overlap as the data allows.

A tree is compiled once, into one Python callable per step. Values are kept in a dictionary by
(value, IPU); what no later step of its sequence reads is dropped at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.engine.feeds import Session, of_the_loop
from ipujax.engine.loops import StreamedLoop, Values, is_streamable
from ipujax.engine.placement import Axis, PerReplica, Placement
from ipujax.errors import EnqueueError, OutOfRangeError
from lowering import HOST, ir, jaxpr

Step = Callable[[Values, Session], None]


class Machine:
    """A Program, ready to run.

    Args:
      program: verified; fused or not.
      placement: the devices of its IPUs.
      donated: which flat arguments may be overwritten.
    """

    def __init__(self, program: ir.Program, placement: Placement, donated: Sequence[int] = ()):
        self.program, self.placement = program, placement
        self._kernels: dict[int, Any] = {}
        self._homes = ir.homes(program)
        self._spare = ir.carried_once(program) & {program.inputs[number] for number in donated}
        self._needs = ir.Needs(self._homes)
        self._constants = [(value, jnp.asarray(data)) for value, data in program.constants]
        self._run = self.sequence(program.body, [(value, HOST) for value in program.outputs])
        self.infeeds = ir.queues(self.program, ir.StreamIn)
        self.outfeeds = ir.queues(self.program, ir.StreamOut)

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Runs the program once on flat arguments; gives flat results."""
        values: Values = {
            (value, HOST): x for value, x in zip(self.program.inputs, arguments, strict=True)
        }
        values.update(((value, HOST), data) for value, data in self._constants)
        with Session(self.placement.replicas, self.infeeds, self.outfeeds) as session:
            self._run(values, session)
        return [self.placement.result(values[value, HOST]) for value in self.program.outputs]

    def compiled_kernels(self) -> list[tuple[Any, list[Any]]]:
        """Each kernel's jitted function, with the avals that it is called with."""
        return [
            (function, self._avals(node))
            for node in ir.walk(self.program.body)
            if isinstance(node, ir.Execute)
            for function in [self._kernel(node)]
        ]

    def _avals(self, node: ir.Execute) -> list[Any]:
        lead = () if self.placement.replicas == 1 else (self.placement.replicas,)
        return [
            jax.ShapeDtypeStruct((*lead, *aval.shape), aval.dtype) for aval in node.kernel.in_avals
        ]

    # --- sequences ------------------------------------------------------------------------------

    def sequence(self, body: ir.Sequence, results: Sequence[ir.Place]) -> Step:
        """One callable for all steps of a body; what is not in `results` does not outlive it."""
        steps = [self.step(node) for node in body.steps]
        dead = ir.dead_after(body, results, self._needs)

        def run(values: Values, session: Session) -> None:
            for step, gone in zip(steps, dead, strict=True):
                step(values, session)
                for place in gone:
                    values.pop(place, None)

        return run

    def step(self, node: ir.Node) -> Step:
        """The callable of one node."""
        match node:
            case ir.Execute():
                return self.execute(node)
            case ir.Copy():
                return self.copy(node)
            case ir.StreamIn():
                return self.stream_in(node)
            case ir.StreamOut():
                return self.stream_out(node)
            case ir.HostCall():
                return self.host_call(node)
            case ir.Sequence():
                return self.sequence(node, [(v, self._homes[v]) for v in ir.writes(node)])
            case ir.Repeat():
                return self.repeat(node)
            case ir.While():
                return self.while_loop(node)
            case ir.Switch():
                return self.switch(node)

    # --- leaves ---------------------------------------------------------------------------------

    def _kernel(self, node: ir.Execute) -> Any:
        key = id(node)
        if key not in self._kernels:
            closed = node.kernel.jaxpr

            def kernel(*operands: Any) -> list[Any]:
                return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

            axes: list[Axis] = [0] * len(node.reads)
            out: list[Axis] = [0] * len(node.writes)
            self._kernels[key] = jax.jit(self.placement.replicated(kernel, node.ipu, axes, out))
        return self._kernels[key]

    def execute(self, node: ir.Execute) -> Step:
        """Runs a kernel."""
        kernel = self._kernel(node)
        reads = [(value, node.ipu) for value in node.reads]
        writes = [(value, node.ipu) for value in node.writes]
        if not reads:
            device = self.placement.sharding(node.ipu)
            kernel = _without_operands(kernel, device)

        def run(values: Values, session: Session) -> None:
            del session
            results = kernel(*[values[place] for place in reads])
            values.update(zip(writes, results, strict=True))

        return run

    def copy(self, node: ir.Copy) -> Step:
        """Moves values."""
        placement, target = self.placement, node.target
        if node.source == HOST:
            transfer = lambda array: placement.to_device(array, target)  # noqa: E731
        elif target == HOST:
            transfer = placement.to_host
        else:
            transfer = lambda array: placement.move(array, target)  # noqa: E731
        pairs = [((value, node.source), (value, target)) for value in node.values]

        def run(values: Values, session: Session) -> None:
            del session
            for here, there in pairs:
                values[there] = transfer(values[here])

        return run

    def stream_in(self, node: ir.StreamIn) -> Step:
        """Takes an element."""
        writes = [(value, node.ipu) for value in node.writes]
        axis = None if self.placement.replicas == 1 else (0 if node.count is None else 1)

        def run(values: Values, session: Session) -> None:
            for place, leaf in zip(writes, session.element(node.queue, node.count), strict=True):
                element = self.placement.elements(leaf, node.ipu, axis)
                values[place] = element if axis != 1 else jnp.moveaxis(element, 1, 0)

        return run

    def stream_out(self, node: ir.StreamOut) -> Step:
        """Sends an element."""
        reads = [(value, node.ipu) for value in node.reads]
        swap = self.placement.replicas > 1 and node.count is not None

        def run(values: Values, session: Session) -> None:
            leaves = [values[place] for place in reads]
            if swap:
                leaves = [jnp.moveaxis(leaf, 0, 1) for leaf in leaves]
            session.collector(node.queue).send(node.structure, leaves, node.count)

        return run

    def host_call(self, node: ir.HostCall) -> Step:
        """Runs a kernel on the host."""
        closed = node.kernel.jaxpr
        host = jax.devices("cpu")[0]

        def function(*operands: Any) -> list[Any]:
            return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

        @functools.cache
        def kernel(own: tuple[bool, ...]) -> Callable[..., list[Any]]:
            """The function for operands of which some differ between replicas."""
            if not any(own):
                return jax.jit(function)
            return jax.jit(jax.vmap(function, in_axes=tuple(0 if o else None for o in own)))

        reads = [(value, HOST) for value in node.reads]
        writes = [(value, HOST) for value in node.writes]

        def run(values: Values, session: Session) -> None:
            del session
            operands = [values[place] for place in reads]
            own = tuple(isinstance(x, PerReplica) for x in operands)
            arrays = [x.array if isinstance(x, PerReplica) else x for x in operands]
            with jax.default_device(host):
                results = kernel(own)(*jax.device_put(arrays, host))
            kept = [PerReplica(y) for y in results] if any(own) else results
            values.update(zip(writes, kept, strict=True))

        return run

    # --- branches -------------------------------------------------------------------------------

    def scalar(self, value: ir.ValueId, what: str, origin: str) -> Callable[[Values], Any]:
        """Reads a value that steers the program; all replicas must agree on it."""
        place = (value, self._homes[value])

        def read(values: Values) -> Any:
            value = values[place]
            array = np.asarray(value.array if isinstance(value, PerReplica) else value)
            if array.ndim and (array != array[0]).any():
                raise EnqueueError(
                    f"replicas disagree about {what}, and a queue is used inside: {array.tolist()}",
                    where=origin,
                    fix="make the condition equal on all replicas (cross_replica_sum), or move "
                    "the queue operation out of it",
                )
            return array[0] if array.ndim else array[()]

        return read

    def repeat(self, node: ir.Repeat) -> Step:
        """Runs a loop, streamed where its body is simple enough."""
        if node.trips is not None:
            trips = self.scalar(node.trips, "a trip count", node.origin)
        else:
            trips = lambda values: node.count or 0  # noqa: E731
        if is_streamable(node):
            return StreamedLoop(node, self.placement, trips, self._spare)
        ends = [(c.leaving, c.ipu) for c in node.carry] + [(s.element, s.ipu) for s in node.stacks]
        body = self.sequence(node.body, ends)

        def run(values: Values, session: Session) -> None:
            count = int(trips(values))
            enter(node.carry, values)
            stacks: list[list[Any]] = [[] for _ in node.stacks]
            order = range(count - 1, -1, -1) if node.reverse else range(count)
            for done, index in enumerate(order):
                for s in node.slices:
                    row = _row(values[s.stacked, s.ipu], index, session.replicas)
                    values[s.element, s.ipu] = row
                _body(body, node, values, session, done, count)
                for kept, s in zip(stacks, node.stacks, strict=True):
                    kept.append(values[s.element, s.ipu])
                advance(node.carry, values)
            finish(node.carry, values)
            for kept, s in zip(stacks, node.stacks, strict=True):
                values[s.stacked, s.ipu] = self.stacked(kept[:: -1 if node.reverse else 1], s)

        return run

    def stacked(self, rows: list[Any], stack: ir.Stack) -> Any:
        """The rows that the iterations of a loop left, as one array."""
        axis = 0 if self.placement.replicas == 1 else 1
        if rows:
            return jnp.stack(rows, axis)
        aval = self.program.avals[stack.stacked]
        lead = () if self.placement.replicas == 1 else (self.placement.replicas,)
        return jnp.zeros((*lead, *aval.shape), aval.dtype)

    def while_loop(self, node: ir.While) -> Step:
        """Runs a loop whose condition the host reads."""
        place = (node.predicate, self._homes[node.predicate])
        condition = self.sequence(node.condition, [place])
        test = self.scalar(node.predicate, "a loop's condition", node.origin)
        body = self.sequence(node.body, [(c.leaving, c.ipu) for c in node.carry])

        def run(values: Values, session: Session) -> None:
            enter(node.carry, values)
            done = 0
            while True:
                condition(values, session)
                if not test(values):
                    break
                _body(body, node, values, session, done, None)
                advance(node.carry, values)
                done += 1
            finish(node.carry, values)

        return run

    def switch(self, node: ir.Switch) -> Step:
        """Runs the branch that the host reads an index for."""
        index = self.scalar(node.index, "a condition", node.origin)
        targets = list(zip(node.writes, node.ipus, strict=True))
        branches = [
            (self.sequence(b.body, list(zip(b.results, node.ipus, strict=True))), b.results)
            for b in node.branches
        ]

        def run(values: Values, session: Session) -> None:
            chosen = min(max(int(index(values)), 0), len(branches) - 1)
            body, results = branches[chosen]
            body(values, session)
            for (write, ipu), result in zip(targets, results, strict=True):
                values[write, ipu] = values[result, ipu]

        return run


def enter(carry: Sequence[ir.Carry], values: Values) -> None:
    """The loop variables as the first iteration sees them."""
    for c in carry:
        values[c.entering, c.ipu] = values[c.initial, c.ipu]


def advance(carry: Sequence[ir.Carry], values: Values) -> None:
    """What one iteration computed becomes what the next one sees."""
    leaving = [values[c.leaving, c.ipu] for c in carry]
    for c, value in zip(carry, leaving, strict=True):
        values[c.entering, c.ipu] = value


def finish(carry: Sequence[ir.Carry], values: Values) -> None:
    """The loop variables after the last iteration."""
    for c in carry:
        values[c.final, c.ipu] = values[c.entering, c.ipu]


def _body(
    body: Step,
    node: ir.Repeat | ir.While,
    values: Values,
    session: Session,
    done: int,
    count: int | None,
) -> None:
    """One iteration; a data set that ends in it learns what the loop had computed."""
    try:
        body(values, session)
    except OutOfRangeError as error:
        if node.loop is None or error.carried is not None:
            raise
        # A `while_loop` counts its iterations in a variable before the user's.
        first = 0 if isinstance(node, ir.Repeat) else 1
        own = node.carry[first : first + node.loop.num_leaves]
        carried = [values[c.entering, c.ipu] for c in own]
        raise of_the_loop(error, node.loop, count, done, carried, session.replicas) from None


def _row(stacked: Any, index: int, replicas: int) -> Any:
    return stacked[index] if replicas == 1 else stacked[:, index]


def _without_operands(kernel: Any, sharding: Any) -> Any:
    """A kernel that reads nothing would run wherever JAX likes; its results must be at home."""
    return lambda: [jax.device_put(result, sharding) for result in kernel()]
