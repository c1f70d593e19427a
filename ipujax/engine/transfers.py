"""What the part of a program that one process runs has from the others, and gives them."""

from __future__ import annotations

import dataclasses as dc
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ipujax.distribution.exchange import Exchange, Sent
from ipujax.distribution.holding import may_be_held
from ipujax.engine.iterations import typed
from ipujax.engine.placement import PerReplica, Placement
from ipujax.engine.storage import load
from ipujax.errors import DistributionError
from lowering import HOST, Part, ir, part_of

if TYPE_CHECKING:
    from ipujax.engine.loops import Values
    from ipujax.engine.replay import Machine
    from ipujax.host.session import Session

_readers: weakref.WeakKeyDictionary[Any, tuple[str, int]] = weakref.WeakKeyDictionary()
"""Which program was the first to read an infeed, and in which process."""


@dc.dataclass(frozen=True)
class Apart:
    """What of a program's arguments and results one process alone has.

    Attributes:
      arguments: flat ones, by their numbers, and the process that has each.
      results: so many flat ones, the first, may stay where they are; others are brought to all.
    """

    arguments: Mapping[int, int] = dc.field(default_factory=dict[int, int])
    results: int = 0


TOGETHER = Apart()
"""Every process has all of them."""


def part_here(program: ir.Program, placement: Placement, apart: Apart) -> Part:
    """The part of a program that this process runs; all of it, if its IPUs are all here.

    Raises:
      DistributionError: (a `ValueError`) an infeed that another process has read from.
    """
    if not placement.processes:
        return Part(program, {})
    for queue in ir.queues(program, ir.StreamIn):
        _check_reader(queue, program, placement)
    among = placement.among
    held = {program.inputs[number]: process for number, process in apart.arguments.items()}
    staying = [v for v in program.outputs[: apart.results] if may_be_held(program.avals[v])]
    return part_of(program, placement.processes, among.count, among.index, held, staying)


def _check_reader(queue: Any, program: ir.Program, placement: Placement) -> None:
    """Each process has a data set of its own behind an infeed, and one of them is read."""
    nodes = (n for n in ir.walk(program.body) if isinstance(n, ir.StreamIn) and n.queue == queue)
    process = placement.processes[next(nodes).ipu]
    first, reader = _readers.setdefault(queue, (program.name, process))
    if process != reader:
        raise DistributionError(
            f"`{program.name}` reads infeed `{queue.name}` in instance {process}, and `{first}` "
            f"reads it in instance {reader}, each from its own beginning",
            fix="give each program an infeed of its own, or have both read it on the same IPU",
        )


def exchange_of(program: ir.Program, placement: Placement) -> Exchange | None:
    """What the processes of a program tell one another; None if its IPUs are all here."""
    if not placement.processes:
        return None
    nodes = [node for node in ir.walk(program.body) if isinstance(node, ir.StreamOut)]
    sent = [
        Sent(
            node.queue,  # pyright: ignore[reportArgumentType]
            node.structure,
            tuple(program.avals[value] for value in node.reads),
        )
        for node in nodes
    ]
    return Exchange(placement.among, sent, placement.replicas)


def send(machine: Machine, node: ir.Send) -> Callable[[Values, Session], None]:
    """Hands values to another process."""
    del machine
    places = [(value, node.source) for value in node.values]

    def run(values: Values, session: Session) -> None:
        arrays = [raw(load(values[place])) for place in places]
        session.exchanged.send(node.process, node.channel, arrays)

    return run


class Receiving:
    """Takes values from another process."""

    def __init__(self, machine: Machine, node: ir.Receive):
        self.node, self.placement = node, machine.placement
        has_axis, avals = machine.placement.replicas > 1, machine.program.avals
        self.places = [(value, node.target) for value in node.values]
        self.is_own = [value not in machine.shared and has_axis for value in node.values]
        self.forms = [
            Form.of(machine.placement.struct(avals[value], 0, 0 if own else None))
            for value, own in zip(node.values, self.is_own, strict=True)
        ]
        self.message = node.process, node.channel, [form.raw for form in self.forms]

    def expect(self, session: Session, count: int) -> None:
        """So many times it will run: it may be given values ahead of that."""
        session.exchanged.expect(*self.message, count)

    def __call__(self, values: Values, session: Session) -> None:
        """Waits for the values."""
        arrays = session.exchanged.receive(*self.message)
        arrived = map(self._arrived, arrays, self.forms, self.is_own)
        values.update(zip(self.places, arrived, strict=True))

    def _arrived(self, words: jax.Array, form: Form, own: bool) -> jax.Array | PerReplica:
        array = form.restored(words)
        held = PerReplica(array) if own else array
        is_on_host = self.node.target == HOST
        return held if is_on_host else self.placement.to_device(held, self.node.target)


def raw(value: Any) -> Any:
    """An array of numbers: keys of random numbers travel as their words."""
    array = value.array if isinstance(value, PerReplica) else value
    return jax.random.key_data(array) if _holds_keys(array) else array


def _holds_keys(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


@dc.dataclass(frozen=True)
class Form:
    """What an array is made of again where it arrives.

    Attributes:
      raw: what travels.
      is_weak: whether its type is weak.
      algorithm: of random numbers, whose keys it holds.
    """

    raw: jax.ShapeDtypeStruct
    is_weak: bool = False
    algorithm: Any = None

    @classmethod
    def of(cls, struct: jax.ShapeDtypeStruct) -> Form:
        """That of an array as XLA is told of it."""
        if not _holds_keys(struct):
            return cls(struct, struct.weak_type)
        algorithms: list[Any] = []

        def words(keys: jax.Array) -> jax.Array:
            algorithms.append(jax.random.key_impl(keys))
            return jax.random.key_data(keys)

        return cls(jax.eval_shape(words, struct), algorithm=algorithms[0])

    def restored(self, array: jax.Array) -> jax.Array:
        """The array that has travelled, as it was."""
        if self.algorithm is not None:
            return jax.random.wrap_key_data(array, impl=self.algorithm)
        return typed(array, is_weak=True) if self.is_weak else array
