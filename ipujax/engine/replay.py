"""Runs a Program node by node: kernels go out in order, devices overlap as the data allows.

A tree is compiled once, into one Python callable per step. Values are kept in a dictionary by
(value, IPU); what no later step of its sequence reads is dropped at once.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.engine import lanes
from ipujax.engine.feeds import Session
from ipujax.engine.iterations import advance, enter, finish, iterate, row_of
from ipujax.engine.loops import StreamedLoop, Values, is_streamable
from ipujax.engine.pipelines import PipelinedLoop
from ipujax.engine.placement import Axis, PerReplica, Placement
from ipujax.engine.storage import load, store
from ipujax.errors import EnqueueError
from lowering import HOST, collectives, ir, jaxpr, structure

Step = Callable[[Values, Session], None]


@dc.dataclass
class _Kernel:
    """A kernel's jitted function, what it is called with, and what to call: it, or it compiled."""

    jitted: Any
    avals: list[Any]
    call: Any = dc.field(init=False)

    def __post_init__(self) -> None:
        self.call = self.jitted


class Machine:
    """A Program, ready to run.

    Args:
      program: verified; fused or not.
      placement: the devices of its IPUs.
      donated: which flat arguments may be overwritten.
    """

    def __init__(self, program: ir.Program, placement: Placement, donated: Sequence[int] = ()):
        self.program, self.placement = program, placement
        self._kernels: dict[Any, _Kernel] = {}
        self._has_lanes = False
        # Whoever reads what an optimizer has put away gets it as it was.
        self._stores = any(isinstance(node, ir.Store) for node in ir.walk(program.body))
        self._homes = ir.homes(program)
        given = {program.inputs[number] for number in donated}
        kept = {*program.inputs, *(value for value, _ in program.constants)} - given
        self._spare = ir.carried_once(program) - kept
        self._needs = ir.Needs(self._homes)
        self._constants = [(value, jnp.asarray(data)) for value, data in program.constants]
        self._run = self.sequence(program.body, [(value, HOST) for value in program.outputs])
        if self._has_lanes and placement.is_default:
            self._compile_ahead()
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
            (self._kernel(node).jitted, self._avals(node))
            for node in ir.walk(self.program.body)
            if isinstance(node, ir.Execute)
        ]

    def _avals(self, node: ir.Execute) -> list[Any]:
        lead = () if self.placement.replicas == 1 else (self.placement.replicas,)
        return [
            jax.ShapeDtypeStruct((*lead, *aval.shape), aval.dtype) for aval in node.kernel.in_avals
        ]

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

    def _kernel(self, node: ir.Execute, donated: Collection[ir.Place] = ()) -> _Kernel:
        """The jitted kernel; equal kernels, such as those of repeated layers, share one."""
        closed = node.kernel.jaxpr
        given = tuple(i for i, v in enumerate(node.reads) if (v, node.ipu) in donated)
        where = node.ipu if self.placement.spread or not node.reads else None
        key = (structure.structure_key(closed), given, where)
        if key not in self._kernels:

            def kernel(*operands: Any) -> list[Any]:
                return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

            axes: list[Axis] = [0] * len(node.reads)
            out: list[Axis] = [0] * len(node.writes)
            whole = self.placement.replicated(kernel, node.ipu, axes, out)
            # A kernel that reads nothing would run wherever JAX likes.
            stays = node.reads or self.placement.is_default
            home = None if stays else self.placement.sharding(node.ipu)
            jitted = jax.jit(whole, donate_argnums=given, out_shardings=home)
            self._kernels[key] = _Kernel(jitted, self._avals(node))
        return self._kernels[key]

    def _compile_ahead(self) -> None:
        """Compiles all kernels, several at once: XLA does not use all cores for a single one."""
        lowered = [kernel.jitted.lower(*kernel.avals) for kernel in self._kernels.values()]
        with ThreadPoolExecutor(lanes.cores_of(self.placement)) as pool:
            compiled = list(pool.map(lambda stage: stage.compile(), lowered))
        for kernel, call in zip(self._kernels.values(), compiled, strict=True):
            kernel.call = call

    def execute(self, node: ir.Execute, donated: Collection[ir.Place]) -> Step:
        """Runs a kernel."""
        kernel = self._kernel(node, donated)
        reads = [(value, node.ipu) for value in node.reads]
        writes = [(value, node.ipu) for value in node.writes]

        def run(values: Values, session: Session) -> None:
            del session
            operands = [values[place] for place in reads]
            if self._stores:
                operands = [load(operand) for operand in operands]
            values.update(zip(writes, kernel.call(*operands), strict=True))

        return run

    def store_or_load(self, node: ir.Load | ir.Store) -> Step:
        """Puts a value away, or brings it back."""
        placement, ipu = self.placement, node.ipu
        if isinstance(node, ir.Load):
            source, target = (node.kept, ipu), (node.value, ipu)
            change = load
        else:
            source, target = (node.value, ipu), (node.kept, ipu)
            change = lambda x: store(x, node.storage, placement, ipu)  # noqa: E731

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

        def run(values: Values, session: Session) -> None:
            del session
            for here, there in pairs:
                values[there] = transfer(load(values[here]))

        return run

    def stream_in(self, node: ir.StreamIn) -> Step:
        """Takes an element."""
        writes = [(value, node.ipu) for value in node.writes]
        axis = None if self.placement.replicas == 1 else (0 if node.count is None else 1)
        # A kernel takes NumPy's arrays to where its other operands are, if that is the default.
        stays = self.placement.is_default

        def run(values: Values, session: Session) -> None:
            leaves = session.element(node.queue, node.count)
            elements: Sequence[Any] = leaves
            if not stays:
                elements = self.placement.elements(leaves, node.ipu, axis)
            if axis == 1:
                elements = [jnp.moveaxis(element, 1, 0) for element in elements]
            values.update(zip(writes, elements, strict=True))

        return run

    def stream_out(self, node: ir.StreamOut) -> Step:
        """Sends an element."""
        reads = [(value, node.ipu) for value in node.reads]
        swap = self.placement.replicas > 1 and node.count is not None

        def run(values: Values, session: Session) -> None:
            leaves = [load(values[place]) for place in reads]
            if swap:
                leaves = [jnp.moveaxis(leaf, 0, 1) for leaf in leaves]
            session.collector(node.queue).send(node.structure, leaves, node.count)

        return run

    def host_call(self, node: ir.HostCall) -> Step:
        """Runs a kernel on the host: for each replica, or with the values of the first."""
        closed, replicas = node.kernel.jaxpr, self.placement.replicas
        host = jax.devices("cpu")[0]
        is_shared = node.once or replicas == 1

        def function(*operands: Any) -> list[Any]:
            return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

        @functools.cache
        def kernel(own: tuple[bool, ...]) -> Callable[..., list[Any]]:
            """The function for operands of which some differ between replicas."""
            if replicas == 1:
                return jax.jit(function)
            axes = tuple(0 if o else None for o in own)
            axis = collectives.REPLICAS
            every = jax.vmap(function, axes, axis_name=axis, axis_size=replicas)
            return jax.jit(lambda *xs: [y[0] for y in every(*xs)] if is_shared else every(*xs))

        def operand(value: Any) -> Any:
            if not isinstance(value, PerReplica):
                return value
            return value.array[0] if is_shared else value.array

        reads = [(value, HOST) for value in node.reads]
        writes = [(value, HOST) for value in node.writes]

        def run(values: Values, session: Session) -> None:
            del session
            given = [values[place] for place in reads]
            own = tuple(isinstance(x, PerReplica) and not is_shared for x in given)
            with jax.default_device(host):
                results = kernel(own)(*jax.device_put(list(map(operand, given)), host))
            kept = results if is_shared else [PerReplica(y) for y in results]
            values.update(zip(writes, kept, strict=True))

        return run

    # --- branches -------------------------------------------------------------------------------

    def scalar(self, value: ir.ValueId, what: str, origin: str) -> Callable[[Values], Any]:
        """Reads a value that steers the program; all replicas must agree on it."""
        place = (value, self._homes[value])

        def read(values: Values) -> Any:
            value = load(values[place])
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
        if node.pipeline is not None:
            loop = PipelinedLoop(self, node, node.pipeline)
            self._has_lanes |= len(loop.lanes) > 1
            return loop
        if is_streamable(node):
            return StreamedLoop(node, self.placement, trips, self._spare)
        ends = [(c.leaving, c.ipu) for c in node.carry] + [(s.element, s.ipu) for s in node.stacks]
        body = self.sequence(node.body, ends)

        def run(values: Values, session: Session) -> None:
            count = int(trips(values))
            enter(node.carry, values)
            stacks: list[list[Any]] = [[] for _ in node.stacks]
            order = range(count - 1, -1, -1) if node.reverse else range(count)
            wholes = [load(values[s.stacked, s.ipu]) for s in node.slices]
            for done, index in enumerate(order):
                for s, whole in zip(node.slices, wholes, strict=True):
                    values[s.element, s.ipu] = row_of(whole, index, session.replicas)
                iterate(body, node, values, session, done, count)
                for kept, s in zip(stacks, node.stacks, strict=True):
                    kept.append(load(values[s.element, s.ipu]))
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
                iterate(body, node, values, session, done, None)
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
