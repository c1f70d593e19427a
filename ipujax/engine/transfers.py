"""The transfers between the parts of one program that run in several processes."""

from __future__ import annotations

import dataclasses as dc
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ipujax.distribution import Exchange, SentOutfeed, can_be_held_by_one_process
from ipujax.engine.device_placement import PerReplica, Placement
from ipujax.engine.remote_storage import load_stored_value
from ipujax.ground import DistributionError
from lowering import HOST, Part, ir, part_of_process, set_weak_type

if TYPE_CHECKING:
    from ipujax.engine.loop_steps import Values
    from ipujax.engine.queue_session import Session
    from ipujax.engine.replay import Machine

_readers: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()
"""The program that first read an infeed, and its process."""


@dc.dataclass(frozen=True)
class Apart:
    """The arguments and results of a program that only one process holds.

    Attributes:
      arguments: flat ones, by their numbers, and the process that has each.
      results: so many flat ones, the first, may stay where they are; others are brought to all.
    """

    arguments: Mapping[int, int] = dc.field(default_factory=dict[int, int])
    results: int = 0


TOGETHER = Apart()
"""Every process holds all arguments and results."""


def local_program_part(program: ir.Program, placement: Placement, apart: Apart) -> Part:
    """Returns the part of a program that this process runs.

    Raises:
      DistributionError: (a `ValueError`) an infeed that another process has read from.
    """
    if not placement.process_of_ipu:
        return Part(program, {})
    for queue in ir.queues_of_program(program, ir.StreamIn):
        _check_infeed_reader_process(queue, program, placement)
    among = placement.instance
    process_of_input = {
        program.inputs[number]: process for number, process in apart.arguments.items()
    }
    staying = [
        v for v in program.outputs[: apart.results] if can_be_held_by_one_process(program.avals[v])
    ]
    return part_of_process(
        program, placement.process_of_ipu, among.count, among.index, process_of_input, staying
    )


def _check_infeed_reader_process(queue: Any, program: ir.Program, placement: Placement) -> None:
    """Raises an error if another process has read from an infeed: each has its own data set."""
    nodes = (
        n for n in ir.walk_nodes(program.body) if isinstance(n, ir.StreamIn) and n.queue == queue
    )
    process = placement.process_of_ipu[next(nodes).ipu]
    first, reader = _readers.setdefault(queue, (program.name, process))
    if process != reader:
        raise DistributionError(
            f"`{program.name}` reads infeed `{queue.name}` in instance {process}, and `{first}` "
            f"reads it in instance {reader}, each from its own beginning",
            fix="give each program an infeed of its own, or have both read it on the same IPU",
        )


def build_exchange(program: ir.Program, placement: Placement) -> Exchange | None:
    """Builds the exchange of values between a program's processes; None for one process."""
    if not placement.process_of_ipu:
        return None
    # Copies of a stage may send to one outfeed.
    node_of_queue = {n.queue: n for n in ir.walk_nodes(program.body) if isinstance(n, ir.StreamOut)}
    sent = [
        SentOutfeed(
            node.queue,  # pyright: ignore[reportArgumentType]
            node.structure,
            tuple(program.avals[value] for value in node.reads),
        )
        for node in node_of_queue.values()
    ]
    return Exchange(placement.instance, sent, placement.replicas)


def build_send(machine: Machine, node: ir.Send) -> Callable[[Values, Session], None]:
    """Builds the step that sends values to another process."""
    del machine
    source_keys = [(value, node.source) for value in node.values]

    def run_send(values: Values, session: Session) -> None:
        arrays = [
            convert_keys_to_numbers(load_stored_value(values[source_key]))
            for source_key in source_keys
        ]
        session.exchange_run.send_arrays(node.channel, arrays)

    return run_send


class Receiving:
    """The step that receives values from another process."""

    def __init__(self, machine: Machine, node: ir.Receive):
        self.node, self.placement = node, machine.placement
        has_axis, avals = machine.placement.replicas > 1, machine.program.avals
        self.places = [(value, node.target) for value in node.values]
        self.is_own = [value not in machine.shared and has_axis for value in node.values]
        self.forms = [
            Form.describe_array(
                machine.placement.array_struct(avals[value], 0, 0 if is_per_replica else None)
            )
            for value, is_per_replica in zip(node.values, self.is_own, strict=True)
        ]
        self.message = node.process, node.channel, [form.raw for form in self.forms]

    def announce_messages(self, session: Session, count: int) -> None:
        """Announces how many times the step will run, so that values may be sent ahead."""
        session.exchange_run.announce_receiving_arrays(*self.message, count)

    def __call__(self, values: Values, session: Session) -> None:
        """Waits for the values."""
        arrays = session.exchange_run.receive_arrays(*self.message)
        arrived = map(self._restore_and_place, arrays, self.forms, self.is_own)
        values.update(zip(self.places, arrived, strict=True))

    def _restore_and_place(
        self, words: jax.Array, form: Form, is_per_replica: bool
    ) -> jax.Array | PerReplica:
        array = form.restore_array(words)
        host_value = PerReplica(array) if is_per_replica else array
        is_on_host = self.node.target == HOST
        if is_on_host:
            return host_value
        return self.placement.move_to_ipu([host_value], self.node.target)[0]


def convert_keys_to_numbers(value: Any) -> Any:
    """Returns an array as plain numbers: random keys become their key data."""
    array = value.array if isinstance(value, PerReplica) else value
    return jax.random.key_data(array) if _holds_keys(array) else array


def _holds_keys(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


@dc.dataclass(frozen=True)
class Form:
    """The dtype and the kind of random keys with which a received array is restored.

    Attributes:
      raw: the shape and dtype of the numbers that are sent.
      is_weak: whether its type is weak.
      algorithm: the algorithm of the random keys that it holds, or None.
    """

    raw: jax.ShapeDtypeStruct
    is_weak: bool = False
    algorithm: Any = None

    @classmethod
    def describe_array(cls, struct: jax.ShapeDtypeStruct) -> Form:
        """Describes the form of an array from its shape, dtype and sharding."""
        if not _holds_keys(struct):
            return cls(struct, struct.weak_type)
        algorithms: list[Any] = []

        def key_words(keys: jax.Array) -> jax.Array:
            algorithms.append(jax.random.key_impl(keys))
            return jax.random.key_data(keys)

        return cls(jax.eval_shape(key_words, struct), algorithm=algorithms[0])

    def restore_array(self, array: jax.Array) -> jax.Array:
        """Restores an array from the numbers that were sent."""
        if self.algorithm is not None:
            return jax.random.wrap_key_data(array, impl=self.algorithm)
        return set_weak_type(array, is_weak=True) if self.is_weak else array
