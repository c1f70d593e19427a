"""The host side of a program run: its arguments, its results, and its host calls.

On the host, a value that all replicas share is an array, and a value of each replica is a
`PerReplica`. This is known for each value before the program runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from ipujax.distribution import gather_from_processes, make_held_array, process_holding_array
from ipujax.engine.device_placement import Device, PerReplica, Placement, make_shape_struct
from ipujax.engine.task_compilation import Compiled
from ipujax.engine.transfers import Form, convert_keys_to_numbers
from lowering import HOST, ir, is_numeric_dtype, jaxpr, ops, shape_of

if TYPE_CHECKING:
    from ipujax.engine.loop_steps import Values
    from ipujax.engine.queue_session import Session
    from ipujax.engine.replay import Machine


def find_host_values_shared_by_replicas(program: ir.Program) -> frozenset[ir.ValueId]:
    """Returns the host values that are the same for all replicas."""
    calls = (node for node in ir.walk_nodes(program.body) if isinstance(node, ir.HostCall))
    results = (value for node in calls if node.once for value in node.writes)
    return frozenset((*program.inputs, *(value for value, _ in program.constants), *results))


class Arguments:
    """The arguments of a program on their way to its devices.

    Args:
      machine: runs the program.
      donated: which of them the program may overwrite.
    """

    def __init__(self, machine: Machine, donated: Sequence[int]):
        apart, process_index = machine.apart.arguments, machine.placement.instance.index
        self.keeps_shards = machine.placement.has_meshes
        self.held = [number for number, process in apart.items() if process == process_index]
        self.donated = [
            number for number in donated if apart.get(number, process_index) == process_index
        ]
        avals = [machine.program.avals[machine.program.inputs[n]] for n in self.donated]
        structs = [make_shape_struct(aval.shape, aval, None) for aval in avals]
        self.device = jax.local_devices()[0]
        self._take_over: Compiled | None = None
        if self.donated:
            self._take_over = machine.compilation.add_function(
                _return_arrays_unchanged, [structs], donate_argnums=0
            )

    def __call__(self, arguments: Sequence[Any]) -> list[jax.Array]:
        """Returns the arguments as JAX arrays that nobody else writes to.

        NumPy's, which their owner may write to, are copied; donated ones are taken from theirs.
        Those that another process has are left as they are.
        """
        arrays = list(arguments)
        for number in self.held:
            if not self.keeps_shards and process_holding_array(arrays[number]) is not None:
                arrays[number] = arrays[number].addressable_data(0)
        non_jax_numbers = [n for n, array in enumerate(arrays) if not isinstance(array, jax.Array)]
        if non_jax_numbers:
            copies = jax.device_put([_copy_if_numpy(arrays[n]) for n in non_jax_numbers])
            for number, copy in zip(non_jax_numbers, copies, strict=True):
                arrays[number] = copy
        if self.donated:
            donated_arrays = self._take_over_buffers(self._list_donated(arrays))
            for number, array in zip(self.donated, donated_arrays, strict=True):
                arrays[number] = array
        return arrays

    def _list_donated(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Lists the donated arguments; of one that is given more than once, copies."""
        donated = [arrays[number] for number in self.donated]
        times_given = Counter(map(id, arrays))
        if len(times_given) == len(arrays):
            return donated
        return [jnp.copy(array) if times_given[id(array)] > 1 else array for array in donated]

    def _take_over_buffers(self, arrays: list[jax.Array]) -> list[jax.Array]:
        """Moves the buffers of donated arguments into new arrays; the old arrays are deleted."""
        if self._take_over is not None and not any(x.committed for x in arrays):
            return self._take_over.run_on_uncommitted_arrays(arrays)
        if self._take_over is not None and all(x.devices() == {self.device} for x in arrays):
            return self._take_over(arrays)
        numbers_of_devices: defaultdict[frozenset[Device], list[int]] = defaultdict(list)
        for number, array in enumerate(arrays):
            numbers_of_devices[frozenset(array.devices())].append(number)
        for numbers in numbers_of_devices.values():
            moved = _take_over_from_any_device([arrays[number] for number in numbers])
            for number, array in zip(numbers, moved, strict=True):
                arrays[number] = array
        return arrays


def _copy_if_numpy(argument: Any) -> Any:
    """Copies a NumPy array; returns Python numbers as they are, so that they stay weakly typed."""
    return np.array(argument) if isinstance(argument, np.ndarray) else argument


def _return_arrays_unchanged(arrays: list[jax.Array]) -> list[jax.Array]:
    return arrays


_take_over_from_any_device = jax.jit(_return_arrays_unchanged, donate_argnums=0)


def build_result_reader(machine: Machine) -> Callable[[Values], list[jax.Array]]:
    """Builds the function that reads a program's results from its values, of replica 0.

    Other processes get arrays without data for results that one process holds: see
    `make_held_array`.
    """
    program, placement, results_elsewhere = machine.part, machine.placement, machine.kept
    outputs = program.outputs
    copies = (n for n in ir.walk_nodes(program.body) if isinstance(n, ir.Copy) and n.target == HOST)
    sources = {value: node.source for node in copies for value in node.values}
    values_by_device: dict[Device, list[ir.ValueId]] = defaultdict(list)  # where replica 0 has them
    for value in dict.fromkeys(outputs):
        if placement.replicas > 1 and value not in machine.shared:
            device_of_group = (
                placement.first_device(sources[value]) if value in sources else _first_host_device()
            )
            values_by_device[device_of_group].append(value)
    leading, avals = placement.first_replica_struct, program.avals
    firsts = [
        (
            values,
            machine.compilation.add_function(
                _take_first_rows, [leading(avals[v], home) for v in values]
            ),
        )
        for home, values in values_by_device.items()
    ]

    def read_results(values: Values) -> list[jax.Array]:
        arrays = {value: values[value, HOST] for value in outputs}
        for group, first in firsts:
            rows = first(*(placement.take_first_replica(arrays[value].array) for value in group))
            if placement.gather:
                rows = placement.gather_results(rows)
            arrays.update(zip(group, rows, strict=True))
        for value, process in results_elsewhere.items():
            arrays[value] = make_held_array(process, avals[value], arrays.get(value))
        return [arrays[value] for value in machine.program.outputs]

    return read_results


def build_host_call(machine: Machine, node: ir.HostCall) -> Callable[[Values, Session], None]:
    """Builds the step that runs a kernel on the host: once, or for each replica.

    Where replicas are in several processes, that of the first one runs it then, and tells others.
    """
    placement, host = machine.placement, _first_host_device()
    is_shared = node.once or placement.replicas == 1
    is_per_replica = [
        placement.replicas > 1 and value not in machine.shared for value in node.reads
    ]
    replicas = len(placement.replicas_of_process) if placement.replicas > 1 else 0
    function = _build_call_for_replicas(
        node.kernel.jaxpr, replicas, is_per_replica, is_shared=is_shared
    )
    structs = [
        _host_value_struct(machine, value, is_own=is_own, is_shared=is_shared)
        for value, is_own in zip(node.reads, is_per_replica, strict=True)
    ]
    kernel = machine.compilation.add_function(function, structs)
    reads = [(value, HOST) for value in node.reads]
    writes = [(value, HOST) for value in node.writes]

    def load_operand(value: jax.Array | PerReplica) -> jax.Array | np.ndarray:
        if not isinstance(value, PerReplica):
            return value
        return placement.take_first_replica(value.array) if is_shared else value.array

    forms = [
        Form.describe_array(make_shape_struct(shape_of(aval), aval, None))
        for aval in node.kernel.jaxpr.out_avals
    ]

    def compute_on_host(values: Values) -> list[jax.Array]:
        operands = [load_operand(values[value_key]) for value_key in reads]
        if not _runs_on_host(placement):
            operands = jax.device_put(operands, host)
        with jax.default_device(host):
            return kernel(*operands)

    def run_host_call(values: Values, session: Session) -> None:
        del session
        if not (is_shared and placement.spans_processes):
            results = compute_on_host(values)
        else:
            if placement.replicas_of_process[0] == 0:
                words = [convert_keys_to_numbers(result) for result in compute_on_host(values)]
            else:
                words = [np.zeros(form.raw.shape, form.raw.dtype) for form in forms]
            firsts = [jax.device_put(gather_from_processes(array)[0], host) for array in words]
            results = [form.restore_array(y) for form, y in zip(forms, firsts, strict=True)]
        host_values = (
            results
            if is_shared
            else [PerReplica(_to_numpy_if_spread(y, placement)) for y in results]
        )
        values.update(zip(writes, host_values, strict=True))

    return run_host_call


def _first_host_device() -> Device:
    return jax.local_devices(backend="cpu")[0]


def _to_numpy_if_spread(array: jax.Array, placement: Placement) -> jax.Array | np.ndarray:
    """Returns an array of all replicas in the form from which transfers split it per replica."""
    may_be_dealt = placement.spread and is_numeric_dtype(array.dtype)
    return np.asarray(array) if may_be_dealt else array


def _runs_on_host(placement: Placement) -> bool:
    """Returns whether the program runs on the host, on arrays committed to no device."""
    return placement.is_default and placement.devices[0] == _first_host_device()


def _take_first_rows(*rows: jax.Array) -> list[jax.Array]:
    return [row[0] for row in rows]


def _host_value_struct(
    machine: Machine, value: ir.ValueId, *, is_own: bool, is_shared: bool
) -> jax.ShapeDtypeStruct:
    aval, host = machine.program.avals[value], _first_host_device()
    if is_own and is_shared:
        return machine.placement.first_replica_struct(aval, host)
    lead = (len(machine.placement.replicas_of_process),) if is_own else ()
    home = None if _runs_on_host(machine.placement) else SingleDeviceSharding(host)
    return make_shape_struct((*lead, *aval.shape), aval, home)


def _build_call_for_replicas(
    closed: jaxpr.ClosedJaxpr, replicas: int, is_per_replica: Sequence[bool], *, is_shared: bool
) -> Callable[..., list[jax.Array]]:
    """Builds the function of a host call whose operands may differ between replicas."""

    def run_for_one(*operands: jax.Array) -> list[jax.Array]:
        return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

    if not replicas:
        return run_for_one
    axes = tuple(0 if is_own and not is_shared else None for is_own in is_per_replica)
    axis = ops.REPLICAS
    every = jax.vmap(run_for_one, axes, axis_name=axis, axis_size=replicas)
    if not is_shared:
        return every

    def run_for_first(*operands: jax.Array) -> list[jax.Array]:
        firsts = [x[0] if is_own else x for x, is_own in zip(operands, is_per_replica, strict=True)]
        return [y[0] for y in every(*firsts)]

    return run_for_first
