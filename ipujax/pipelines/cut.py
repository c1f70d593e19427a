"""Cuts one function, whose equations are marked with stages, into the functions of these stages."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ipujax.checks.structures import shown
from ipujax.errors import PipelineError
from ipujax.pipelines.places import Places, Var
from ipujax.pipelines.stages import Pytree
from ipujax.pipelines.state import StageOutput
from lowering import jaxpr, pipelines


def cut(
    function: Callable[..., Pytree],
    variables: Pytree,
    state: Pytree = None,
    args: Sequence[Pytree] = (),
    kwargs: Mapping[str, Pytree] | None = None,
    *,
    count: int | None = None,
    policy: Callable[..., bool] | None = None,
) -> tuple[Callable[..., Any], ...]:
    """Stage functions for `pipelining_ops.pipeline` that together are a function.

    Equations are marked by `jax.named_scope(marks.write(marks.STAGE, "1"))`. What has no mark is
    in the earliest stage in which all that it needs is there, what depends on constants alone in
    every stage that uses it. A variable is read in the stages of its marked readers; to other
    readers, and those of a state, it is handed on by the first stage that reads it.

    Args:
      function: `function(variables, state, *args, **kwargs)`, without those of the first two that
        are None. With a state it returns a `StageOutput`, else the outputs alone.
      variables: arrays or avals.
      state: the same; of what changes and is not trained.
      args: the same; what the first stage is given besides.
      kwargs: the same, by keyword.
      count: the number of stages; some may then compute nothing. By default the highest mark says.
      policy: of `jax.checkpoint`, for each stage; None for none.

    Returns:
      Functions that are called as the first: `stage(variables, state, *args)`. The last returns
      the outputs. In each one's state are new those leaves that it changes.

    Raises:
      PipelineError: see `Places`.
    """
    lead = tuple(tree for tree in (variables, state) if tree is not None)
    leaves, structure = jax.tree.flatten((lead, tuple(args), dict(kwargs or {})))
    forms: list[Any] = []

    def flat_function(*flat: jax.Array) -> list[jax.Array]:
        lead, args, kwargs = jax.tree.unflatten(structure, flat)
        output = _output(function(*lead, *args, **kwargs), state)
        flat_outputs, form = jax.tree.flatten(output.outputs)
        forms.append(form)
        return [*flat_outputs, *jax.tree.leaves(output.state)]

    closed = jaxpr.trace_flat(flat_function, [_aval(leaf) for leaf in leaves])
    closed, read = jaxpr.without_unused(pipelines.with_marks_on_top(closed))
    invars = dict(zip(read, closed.jaxpr.invars, strict=True))
    first_of_state, first_element = (len(jax.tree.leaves(t)) for t in (variables, lead))
    places = Places(closed.jaxpr, [v for i, v in invars.items() if i >= first_element], count)
    outputs = forms[-1].num_leaves
    new = closed.jaxpr.outvars[outputs:]
    updates = [(invars.get(first_of_state + i), atom) for i, atom in enumerate(new)]
    shared = frozenset(v for i, v in invars.items() if i < first_of_state)
    model = _Model(closed, invars, shared, places, closed.jaxpr.outvars[:outputs], updates)
    name = getattr(function, "__name__", type(function).__name__)
    return tuple(
        _stage_function(f"{name}, stage {part.number}", part, variables, state, forms[-1], policy)
        for part in model.parts()
    )


@dc.dataclass(frozen=True, eq=False)
class _Part:
    """What one stage computes.

    Attributes:
      number: of the stage.
      closed: operands -> results, then new leaves of the state.
      leaves: where among the function's arguments those are that the stage reads itself; they come
        first among the operands.
      handed: how many values follow, which the stage before hands on.
      changed: which leaves of the state it changes.
      is_last: whether its results are the function's.
    """

    number: int
    closed: jaxpr.ClosedJaxpr
    leaves: tuple[int, ...]
    handed: int
    changed: tuple[int, ...]
    is_last: bool


@dc.dataclass(frozen=True, eq=False)
class _Model:
    """A function with a place for everything.

    Attributes:
      closed: the function, flat.
      invars: its arguments, those that it reads, by their positions.
      variables: those of them that do not change, so that several stages may read them.
      places: the stages of its equations.
      outputs: its results.
      updates: each leaf of the state (None if it is not read), and its new value.
    """

    closed: jaxpr.ClosedJaxpr
    invars: Mapping[int, Var]
    variables: frozenset[Var]
    places: Places
    outputs: Sequence[Any]
    updates: Sequence[tuple[Var | None, Any]]

    def parts(self) -> list[_Part]:
        """The stages, in order."""
        parts: list[_Part] = []
        results = self.outputs
        for number in reversed(range(self.places.count)):
            part, results = self._part(number, results)
            parts.append(part)
        return parts[::-1]

    def _part(self, number: int, results: Sequence[Any]) -> tuple[_Part, list[Var]]:
        """A stage that gives these results, and what the stage before must hand it."""
        body = self.closed.jaxpr
        changed = [i for i in range(len(self.updates)) if self._changes(i) == number]
        wanted = [*results, *(self.updates[i][1] for i in changed)]
        own = [eqn for eqn in body.eqns if self.places.of.get(id(eqn)) == number]
        eqns = self._with_constants(own, wanted)
        made = {var for eqn in eqns for var in eqn.outvars}
        atoms = [*(atom for eqn in eqns for atom in eqn.invars), *wanted]
        used = dict.fromkeys(pipelines.variables(atoms))
        constants = dict(zip(body.constvars, self.closed.consts, strict=True))
        read = [v for v in constants if v in used]
        here = self._here(number, own)
        leaves = {i: var for i, var in self.invars.items() if var in used and var in here}
        handed = [v for v in used if not (v in made or v in here or v in constants)]
        piece = pipelines.sliced(body, [*leaves.values(), *handed], wanted, eqns).jaxpr
        closed = jaxpr.ClosedJaxpr(piece.replace(constvars=read), [constants[v] for v in read])
        is_last = number == self.places.count - 1
        return _Part(number, closed, tuple(leaves), len(handed), tuple(changed), is_last), handed

    def _here(self, number: int, own: Sequence[jaxpr.JaxprEqn]) -> set[Var]:
        """The function's arguments that a stage has, whatever it is handed.

        Args:
          number: of the stage.
          own: its equations.
        """
        marked = [atom for e in own if self.places.is_marked(e) for atom in e.invars]
        at_home = {v for v in self.invars.values() if self.places.where(v) in (number, None)}
        return at_home.union(self.variables.intersection(pipelines.variables(marked)))

    def _with_constants(
        self, own: Sequence[jaxpr.JaxprEqn], wanted: Sequence[Any]
    ) -> list[jaxpr.JaxprEqn]:
        """Equations of a stage, with those that depend on constants alone and that it needs."""
        of, eqns = self.places.of, self.closed.jaxpr.eqns
        free = [eqn for eqn in eqns if id(eqn) not in of]
        needed = pipelines.needed_for(free, [*wanted, *(a for eqn in own for a in eqn.invars)])
        chosen = {id(eqn) for eqn in (*own, *needed)}
        return [eqn for eqn in eqns if id(eqn) in chosen]

    def _changes(self, index: int) -> int | None:
        """The stage that changes a leaf of the state; None if nobody does."""
        leaf, value = self.updates[index]
        if value is leaf:
            return None
        ends = pipelines.variables([value] if leaf is None else [value, leaf])
        stages = [stage for v in ends if (stage := self.places.where(v)) is not None]
        return max(stages, default=self.places.count - 1)


def _stage_function(
    name: str,
    part: _Part,
    variables: Pytree,
    state: Pytree,
    form: Any,
    policy: Callable[..., bool] | None,
) -> Callable[..., Any]:
    """A stage as `pipeline` calls it.

    Args:
      name: for messages.
      part: what it computes.
      variables: None if it is given none.
      state: the same.
      form: the structure of the last one's outputs.
      policy: of `jax.checkpoint`.
    """
    computed = functools.partial(jaxpr.run_equations, part.closed.jaxpr, part.closed.consts)
    if policy is not None:
        computed = jax.checkpoint(computed, policy=policy)

    def stage(*given: Pytree, **named: Pytree) -> Pytree:
        leaves = jax.tree.leaves((given, named))
        handed = leaves[len(leaves) - part.handed :]
        operands = [*(leaves[i] for i in part.leaves), *handed]
        flat = computed(operands)
        count = len(flat) - len(part.changed)
        outputs = jax.tree.unflatten(form, flat[:count]) if part.is_last else flat[:count]
        if state is None:
            return outputs
        now, structure = jax.tree.flatten(given[variables is not None])
        for index, value in zip(part.changed, flat[count:], strict=True):
            now[index] = value
        return StageOutput(outputs, jax.tree.unflatten(structure, now))

    stage.__name__ = name
    return stage


def _output(made: Pytree, state: Pytree) -> StageOutput:
    """What a function returned, which has this state or None."""
    if state is None:
        return StageOutput(made, None)
    if not isinstance(made, StageOutput):
        raise PipelineError(
            f"a function with a state returned {type(made).__name__}, which has none",
            fix="return a StageOutput(outputs, state)",
        )
    if jax.tree.structure(made.state) != jax.tree.structure(state):
        raise PipelineError(
            f"a function was given the state {shown(jax.tree.structure(state))}, and returned "
            f"{shown(jax.tree.structure(made.state))}",
            fix="return the state in the form in which it was given",
        )
    return made


def _aval(leaf: Any) -> Any:
    """The aval of a leaf, if it is not one itself."""
    is_aval = isinstance(leaf, (jaxpr.ShapedArray, jax.ShapeDtypeStruct))
    return leaf if is_aval else jax.typeof(leaf)
