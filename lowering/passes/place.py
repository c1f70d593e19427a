"""Gives every equation an IPU: its mark > its forward twin's > its operands' > its users' > 0."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterator, Sequence
from typing import Any

from lowering import marks
from lowering.avals import size_of
from lowering.control_flow import ControlFlow, is_control_flow
from lowering.equations import variables, walk
from lowering.errors import OutsideCompilationError
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    frames_key,
    name_stack,
    sub_jaxprs,
    user_line,
)
from lowering.ops.storage import load_p, store_p
from lowering.ops.streams import repeat_p, uses_streams
from lowering.ops.tasks import PipelineSpec, PlannedPipeline, is_task
from lowering.ops.user_ops import name_on_host
from lowering.units import HOST, IpuId

Home = IpuId | None
"""Where a value is born; None for arguments and constants, which live on the host."""


@dc.dataclass(frozen=True, slots=True)
class PlacedBody:
    """A jaxpr whose equations have homes.

    Attributes:
      jaxpr: the body.
      homes: one per equation; None for control flow that is split over IPUs or streams.
      bodies: the placed bodies of each split equation, by its index, in parameter order.
      results: the homes of each split equation's results, by its index.
      inputs: one home per invar: where it comes from.
      wanted: one home per invar: where it comes from, or else where it is read first.
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
    return _Placer(closed, "", inputs, _Shards(), is_top=True).run()


class _Shards:
    """The shards that a jaxpr names inside; remembered, since bodies are shared."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[int]] = {}

    def __call__(self, jaxpr: Jaxpr) -> frozenset[int]:
        key = id(jaxpr)
        if key not in self._known:
            named = (marks.read(name_stack(eqn)).shard for eqn in jaxpr.eqns)
            inner = map(self.inside, jaxpr.eqns)
            self._known[key] = frozenset(s for s in named if s is not None).union(*inner)
        return self._known[key]

    def inside(self, eqn: JaxprEqn) -> frozenset[int]:
        """Those that an equation's bodies name."""
        return frozenset[int]().union(*map(self, sub_jaxprs(eqn)))


def shards_used(closed: ClosedJaxpr) -> frozenset[int]:
    """Every shard that a mark names anywhere in the jaxpr, or that a pipeline has stages on.

    A stage that only passes values on has no operations, and its IPU is in use all the same.
    """
    stages = (ipu for spec in _pipelines(closed.jaxpr) for ipus in spec.ipus for ipu in ipus)
    return _Shards()(closed.jaxpr).union(stages)


def _pipelines(jaxpr: Jaxpr) -> Iterator[PipelineSpec | PlannedPipeline]:
    specs = (eqn.params["pipeline"] for eqn in walk(jaxpr) if eqn.primitive is repeat_p)
    return (spec for spec in specs if spec is not None)


def line_of_shard(jaxpr: Jaxpr, shard: int) -> str:
    """The user's `file:line` of a pipeline or an equation with this shard, or '' for none."""
    for spec in _pipelines(jaxpr):
        if any(shard in ipus for ipus in spec.ipus):
            return spec.origin
    eqns = (eqn for eqn in walk(jaxpr) if marks.read(name_stack(eqn)).shard == shard)
    return next(filter(None, map(user_line, eqns)), "")


class _Placer:
    """One body being placed: forward along the data, backward from the users, then what is left."""

    def __init__(
        self,
        closed: ClosedJaxpr,
        enclosing: str,
        inputs: Sequence[Home],
        shards: _Shards,
        is_top: bool = False,
    ):
        self.closed, self.enclosing, self.shards = closed, enclosing, shards
        self.is_top = is_top
        self.eqns = closed.jaxpr.eqns
        self.inputs = tuple(inputs)
        pairs = zip(closed.jaxpr.invars, inputs, strict=True)
        self.home_of = {var: home for var, home in pairs if home is not None}
        self.homes: list[Home] = [None] * len(self.eqns)
        self.bodies: dict[int, tuple[PlacedBody, ...]] = {}
        self.results: dict[int, tuple[Home, ...]] = {}
        self.wants: dict[int, Sequence[Home]] = {}
        self.twins = _Twins()

    def run(self) -> PlacedBody:
        self.forward()
        self.backward()
        self.settle()
        return self.result()

    def forward(self) -> None:
        for index, eqn in enumerate(self.eqns):
            scopes = marks.read(marks.joined(self.enclosing, name_stack(eqn)))
            if self.is_split(eqn, scopes):
                self.split(index, eqn)
                continue
            home = self.marked(eqn, scopes)
            if home is None and scopes.backward:
                home = self.twins.home_of(eqn)
            if home is None:
                home = self.voted(eqn.invars)
            self.assign(index, eqn, home)
            if not scopes.backward and scopes.shard is None:
                self.twins.remember(eqn, home)

    def is_split(self, eqn: JaxprEqn, scopes: marks.Marks) -> bool:
        """Whether this is control flow that runs on several IPUs or whose steps the host sees."""
        if is_task(eqn):
            return True
        if not is_control_flow(eqn) or scopes.outside is not None:
            return False
        _forbid_host_operations(eqn)
        if uses_streams(eqn) or eqn.primitive is repeat_p:
            return True
        return any(map(_stores, sub_jaxprs(eqn))) or len(self.shards.inside(eqn)) > 1

    def marked(self, eqn: JaxprEqn, scopes: marks.Marks) -> Home:
        if scopes.outside is not None or (self.is_top and name_on_host(eqn) is not None):
            return HOST
        if scopes.shard is not None:
            return IpuId(scopes.shard)
        inside = self.shards.inside(eqn)
        return IpuId(min(inside)) if inside else None

    def voted(self, operands: Sequence[Atom]) -> Home:
        """The home of the largest operand that has one."""
        placed = [var for var in variables(operands) if self.home_of.get(var, HOST) != HOST]
        return self.home_of[max(placed, key=lambda var: size_of(var.aval))] if placed else None

    def assign(self, index: int, eqn: JaxprEqn, home: Home) -> None:
        self.homes[index] = home
        if home is not None:
            self.home_of.update((var, home) for var in eqn.outvars)

    def split(self, index: int, eqn: JaxprEqn) -> None:
        """Hands homes to the bodies of control flow, and takes them back."""
        flow, operands = ControlFlow.of(eqn), self.homes_of(eqn.invars)
        stack = marks.joined(self.enclosing, name_stack(eqn))

        def placed(number: int, homes: Sequence[Home]) -> PlacedBody:
            return _Placer(flow.bodies[number], stack, homes, self.shards).run()

        numbers = range(int(flow.is_condition(0)), len(flow.bodies))
        bodies = [placed(number, flow.arguments(number, operands)) for number in numbers]
        wanted = [_first(*homes) for homes in zip(*(body.wanted for body in bodies), strict=True)]
        results = [_first(*homes) for homes in zip(*(body.outputs for body in bodies), strict=True)]
        first, count = len(operands[flow.constants[-1]]), flow.variables
        entering = wanted[first : first + count]
        # A loop variable lives where the body computes it, else where it is wanted or came from.
        homes = [_first(new, old) for new, old in zip(results[:count], entering, strict=True)]
        wanted[first : first + count] = results[:count] = homes
        if flow.is_condition(0):
            constants = operands[flow.constants[0]]
            bodies.insert(0, placed(0, [*constants, *homes]))
            wanted[:0] = bodies[0].wanted[: len(constants)]
        self.bodies[index], self.results[index] = tuple(bodies), tuple(results)
        self.wants[index] = [*operands[: flow.constants[0].start], *wanted]
        pairs = zip(eqn.outvars, results, strict=True)
        self.home_of.update((var, home) for var, home in pairs if home is not None)

    def homes_of(self, atoms: Sequence[Atom]) -> list[Home]:
        return [None if isinstance(a, Literal) else self.home_of.get(a) for a in atoms]

    def backward(self) -> None:
        """Equations without a placed operand go where their first user is."""
        wanted: dict[Var, IpuId] = {}
        for index in range(len(self.eqns) - 1, -1, -1):
            eqn = self.eqns[index]
            if index in self.bodies:
                wants = self.wants[index]
            else:
                home = self.homes[index]
                if home is None:
                    home = next((wanted[v] for v in eqn.outvars if v in wanted), None)
                    self.assign(index, eqn, home)
                wants = [home] * len(eqn.invars)
            for atom, home in zip(eqn.invars, wants, strict=True):
                if home is not None and home != HOST and not isinstance(atom, Literal):
                    wanted[atom] = home

    def settle(self) -> None:
        for index, eqn in enumerate(self.eqns):
            if self.homes[index] is None and index not in self.bodies:
                home = self.voted(eqn.invars)
                self.assign(index, eqn, IpuId(0) if home is None else home)

    def result(self) -> PlacedBody:
        return PlacedBody(
            jaxpr=self.closed,
            homes=tuple(self.homes),
            bodies=self.bodies,
            results=self.results,
            inputs=self.inputs,
            wanted=self.wanted(),
            outputs=tuple(self.homes_of(self.closed.jaxpr.outvars)),
        )

    def wanted(self) -> tuple[Home, ...]:
        """Where each argument is wanted; one without a home would be sent from IPU 0 each time."""
        readers: dict[Var, IpuId] = {}
        for eqn, home in zip(self.eqns, self.homes, strict=True):
            if home is not None and home != HOST:
                for var in variables(eqn.invars):
                    readers.setdefault(var, home)
        pairs = zip(self.closed.jaxpr.invars, self.inputs, strict=True)
        return tuple(readers.get(var) if home is None else home for var, home in pairs)


class _Twins:
    """Finds the forward equation that an unmarked backward equation was derived from.

    Both carry the same stack of the user's frames. A stack that stands for equations on several
    IPUs (one line that builds many layers) says nothing.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[JaxprEqn, IpuId]] = []
        self._homes: dict[Any, set[IpuId]] = {}

    def remember(self, eqn: JaxprEqn, home: Home) -> None:
        if home is not None and home != HOST:
            self._unread.append((eqn, home))

    def home_of(self, eqn: JaxprEqn) -> Home:
        for forward, home in self._unread:  # frames are slow to read: only once somebody asks
            self._homes.setdefault(frames_key(forward), set()).add(home)
        self._unread.clear()
        homes = self._homes.get(frames_key(eqn), set())
        return next(iter(homes)) if len(homes) == 1 else None


def _stores(jaxpr: Jaxpr) -> bool:
    """Whether values are put away or brought back inside."""
    return any(eqn.primitive in (load_p, store_p) for eqn in walk(jaxpr))


def _forbid_host_operations(eqn: JaxprEqn) -> None:
    for jaxpr in sub_jaxprs(eqn):
        for inner in jaxpr.eqns:
            outside = marks.read(name_stack(inner)).outside
            if outside is not None:
                raise OutsideCompilationError(
                    f"outside_compilation_scope('{outside}') inside `{eqn.primitive.name}`: "
                    "a program cannot return to the host from within control flow",
                    where=user_line(inner),
                    fix="move the scope out of the loop or condition",
                )
            _forbid_host_operations(inner)


def _first(*homes: Home) -> Home:
    return next((home for home in homes if home is not None), None)
