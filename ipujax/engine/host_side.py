"""A program's values on the host: arguments on their way in, results on their way out, host calls.

What all replicas share is an array there, as arguments are; what each has its own of is a
`PerReplica`. Which is which is known before the program runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ipujax.distribution.agree import of_all
from ipujax.distribution.holding import held, holder
from ipujax.engine.placement import Device, PerReplica, Placement, struct_of
from ipujax.engine.transfers import Form, raw
from lowering import HOST, ir, is_number, jaxpr, ops, shape_of

if TYPE_CHECKING:
    from ipujax.engine.loops import Values
    from ipujax.engine.replay import Machine
    from ipujax.host.session import Session


def shared_values(program: ir.Program) -> frozenset[ir.ValueId]:
    """The values on the host that are one for all replicas."""
    calls = (node for node in ir.walk(program.body) if isinstance(node, ir.HostCall))
    results = (value for node in calls if node.once for value in node.writes)
    return frozenset((*program.inputs, *(value for value, _ in program.constants), *results))


class Arguments:
    """A program's arguments on their way in.

    Args:
      machine: runs the program.
      donated: which of them the program may overwrite.
    """

    def __init__(self, machine: Machine, donated: Sequence[int]):
        apart, here = machine.apart.arguments, machine.placement.among.index
        self.held = [number for number, process in apart.items() if process == here]
        self.donated = [number for number in donated if apart.get(number, here) == here]
        avals = [machine.program.avals[machine.program.inputs[n]] for n in self.donated]
        structs = [struct_of(aval.shape, aval, None) for aval in avals]
        self.device = jax.local_devices()[0]
        self.take_over: Callable[..., list[jax.Array]] = _same
        if self.donated:
            self.take_over = machine.compilation.add(_same, [structs], donate_argnums=0)

    def __call__(self, arguments: Sequence[Any]) -> list[jax.Array]:
        """The arguments as arrays of JAX's that stay as they are.

        NumPy's, which their owner may write to, are copied; donated ones are taken from theirs.
        Those that another process has are left as they are.
        """
        arrays = list(arguments)
        for number in self.held:
            if holder(arrays[number]) is not None:
                arrays[number] = arrays[number].addressable_data(0)
        others = [n for n, array in enumerate(arrays) if not isinstance(array, jax.Array)]
        copies = jax.device_put([_copied(arrays[n]) for n in others])
        for number, copy in zip(others, copies, strict=True):
            arrays[number] = copy
        if self.donated:
            taken = self._taken([arrays[n] for n in self.donated])
            for number, array in zip(self.donated, taken, strict=True):
                arrays[number] = array
        return arrays

    def _taken(self, arrays: list[jax.Array]) -> list[jax.Array]:
        """The same buffers in arrays of their own; those that were given are deleted."""
        elsewhere = any(x.committed and x.devices() != {self.device} for x in arrays)
        take_over = _taken_from_anywhere if elsewhere else self.take_over
        return take_over(arrays)


def _copied(argument: Any) -> Any:
    """A copy of an array; Python's numbers stay what they are, and so of weak types."""
    return np.array(argument) if isinstance(argument, np.ndarray) else argument


def _same(arrays: list[jax.Array]) -> list[jax.Array]:
    return arrays


_taken_from_anywhere = jax.jit(_same, donate_argnums=0)


def results(machine: Machine) -> Callable[[Values], list[jax.Array]]:
    """What takes a program's results from its values: replica 0's, where each has its own.

    Of those that one process alone has the others get arrays without data, see `holding`.
    """
    program, placement, kept = machine.part, machine.placement, machine.kept
    outputs, device = program.outputs, jax.local_devices()[0]
    copies = (n for n in ir.walk(program.body) if isinstance(n, ir.Copy) and n.target == HOST)
    sources = {value: node.source for node in copies for value in node.values}
    by_home: dict[Device, list[ir.ValueId]] = defaultdict(list)  # where replica 0 has them
    for value in dict.fromkeys(outputs):
        if placement.replicas > 1 and value not in machine.shared:
            home = placement.first_device(sources[value]) if value in sources else _host()
            by_home[home].append(value)
    leading, avals = placement.leading_struct, program.avals
    firsts = [
        (values, machine.compilation.add(_firsts, [leading(avals[v], home) for v in values]))
        for home, values in by_home.items()
    ]

    def run(values: Values) -> list[jax.Array]:
        arrays = {value: values[value, HOST] for value in outputs}
        for group, first in firsts:
            rows = first(*(placement.leading(arrays[value].array) for value in group))
            arrays.update(zip(group, jax.device_put(rows, device), strict=True))
        for value, process in kept.items():
            arrays[value] = held(process, avals[value], arrays.get(value))
        return [arrays[value] for value in machine.program.outputs]

    return run


def host_call(machine: Machine, node: ir.HostCall) -> Callable[[Values, Session], None]:
    """Runs a kernel on the host: for each replica, or with the values of the first.

    Where replicas are in several processes, that of the first one runs it then, and tells others.
    """
    placement, host = machine.placement, _host()
    is_shared = node.once or placement.replicas == 1
    own = [placement.replicas > 1 and value not in machine.shared for value in node.reads]
    replicas = len(placement.own) if placement.replicas > 1 else 0
    function = _for_replicas(node.kernel.jaxpr, replicas, own, is_shared=is_shared)
    structs = [
        _host_struct(machine, value, is_own=is_own, is_shared=is_shared)
        for value, is_own in zip(node.reads, own, strict=True)
    ]
    kernel = machine.compilation.add(function, structs)
    reads = [(value, HOST) for value in node.reads]
    writes = [(value, HOST) for value in node.writes]

    def operand(value: jax.Array | PerReplica) -> jax.Array | np.ndarray:
        if not isinstance(value, PerReplica):
            return value
        return placement.leading(value.array) if is_shared else value.array

    forms = [Form.of(struct_of(shape_of(aval), aval, None)) for aval in node.kernel.jaxpr.out_avals]

    def computed(values: Values) -> list[jax.Array]:
        operands = [operand(values[place]) for place in reads]
        if not _is_at_home(placement):
            operands = jax.device_put(operands, host)
        with jax.default_device(host):
            return kernel(*operands)

    def run(values: Values, session: Session) -> None:
        del session
        if not (is_shared and placement.spans_processes):
            results = computed(values)
        else:
            if placement.own[0] == 0:
                told = [raw(result) for result in computed(values)]
            else:
                told = [np.zeros(form.raw.shape, form.raw.dtype) for form in forms]
            firsts = [jax.device_put(of_all(each)[0], host) for each in told]
            results = [form.restored(y) for form, y in zip(forms, firsts, strict=True)]
        kept = results if is_shared else [PerReplica(_dealt(y, placement)) for y in results]
        values.update(zip(writes, kept, strict=True))

    return run


def _host() -> Device:
    return jax.local_devices(backend="cpu")[0]


def _dealt(array: jax.Array, placement: Placement) -> jax.Array | np.ndarray:
    """An array of all replicas, as transfers deal it out without help of XLA's."""
    may_be_dealt = placement.spread and is_number(array.dtype)
    return np.asarray(array) if may_be_dealt else array


def _is_at_home(placement: Placement) -> bool:
    """Whether the program runs on the host, on arrays that are committed to no device."""
    return placement.is_default and placement.devices[0] == _host()


def _firsts(*rows: jax.Array) -> list[jax.Array]:
    return [row[0] for row in rows]


def _host_struct(
    machine: Machine, value: ir.ValueId, *, is_own: bool, is_shared: bool
) -> jax.ShapeDtypeStruct:
    aval, host = machine.program.avals[value], _host()
    if is_own and is_shared:
        return machine.placement.leading_struct(aval, host)
    lead = (len(machine.placement.own),) if is_own else ()
    home = None if _is_at_home(machine.placement) else SingleDeviceSharding(host)
    return struct_of((*lead, *aval.shape), aval, home)


def _for_replicas(
    closed: jaxpr.ClosedJaxpr, replicas: int, own: Sequence[bool], *, is_shared: bool
) -> Callable[..., list[jax.Array]]:
    """A host call as a function of operands of which some differ between replicas."""

    def function(*operands: jax.Array) -> list[jax.Array]:
        return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

    if not replicas:
        return function
    axes = tuple(0 if is_own and not is_shared else None for is_own in own)
    axis = ops.REPLICAS
    every = jax.vmap(function, axes, axis_name=axis, axis_size=replicas)
    if not is_shared:
        return every

    def once(*operands: jax.Array) -> list[jax.Array]:
        firsts = [x[0] if is_own else x for x, is_own in zip(operands, own, strict=True)]
        return [y[0] for y in every(*firsts)]

    return once
