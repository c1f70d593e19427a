"""The placement of equations: mark > forward twin's > operands' > users' IPU, > IPU 0.

The IPU of an argument is that of its first reader that has one.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Sequence
from typing import Any

from lowering import marks
from lowering.ground import HOST, IpuId, OutsideCompilationError
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    equations_with_bodies,
    name_stack,
    size_of,
    sub_jaxprs,
    unique_variables,
    user_frames_key,
    user_line,
    walk_equations,
)
from lowering.ops import (
    ControlFlow,
    PipelineSpec,
    PlannedPipeline,
    is_control_flow,
    is_task,
    load_p,
    name_of_host_operation,
    repeat_p,
    store_p,
    uses_streams,
)

Home = IpuId | None
"""The IPU that writes a value; None for arguments and constants, which live on the host."""


@dc.dataclass(frozen=True, slots=True)
class PlacedBody:
    """A jaxpr whose equations have homes, the IPUs that run them.

    Attributes:
      jaxpr: the body.
      homes: one per equation; None for control flow that is split over IPUs or streams.
      bodies: the placed bodies of each split equation, by its index, in parameter order.
      results: the homes of each split equation's results, by its index.
      inputs: the home of each invar's operand.
      wanted: the home of each invar's operand, or else of its first reader.
      outputs: one home per outvar.
    """

    jaxpr: ClosedJaxpr
    homes: tuple[Home, ...]
    bodies: dict[int, tuple[PlacedBody, ...]]
    results: dict[int, tuple[Home, ...]]
    inputs: tuple[Home, ...]
    wanted: tuple[Home, ...]
    outputs: tuple[Home, ...]


def place(closed: ClosedJaxpr) -> PlacedBody:
    """Decides which IPU runs each equation.

    Args:
      closed: the whole function.

    Before: calls with marks, queues or host operations have been opened.
    After:  every equation has an IPU (or `HOST`), or is control flow whose bodies are placed.
    Raises: OutsideCompilationError for host operations inside control flow.
    """
    inputs = [None] * len(closed.jaxpr.invars)
    return _Placer(closed, "", inputs, _ShardsNamedInside(), is_top=True).place_body()


class _ShardsNamedInside:
    """A cache of the shards that a jaxpr names at any depth, since bodies are shared."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[int]] = {}

    def __call__(self, jaxpr: Jaxpr) -> frozenset[int]:
        key = id(jaxpr)
        if key not in self._known:
            marked_shards = (marks.read_marks(name_stack(eqn)).shard for eqn in jaxpr.eqns)
            shards_of_bodies = map(self.shards_in_bodies_of, equations_with_bodies(jaxpr))
            self._known[key] = frozenset(s for s in marked_shards if s is not None).union(
                *shards_of_bodies
            )
        return self._known[key]

    def shards_in_bodies_of(self, eqn: JaxprEqn) -> frozenset[int]:
        """Returns the shards that an equation's bodies name."""
        bodies = sub_jaxprs(eqn)
        return frozenset[int]().union(*map(self, bodies)) if bodies else frozenset()


def find_used_shards(closed: ClosedJaxpr) -> frozenset[int]:
    """Returns every shard that a mark names in a jaxpr, or that a pipeline has stages on.

    A stage that only passes values on has no operations, but its IPU is in use.
    """
    stages = (ipu for spec in _pipeline_specs(closed.jaxpr) for ipus in spec.ipus for ipu in ipus)
    return _ShardsNamedInside()(closed.jaxpr).union(stages)


def brings_ipus(closed: ClosedJaxpr) -> bool:
    """Returns whether a pipeline of a function asks for the IPUs that it needs."""
    specs = _pipeline_specs(closed.jaxpr)
    return any(isinstance(spec, PipelineSpec) and spec.brings_ipus for spec in specs)


def _pipeline_specs(jaxpr: Jaxpr) -> Iterator[PipelineSpec | PlannedPipeline]:
    specs = (eqn.params["pipeline"] for eqn in walk_equations(jaxpr) if eqn.primitive is repeat_p)
    return (spec for spec in specs if spec is not None)


def line_of_shard(jaxpr: Jaxpr, shard: int) -> str:
    """Returns the user's `file:line` of a pipeline or an equation with this shard, or ''."""
    for spec in _pipeline_specs(jaxpr):
        if any(shard in ipus for ipus in spec.ipus):
            return spec.origin
    eqns = (
        eqn for eqn in walk_equations(jaxpr) if marks.read_marks(name_stack(eqn)).shard == shard
    )
    return next((line for line in map(user_line, eqns) if line), "")


class _Placer:
    """The placement of one body: forward along the data, backward from users, then the rest."""

    def __init__(
        self,
        closed: ClosedJaxpr,
        enclosing_stack: str,
        inputs: Sequence[Home],
        shards: _ShardsNamedInside,
        is_top: bool = False,
    ):
        self.closed, self.enclosing, self.shards = closed, enclosing_stack, shards
        self.is_top = is_top
        self.eqns = closed.jaxpr.eqns
        self.inputs = tuple(inputs)
        pairs = zip(closed.jaxpr.invars, inputs, strict=True)
        self.home_of = {var: home for var, home in pairs if home is not None}
        self.homes: list[Home] = [None] * len(self.eqns)
        self.bodies: dict[int, tuple[PlacedBody, ...]] = {}
        self.results: dict[int, tuple[Home, ...]] = {}
        self.wants: dict[int, Sequence[Home]] = {}
        self.twins = _ForwardTwins()

    def place_body(self) -> PlacedBody:
        self.place_by_operands()
        self.place_by_readers()
        self.place_remaining()
        return self.build_placed_body()

    def place_by_operands(self) -> None:
        for index, eqn in enumerate(self.eqns):
            scopes = marks.read_marks(marks.join_name_stacks(self.enclosing, name_stack(eqn)))
            if self.is_split_over_ipus(eqn, scopes):
                self.place_bodies(index, eqn)
                continue
            home = self.home_by_mark(eqn, scopes)
            if home is None and scopes.backward:
                home = self.twins.home_of_twin(eqn)
            if home is None:
                home = self.home_of_largest_operand(eqn.invars)
            self.assign_home(index, eqn, home)
            if not scopes.backward and scopes.shard is None:
                self.twins.remember_forward_equation(eqn, home)

    def is_split_over_ipus(self, eqn: JaxprEqn, scopes: marks.Marks) -> bool:
        """Returns whether an equation is control flow on several IPUs, or seen by the host."""
        if is_task(eqn):
            return True
        if not is_control_flow(eqn) or scopes.outside is not None:
            return False
        _forbid_host_operations(eqn)
        if uses_streams(eqn) or eqn.primitive is repeat_p:
            return True
        return (
            any(map(_has_loads_or_stores, sub_jaxprs(eqn)))
            or len(self.shards.shards_in_bodies_of(eqn)) > 1
        )

    def home_by_mark(self, eqn: JaxprEqn, scopes: marks.Marks) -> Home:
        if scopes.outside is not None or (self.is_top and name_of_host_operation(eqn) is not None):
            return HOST
        if scopes.shard is not None:
            return IpuId(scopes.shard)
        inside = self.shards.shards_in_bodies_of(eqn)
        return IpuId(min(inside)) if inside else None

    def home_of_largest_operand(self, operands: Sequence[Atom]) -> Home:
        """Returns the home of the largest operand that has one."""
        placed_operands = [
            var for var in unique_variables(operands) if self.home_of.get(var, HOST) != HOST
        ]
        if len(placed_operands) < 2:
            return self.home_of[placed_operands[0]] if placed_operands else None
        return self.home_of[max(placed_operands, key=lambda var: size_of(var.aval))]

    def assign_home(self, index: int, eqn: JaxprEqn, home: Home) -> None:
        self.homes[index] = home
        if home is not None:
            self.home_of.update((var, home) for var in eqn.outvars)

    def place_bodies(self, index: int, eqn: JaxprEqn) -> None:
        """Places the bodies of control flow, given homes of operands; takes over their results'."""
        flow, operands = ControlFlow.view_of_equation(eqn), self.homes_of(eqn.invars)
        stack = marks.join_name_stacks(self.enclosing, name_stack(eqn))

        def place_nested_body(body_index: int, homes: Sequence[Home]) -> PlacedBody:
            return _Placer(flow.bodies[body_index], stack, homes, self.shards).place_body()

        numbers = range(int(flow.is_condition(0)), len(flow.bodies))
        bodies = [
            place_nested_body(number, flow.select_body_operands(number, operands))
            for number in numbers
        ]
        argument_homes = [
            _first_known_home(*homes)
            for homes in zip(*(body.wanted for body in bodies), strict=True)
        ]
        results = [
            _first_known_home(*homes)
            for homes in zip(*(body.outputs for body in bodies), strict=True)
        ]
        first, count = len(operands[flow.constants[-1]]), flow.num_loop_variables
        entering = argument_homes[first : first + count]
        # A loop variable lives where the body computes it, else where it is read or came from.
        homes = [
            _first_known_home(new, old) for new, old in zip(results[:count], entering, strict=True)
        ]
        argument_homes[first : first + count] = results[:count] = homes
        if flow.is_condition(0):
            constants = operands[flow.constants[0]]
            bodies.insert(0, place_nested_body(0, [*constants, *homes]))
            argument_homes[:0] = bodies[0].wanted[: len(constants)]
        self.bodies[index], self.results[index] = tuple(bodies), tuple(results)
        self.wants[index] = [*operands[: flow.constants[0].start], *argument_homes]
        pairs = zip(eqn.outvars, results, strict=True)
        self.home_of.update((var, home) for var, home in pairs if home is not None)

    def homes_of(self, atoms: Sequence[Atom]) -> list[Home]:
        return [None if isinstance(a, Literal) else self.home_of.get(a) for a in atoms]

    def place_by_readers(self) -> None:
        """Places equations without a placed operand on the IPU of their first reader."""
        home_of_reader: dict[Var, IpuId] = {}
        for index in range(len(self.eqns) - 1, -1, -1):
            eqn = self.eqns[index]
            if index in self.bodies:
                reader_homes = self.wants[index]
            else:
                home = self.homes[index]
                if home is None:
                    home = next(
                        (home_of_reader[v] for v in eqn.outvars if v in home_of_reader), None
                    )
                    self.assign_home(index, eqn, home)
                reader_homes = [home] * len(eqn.invars)
            for atom, home in zip(eqn.invars, reader_homes, strict=True):
                if home is not None and home != HOST and not isinstance(atom, Literal):
                    home_of_reader[atom] = home

    def place_remaining(self) -> None:
        """Places the rest where its operands are; arguments are with their first readers."""
        homes = self.homes_of_arguments(reads_of_bodies=False)
        arguments = zip(self.closed.jaxpr.invars, homes, strict=True)
        readers = {var: home for var, home in arguments if home is not None and self.is_top}
        for index, eqn in enumerate(self.eqns):
            if self.homes[index] is None and index not in self.bodies:
                home = self.home_of_largest_operand(eqn.invars)
                if home is None:
                    read = [var for var in unique_variables(eqn.invars) if var in readers]
                    largest = max(read, key=lambda var: size_of(var.aval), default=None)
                    home = IpuId(0) if largest is None else readers[largest]
                self.assign_home(index, eqn, home)

    def build_placed_body(self) -> PlacedBody:
        return PlacedBody(
            jaxpr=self.closed,
            homes=tuple(self.homes),
            bodies=self.bodies,
            results=self.results,
            inputs=self.inputs,
            wanted=self.homes_of_arguments(),
            outputs=tuple(self.homes_of(self.closed.jaxpr.outvars)),
        )

    def homes_of_arguments(self, *, reads_of_bodies: bool = True) -> tuple[Home, ...]:
        """Returns each argument's home, or its first reader's: IPU 0 would send it each time.

        Without `reads_of_bodies`, what reads it in the bodies of control flow does not count.
        """
        readers: dict[Var, IpuId] = {}
        for index, eqn in enumerate(self.eqns):
            homes = [self.homes[index]] * len(eqn.invars)
            if reads_of_bodies:
                homes = self.wants.get(index, homes)
            for atom, home in zip(eqn.invars, homes, strict=True):
                if home is not None and home != HOST and not isinstance(atom, Literal):
                    readers.setdefault(atom, home)
        pairs = zip(self.closed.jaxpr.invars, self.inputs, strict=True)
        return tuple(readers.get(var) if home is None else home for var, home in pairs)


class _ForwardTwins:
    """An index of forward equations, from which unmarked backward ones were derived.

    Both carry the same stack of the user's frames. A stack that stands for equations on several
    IPUs (one line that builds many layers) says nothing.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[JaxprEqn, IpuId]] = []
        self._homes: dict[Any, set[IpuId]] = {}

    def remember_forward_equation(self, eqn: JaxprEqn, home: Home) -> None:
        if home is not None and home != HOST:
            self._unread.append((eqn, home))

    def home_of_twin(self, eqn: JaxprEqn) -> Home:
        for forward, home in self._unread:  # frames are slow to read: only once somebody asks
            self._homes.setdefault(user_frames_key(forward), set()).add(home)
        self._unread.clear()
        homes = self._homes.get(user_frames_key(eqn), set())
        return next(iter(homes)) if len(homes) == 1 else None


def _has_loads_or_stores(jaxpr: Jaxpr) -> bool:
    """Returns whether a jaxpr stores or loads values."""
    return any(eqn.primitive in (load_p, store_p) for eqn in walk_equations(jaxpr))


def _forbid_host_operations(eqn: JaxprEqn) -> None:
    for jaxpr in sub_jaxprs(eqn):
        for nested_eqn in jaxpr.eqns:
            outside = marks.read_marks(name_stack(nested_eqn)).outside
            if outside is not None:
                raise OutsideCompilationError(
                    f"outside_compilation_scope('{outside}') inside `{eqn.primitive.name}`: "
                    "a program cannot return to the host from within control flow",
                    where=user_line(nested_eqn),
                    fix="move the scope out of the loop or condition",
                )
            _forbid_host_operations(nested_eqn)


def _first_known_home(*homes: Home) -> Home:
    return next((home for home in homes if home is not None), None)
