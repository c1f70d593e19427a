"""Runs a Program node by node: kernels go out in order, devices overlap as the data allows.

A tree is compiled once, into one Python callable per step. Values are kept in a dictionary by
(value, IPU); what no later step of its sequence reads is dropped at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax import events
from ipujax.distribution.agree import of_all
from ipujax.engine import host_side, transfers
from ipujax.engine.compilation import Compilation, Compiled
from ipujax.engine.iterations import Rows, Step, advance, enter, finish, iterate
from ipujax.engine.loops import StreamedLoop, Values, is_streamable
from ipujax.engine.pipelines import PipelinedLoop
from ipujax.engine.placement import Axis, PerReplica, Placement
from ipujax.engine.storage import Storing, load
from ipujax.engine.transfers import TOGETHER, Apart
from ipujax.errors import EnqueueError
from ipujax.host.session import Session
from lowering import HOST, ir, jaxpr, structure_key


class Machine:
    """A Program, ready to run once its `compilation` is finished.

    Args:
      program: verified; fused or not.
      placement: the devices of its IPUs.
      donated: which flat arguments may be overwritten.
      apart: what of its arguments and results one process alone has.
    """

    def __init__(
        self,
        program: ir.Program,
        placement: Placement,
        donated: Sequence[int] = (),
        apart: Apart = TOGETHER,
    ):
        self.program, self.placement = program, placement
        self.compilation = Compilation(placement.spans_processes)
        self.shared = host_side.shared_values(program)
        self.exchange = transfers.exchange_of(program, placement)
        self.apart = apart
        part = transfers.part_here(program, placement, apart)
        self.part, self.kept = part.program, part.kept
        self._kernels: dict[Any, Compiled] = {}
        # Whoever reads what an optimizer has put away gets it as it was.
        self.stored = {node.kept for node in ir.walk(self.part.body) if isinstance(node, ir.Store)}
        self._homes = ir.homes(program)
        spare = {program.inputs[number] for number in donated}
        kept = {*program.inputs, *(value for value, _ in program.constants)} - spare
        self.spare = ir.carried_once(program) - kept
        self._needs = ir.Needs(self._homes)
        self._constants = [(value, jnp.asarray(data)) for value, data in program.constants]
        self._run = self.sequence(self.part.body, [(value, HOST) for value in program.outputs])
        self._arguments = host_side.Arguments(self, donated)
        self._results = host_side.results(self)
        self.infeeds = ir.queues(self.part, ir.StreamIn)
        self.outfeeds = ir.queues(self.program, ir.StreamOut)

    def __call__(self, arguments: Sequence[Any]) -> list[jax.Array]:
        """Runs the program once on flat arguments; gives flat results."""
        places = [(value, HOST) for value in self.program.inputs]
        values: Values = dict(zip(places, self._arguments(arguments), strict=True))
        values.update(((value, HOST), data) for value, data in self._constants)
        replicas, is_part = len(self.placement.own), self.placement.spans_processes
        queues = self.infeeds, self.outfeeds
        with Session(replicas, *queues, is_part, self.exchange) as session:
            self._run(values, session)
        return self._results(values)

    def compiled_kernels(self) -> list[Compiled]:
        """Each kernel as a function of its own, also those that are a part of a loop's."""
        nodes = ir.walk(self.part.body)
        return [self._kernel(node) for node in nodes if isinstance(node, ir.Execute)]

    def struct(self, value: ir.ValueId, ipu: ir.IpuId, axis: Axis = 0) -> jax.ShapeDtypeStruct:
        """What XLA is told of a value on an IPU, see `Placement.struct`."""
        return self.placement.struct(self.program.avals[value], ipu, axis)

    def copying(
        self, values: Sequence[ir.ValueId], ipu: ir.IpuId
    ) -> Callable[..., list[jax.Array]]:
        """A function that copies so many values of an IPU, for those who overwrite theirs."""
        if not values:
            return lambda: []
        structs = [self.struct(value, ipu) for value in values]
        homes = self.placement.result_homes(ipu, [0] * len(structs))
        return self.compilation.add(_copies, structs, out_shardings=homes)

    def is_hosted(self, value: ir.ValueId) -> bool:
        """Whether a value comes from the host: an argument or a constant."""
        return self._homes[value] == HOST

    # --- sequences ------------------------------------------------------------------------------

    def sequence(self, body: ir.Sequence, results: Sequence[ir.Place]) -> Step:
        """One callable for all steps of a body; what is not in `results` does not outlive it."""
        body = ir.Sequence(ir.opened(body.steps))
        steps = [self.step(node) for node in body.steps]
        dead = ir.dead_after(body, results, self._needs)

        def run(values: Values, session: Session) -> None:
            for step, gone in zip(steps, dead, strict=True):
                step(values, session)
                for place in gone:
                    values.pop(place, None)

        return run

    def step(self, node: ir.Node, donated: Collection[ir.Place] = ()) -> Step:
        """The callable of one node; a kernel may overwrite what it reads at `donated` places."""
        match node:
            case ir.Execute():
                return self.execute(node, donated)
            case ir.Load() | ir.Store():
                return self.store_or_load(node)
            case ir.Task():
                return self.step(node.body)
            case ir.Copy():
                return self.copy(node)
            case ir.Send():
                return transfers.send(self, node)
            case ir.Receive():
                return transfers.Receiving(self, node)
            case ir.StreamIn():
                return self.stream_in(node)
            case ir.StreamOut():
                return self.stream_out(node)
            case ir.HostCall():
                return host_side.host_call(self, node)
            case ir.Sequence():
                return self.sequence(node, [(v, self._homes[v]) for v in ir.writes(node)])
            case ir.Repeat():
                return self.repeat(node)
            case ir.Pipeline():
                return PipelinedLoop(self, node)
            case ir.While():
                return self.while_loop(node)
            case ir.Switch():
                return self.switch(node)

    # --- leaves ---------------------------------------------------------------------------------

    def _kernel(self, node: ir.Execute, donated: Collection[ir.Place] = ()) -> Compiled:
        """The compiled kernel; equal kernels, such as those of repeated layers, share one."""
        closed, placement = node.kernel.jaxpr, self.placement
        spare = tuple(i for i, v in enumerate(node.reads) if (v, node.ipu) in donated)
        where = None if placement.is_default else placement.sharding(node.ipu)
        key = (structure_key(closed), spare, where)
        if key not in self._kernels:

            def kernel(*operands: jax.Array) -> list[jax.Array]:
                return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

            in_axes, out_axes = [0] * len(node.reads), [0] * len(node.writes)
            whole = placement.replicated(kernel, node.ipu, in_axes, out_axes)
            # A kernel that reads nothing would run wherever JAX likes.
            home: Any = placement.result_homes(node.ipu, out_axes)
            if not node.reads:
                home = where
            structs = [placement.struct(aval, node.ipu) for aval in node.kernel.jaxpr.in_avals]
            self._kernels[key] = self.compilation.add(
                whole, structs, donate_argnums=spare, out_shardings=home
            )
        return self._kernels[key]

    def execute(self, node: ir.Execute, donated: Collection[ir.Place]) -> Step:
        """Runs a kernel."""
        kernel = self._kernel(node, donated)
        reads = [(value, node.ipu) for value in node.reads]
        writes = [(value, node.ipu) for value in node.writes]

        def run(values: Values, session: Session) -> None:
            del session
            operands = [values[place] for place in reads]
            if self.stored:
                operands = [load(operand) for operand in operands]
            values.update(zip(writes, kernel(*operands), strict=True))

        return run

    def store_or_load(self, node: ir.Load | ir.Store) -> Step:
        """Puts a value away, or brings it back."""
        kept, value = (node.kept, node.ipu), (node.value, node.ipu)
        if isinstance(node, ir.Load):
            source, target, change = kept, value, load
        else:
            source, target, change = value, kept, Storing(self, node)

        def run(values: Values, session: Session) -> None:
            del session
            values[target] = change(values[source])

        return run

    def copy(self, node: ir.Copy) -> Step:
        """Moves values."""
        placement, source, target = self.placement, node.source, node.target
        if source == HOST:
            transfer = lambda array: placement.to_device(array, target)  # noqa: E731
        elif target == HOST:
            transfer = placement.to_host
        elif placement.are_one(source, target):
            transfer = lambda array: array  # noqa: E731
        else:
            transfer = lambda array: placement.move(array, target)  # noqa: E731
        pairs = [((value, source), (value, target)) for value in node.values]
        dealt = [value for value in node.values if source == HOST and value in self.shared]
        deal = self.dealing(dealt, target)

        def run(values: Values, session: Session) -> None:
            del session
            for here, there in pairs:
                values[there] = transfer(load(values[here]))
            if deal is not None:
                everywhere = deal(*(values[value, target] for value in dealt))
                values.update(zip(((value, target) for value in dealt), everywhere, strict=True))

        return run

    def dealing(self, values: Sequence[ir.ValueId], ipu: ir.IpuId) -> Compiled | None:
        """A function that gives each replica what is there for all of them; None if one has it."""
        if not values or self.placement.replicas == 1:
            return None
        shared, each = [None] * len(values), [0] * len(values)
        whole = self.placement.replicated(lambda *xs: list(xs), ipu, shared, each)
        structs = [self.struct(value, ipu, None) for value in values]
        homes = self.placement.result_homes(ipu, each)
        return self.compilation.add(whole, structs, out_shardings=homes)

    def stream_in(self, node: ir.StreamIn) -> Step:
        """Takes an element."""
        writes = [(value, node.ipu) for value in node.writes]
        swap = self.placement.replicas > 1 and node.count is not None
        bring = self.bringing([self.struct(value, node.ipu) for value in node.writes], node.ipu)

        def run(values: Values, session: Session) -> None:
            elements = session.element(node.queue, node.count)
            if swap:
                elements = [np.moveaxis(element, 1, 0) for element in elements]
            values.update(zip(writes, bring(*elements), strict=True))

        return run

    def bringing(
        self, structs: Sequence[jax.ShapeDtypeStruct], ipu: ir.IpuId
    ) -> Callable[..., list[jax.Array]]:
        """A function that brings NumPy's arrays to an IPU; jit does it faster than `device_put`."""
        if self.placement.spans_processes:
            return self._joining(structs, ipu)
        homeless = [jax.ShapeDtypeStruct(struct.shape, struct.dtype) for struct in structs]
        homes = tuple(struct.sharding for struct in structs)
        carrier = self.compilation.add(lambda *xs: xs, homeless, out_shardings=homes)

        def bring(*arrays: np.ndarray) -> list[jax.Array]:
            with events.span("load", f"ipu {ipu}"):
                return carrier.from_numpy(*arrays)

        return bring

    def _joining(
        self, structs: Sequence[jax.ShapeDtypeStruct], ipu: ir.IpuId
    ) -> Callable[..., list[jax.Array]]:
        """The same where other processes bring what their replicas have."""
        placement = self.placement

        def bring(*arrays: np.ndarray) -> list[jax.Array]:
            with events.span("load", f"ipu {ipu}"):
                pairs = zip(arrays, structs, strict=True)
                return [placement.joined(array, struct.sharding) for array, struct in pairs]

        return bring

    def stream_out(self, node: ir.StreamOut) -> Step:
        """Sends an element."""
        reads = [(value, node.ipu) for value in node.reads]
        swap = None
        if self.placement.replicas > 1 and node.count is not None:
            structs = [self.struct(value, node.ipu) for value in node.reads]
            swap = self.compilation.add(
                lambda *xs: [jnp.moveaxis(x, 0, 1) for x in xs],
                structs,
                out_shardings=self.placement.result_homes(node.ipu, [1] * len(structs)),
            )

        def run(values: Values, session: Session) -> None:
            leaves = [load(values[place]) for place in reads]
            if swap is not None:
                leaves = swap(*leaves)
            leaves = [self.placement.parted(leaf) for leaf in leaves]
            session.collector(node.queue).send(node.structure, leaves, node.count)

        return run

    # --- branches -------------------------------------------------------------------------------

    def scalar(self, value: ir.ValueId, what: str, origin: str) -> Callable[[Values], int]:
        """Reads a value that steers the program; all replicas must agree on it."""
        place = (value, self._homes[value])

        def read(values: Values) -> int:
            value = load(values[place])
            own = value.array if isinstance(value, PerReplica) else self.placement.parted(value)
            array = np.asarray(own)
            if self.placement.spans_processes:
                array = of_all(array).ravel()
            if array.ndim and (array != array[0]).any():
                raise EnqueueError(
                    f"replicas disagree about {what}, and a queue is used inside: {array.tolist()}",
                    where=origin,
                    fix="make the condition equal on all replicas (cross_replica_sum), or move "
                    "the queue operation out of it",
                )
            return array.flat[0]

        return read

    def repeat(self, node: ir.Repeat) -> Step:
        """Runs a loop, streamed where its body is simple enough."""
        if node.trips is not None:
            trips = self.scalar(node.trips, "a trip count", node.origin)
        else:
            trips = lambda values: node.count or 0  # noqa: E731
        if is_streamable(node):
            return StreamedLoop(self, node, trips)
        (inside,) = ir.bodies(node)
        body = self.sequence(inside.sequence, inside.results)
        rows = Rows(self, node)

        def run(values: Values, session: Session) -> None:
            count = int(trips(values))
            enter(node.carry, values)
            wholes = rows.begin(values)
            order = range(count - 1, -1, -1) if node.reverse else range(count)
            for done, index in enumerate(order):
                rows.read(wholes, values, index)
                iterate(body, node, values, session, done, count)
                rows.write(values, index)
                advance(node.carry, values)
            finish(node.carry, values)

        return run

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
                iterate(body, node, values, session, done, None)
                advance(node.carry, values)
                done += 1
            finish(node.carry, values)

        return run

    def switch(self, node: ir.Switch) -> Step:
        """Runs the branch that the host reads an index for."""
        index = self.scalar(node.index, "a condition", node.origin)
        targets = list(ir.births(node))
        branches = [(self.sequence(b.sequence, b.results), b.results) for b in ir.bodies(node)]

        def run(values: Values, session: Session) -> None:
            chosen = min(max(int(index(values)), 0), len(branches) - 1)
            body, results = branches[chosen]
            body(values, session)
            values.update(zip(targets, [values[place] for place in results], strict=True))

        return run


def _copies(*arrays: jax.Array) -> list[jax.Array]:
    return [jnp.copy(array) for array in arrays]
