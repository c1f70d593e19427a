"""The Program: a Poplar-like tree for the whole system of IPUs, in frozen data.

Values are in single-assignment form and numbered over the whole program; bodies of control flow
read the values around them directly. A value lives on the IPU that writes it and wherever a
`Copy` has put it. Arguments, constants and results live on the host (`units.HOST`): a copy from
the host broadcasts to every replica; a result is replica 0's value.

    leaves     Execute, Copy, Load, Store, StreamIn, StreamOut, HostCall; Send, Receive
    branches   Sequence, Task, Repeat, Pipeline, While, Switch
"""

from __future__ import annotations

import dataclasses as dc
from typing import Any

from lowering.ground import IpuId, ValueId
from lowering.jaxprs import Aval, ClosedJaxpr, dtype_name, shape_of
from lowering.ops import Infeed, Outfeed, Storage, TaskSpec
from lowering.schedules import Schedule


@dc.dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kernel:
    """A piece of the traced function that runs as one XLA computation on one IPU.

    Attributes:
      jaxpr: equations without constants; takes and gives one array per value.
      origin: the user's `file:line` of its first equation, kept for errors and reports.
    """

    jaxpr: ClosedJaxpr
    origin: str = ""


@dc.dataclass(frozen=True, slots=True)
class Execute:
    """Runs a kernel on one IPU."""

    kernel: Kernel
    ipu: IpuId
    reads: tuple[ValueId, ...]
    writes: tuple[ValueId, ...]


@dc.dataclass(frozen=True, slots=True)
class Copy:
    """Copies values that live on `source` to `target`, where they then live too."""

    values: tuple[ValueId, ...]
    source: IpuId
    target: IpuId


@dc.dataclass(frozen=True, slots=True)
class Send:
    """Hands values to another process; only in parts of programs, see `part_of_process`.

    Attributes:
      process: the process that gets them.
      channel: the number of the `Receive` there, which runs as often as this step.
    """

    values: tuple[ValueId, ...]
    source: IpuId
    process: int
    channel: int


@dc.dataclass(frozen=True, slots=True)
class Receive:
    """Takes values from another process, which then live on `target`; see `Send`."""

    values: tuple[ValueId, ...]
    target: IpuId
    process: int
    channel: int


@dc.dataclass(frozen=True, slots=True)
class Store:
    """Stores a value until a `Load`; `kept` names the stored value."""

    value: ValueId
    kept: ValueId
    ipu: IpuId
    storage: Storage


@dc.dataclass(frozen=True, slots=True)
class Load:
    """Brings back a value that a `Store` has stored."""

    kept: ValueId
    value: ValueId
    ipu: IpuId
    storage: Storage


@dc.dataclass(frozen=True, slots=True)
class StreamIn:
    """Takes the next element of a queue (the next `count` stacked, if that is not None).

    Attributes:
      loop: the pytree structure of the user's loop around it, as in `Repeat`.
    """

    queue: Infeed
    ipu: IpuId
    writes: tuple[ValueId, ...]
    count: int | None = None
    origin: str = ""
    loop: Any = None


@dc.dataclass(frozen=True, slots=True)
class StreamOut:
    """Sends an element to a queue (`count` stacked ones, if that is not None).

    Attributes:
      structure: the pytree structure of the element, whose leaves are `reads`.
    """

    queue: Outfeed
    ipu: IpuId
    reads: tuple[ValueId, ...]
    structure: Any
    count: int | None = None
    origin: str = ""


@dc.dataclass(frozen=True, slots=True)
class HostCall:
    """Runs a kernel on the host, between two device segments.

    Attributes:
      once: whether the call is made for the first replica only, whose results all replicas get, as
        in an `outside_compilation_scope`; otherwise each replica has a call of its own.
    """

    name: str
    kernel: Kernel
    reads: tuple[ValueId, ...]
    writes: tuple[ValueId, ...]
    once: bool = False


@dc.dataclass(frozen=True, slots=True)
class Sequence:
    """Steps, one after the other; neighbours that share no value may overlap."""

    steps: tuple[Node, ...]


@dc.dataclass(frozen=True, slots=True)
class Carry:
    """A loop variable: four names for one buffer on one IPU.

    Attributes:
      initial: the value before the loop.
      entering: the value that the body (and the condition) reads.
      leaving: the value that the body computes.
      final: the value after the loop.
    """

    initial: ValueId
    entering: ValueId
    leaving: ValueId
    final: ValueId
    ipu: IpuId


@dc.dataclass(frozen=True, slots=True)
class Slice:
    """A loop input: iteration i reads `stacked[i]` as `element`."""

    stacked: ValueId
    element: ValueId
    ipu: IpuId


@dc.dataclass(frozen=True, slots=True)
class Stack:
    """A loop output: iteration i writes `element` to `stacked[i]`."""

    element: ValueId
    stacked: ValueId
    ipu: IpuId


@dc.dataclass(frozen=True, slots=True)
class Fifo:
    """Values of a stage that wait for a later task of it while other micro-batches pass.

    Attributes:
      depth: the most micro-batches that wait, the one being worked on not counted.
    """

    stage: int
    values: tuple[ValueId, ...]
    ipu: IpuId
    depth: int


@dc.dataclass(frozen=True, slots=True)
class Task:
    """A phase of a pipeline stage; all later steps see the values that its steps write."""

    spec: TaskSpec
    body: Sequence
    origin: str = ""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Runs its body `count` times, or as often as the value `trips` says when the loop starts.

    Attributes:
      count: the static number of iterations; None where `trips` holds it.
      reverse: the iterations run from the last slice to the first.
      loop: the pytree structure of a user's loop variables, for the error that a data set's end
        raises; None for loops that are not the user's own.
      names: what the user calls these variables, where that is known.
      single: if an iteration takes several elements of a queue, the same loop (with the same
        variables, in the same order) that takes them one by one, for when no more are there.
    """

    count: int | None
    trips: ValueId | None = None
    body: Sequence
    carry: tuple[Carry, ...]
    slices: tuple[Slice, ...] = ()
    stacks: tuple[Stack, ...] = ()
    reverse: bool = False
    loop: Any = None
    names: tuple[str, ...] = ()
    single: Repeat | None = None
    origin: str = ""


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Runs its body once for each micro-batch of a schedule, which says how they overlap.

    Attributes:
      name: the user's name for it.
      body: tasks, and copies before them.
      carry: buffers that a task adds to, or values that the last micro-batch leaves.
      fifos: values that wait between tasks.
      variables: names of the first entries of `carry`, see `PipelineSpec`.
      counters: entering values of `carry` that are the number of the micro-batch. Where these run
        one after the other, they count.
    """

    name: str
    schedule: Schedule
    body: Sequence
    carry: tuple[Carry, ...]
    fifos: tuple[Fifo, ...] = ()
    origin: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    counters: tuple[ValueId, ...] = ()


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class While:
    """Runs its body as long as `condition` leaves true in `predicate`.

    Attributes:
      loop: as in `Repeat`; the user's loop variables come after one that counts.
    """

    condition: Sequence
    predicate: ValueId
    body: Sequence
    carry: tuple[Carry, ...]
    loop: Any = None
    origin: str = ""


@dc.dataclass(frozen=True, slots=True)
class Branch:
    """One branch of a `Switch`, and the values that it leaves."""

    body: Sequence
    results: tuple[ValueId, ...]


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Runs the branch that `index` selects (clamped); its results become `writes`."""

    index: ValueId
    branches: tuple[Branch, ...]
    writes: tuple[ValueId, ...]
    ipus: tuple[IpuId, ...]
    origin: str = ""


Node = (
    Execute
    | Copy
    | Load
    | Store
    | StreamIn
    | StreamOut
    | HostCall
    | Send
    | Receive
    | Sequence
    | Task
    | Repeat
    | Pipeline
    | While
    | Switch
)


@dc.dataclass(frozen=True, slots=True)
class Fault:
    """A floating-point fault that a program watches for: its kind, the operation, the line."""

    kind: str
    primitive: str
    origin: str


@dc.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole program for `replicas` copies of `ipus` IPUs.

    Attributes:
      avals: shape and dtype of every value; a `ValueId` is an index into it.
      inputs: the arguments, flattened; they live on the host.
      constants: closed-over arrays with their values; they live on the host.
      outputs: the results, flattened; any value that lives on the host at the end.
      ipus: IPUs of one replica: the shards used, rounded up to a power of two.
      replicas: the number of replicas of all instances together.
      instances: the number of processes, each of which runs as many replicas.
      faults: if any are watched for, the last output is 0 or 1 + the index of the one that
        happened first.
      draws: whether it draws from the device's seed, which then is its last input: uint32[4], see
        `lowering.ops.draws`.
      emulates: whether it computes what the machine does by itself: number formats, and faults.
    """

    name: str
    avals: tuple[Aval, ...]
    inputs: tuple[ValueId, ...]
    constants: tuple[tuple[ValueId, Any], ...]
    body: Sequence
    outputs: tuple[ValueId, ...]
    ipus: int
    replicas: int
    instances: int = 1
    faults: tuple[Fault, ...] = ()
    draws: bool = False
    emulates: bool = False

    @property
    def num_local_replicas(self) -> int:
        """The number of replicas of one instance, which share their stored values."""
        return self.replicas // self.instances

    def __repr__(self) -> str:
        """Returns one line; `to_text` returns the whole text."""
        return f"Program({self.name}: {self.replicas} x {self.ipus} IPUs)"

    def describe_aval(self, value: ValueId) -> str:
        """Returns the shape and dtype of a value, as `float32[2,3]`."""
        aval = self.avals[value]
        return f"{dtype_name(aval)}[{','.join(map(str, shape_of(aval)))}]"
