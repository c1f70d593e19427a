"""Splits one function, whose equations are marked with stages, into the functions of the stages."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ipujax.ground import PipelineError, structure_text
from ipujax.pipelines.pipeline_stages import Pytree
from ipujax.pipelines.pipeline_state import StageOutput
from ipujax.pipelines.stage_assignment import StageAssignment, Var
from lowering import jaxpr, pipelines


def split_into_stages(
    function: Callable[..., Pytree],
    variables: Pytree,
    state: Pytree = None,
    args: Sequence[Pytree] = (),
    kwargs: Mapping[str, Pytree] | None = None,
    *,
    count: int | None = None,
    policy: Callable[..., bool] | None = None,
    shares_variables: bool = True,
) -> tuple[Callable[..., Any], ...]:
    """Splits a function into stage functions for `pipelining_ops.pipeline`.

    Equations are marked by `jax.named_scope(stage_scope_name(1))`. An unmarked equation
    is in the earliest stage that has all its operands; one on constants alone is in
    every stage that uses it. A variable is read in the stages of its marked readers; its other
    readers, and those of the state, get it from the first stage that reads it.

    Args:
      function: `function(variables, state, *args, **kwargs)`, without those of the first two that
        are None. With a state it returns a `StageOutput`, else the outputs alone.
      variables: arrays or avals.
      state: arrays or avals of the untrained state.
      args: arrays or avals of the first stage's other arguments.
      kwargs: the same for its keyword arguments.
      count: the number of stages; some may then compute nothing. By default the highest mark says.
      policy: the `jax.checkpoint` policy of each stage, or None.
      shares_variables: whether all marked readers of a variable read it; otherwise the first one
        does, and the others get it from there.

    Returns:
      Functions that are called as the first: `stage(variables, state, *args)`. The last returns
      the outputs. In each one's state are new those leaves that it changes.

    Raises:
      PipelineError: see `StageAssignment`.
    """
    lead = tuple(tree for tree in (variables, state) if tree is not None)
    leaves, structure = jax.tree.flatten((lead, tuple(args), dict(kwargs or {})))
    forms: list[Any] = []

    def flat_function(*flat: jax.Array) -> list[jax.Array]:
        lead, args, kwargs = jax.tree.unflatten(structure, flat)
        output = _convert_to_stage_output(function(*lead, *args, **kwargs), state)
        flat_outputs, form = jax.tree.flatten(output.outputs)
        forms.append(form)
        return [*flat_outputs, *jax.tree.leaves(output.state)]

    closed = jaxpr.trace_flat(flat_function, [_aval_of_leaf(leaf) for leaf in leaves])
    closed, read = jaxpr.prune_unused(pipelines.inline_jits_with_stage_marks(closed))
    invars = dict(zip(read, closed.jaxpr.invars, strict=True))
    first_of_state, first_element = (len(jax.tree.leaves(t)) for t in (variables, lead))
    stage_assignment = StageAssignment(
        closed.jaxpr, [v for i, v in invars.items() if i >= first_element], count
    )
    outputs = forms[-1].num_leaves
    new = closed.jaxpr.outvars[outputs:]
    updates = [(invars.get(first_of_state + i), atom) for i, atom in enumerate(new)]
    first_unshared = first_of_state if shares_variables else 0
    shared = frozenset(v for i, v in invars.items() if i < first_unshared)
    model = _Model(
        closed, invars, shared, stage_assignment, closed.jaxpr.outvars[:outputs], updates
    )
    name = getattr(function, "__name__", type(function).__name__)
    return tuple(
        _build_stage_function(
            f"{name}, stage {part.number}", part, variables, state, forms[-1], policy
        )
        for part in model.list_stages()
    )


@dc.dataclass(frozen=True, eq=False)
class _Part:
    """The computation of one stage.

    Attributes:
      number: of the stage.
      closed: operands -> results, then new leaves of the state.
      leaves: where among the function's arguments those are that the stage reads itself; they come
        first among the operands.
      handed: the number of operands after those, which the stage before hands on.
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
    """A function whose equations, variables and state are assigned to stages.

    Attributes:
      closed: the function, flat.
      invars: its arguments, those that it reads, by their positions.
      variables: those of them that do not change, so that several stages may read them.
      stage_assignment: the stages of its equations.
      outputs: its results.
      updates: each leaf of the state (None if it is not read), and its new value.
    """

    closed: jaxpr.ClosedJaxpr
    invars: Mapping[int, Var]
    variables: frozenset[Var]
    stage_assignment: StageAssignment
    outputs: Sequence[Any]
    updates: Sequence[tuple[Var | None, Any]]

    def list_stages(self) -> list[_Part]:
        """Returns the computations of the stages, in order."""
        parts: list[_Part] = []
        results = self.outputs
        for number in reversed(range(self.stage_assignment.count)):
            part, results = self._build_stage(number, results)
            parts.append(part)
        return parts[::-1]

    def _build_stage(self, number: int, results: Sequence[Any]) -> tuple[_Part, list[Var]]:
        """Builds the stage that computes these results, and lists the values handed to it."""
        body = self.closed.jaxpr
        changed = [
            i for i in range(len(self.updates)) if self._find_stage_that_changes_leaf(i) == number
        ]
        stage_results = [*results, *(self.updates[i][1] for i in changed)]
        stage_equations = [
            eqn for eqn in body.eqns if self.stage_assignment.of.get(id(eqn)) == number
        ]
        eqns = self._add_constant_equations(stage_equations, stage_results)
        computed = {var for eqn in eqns for var in eqn.outvars}
        atoms = [*(atom for eqn in eqns for atom in eqn.invars), *stage_results]
        used = dict.fromkeys(pipelines.unique_variables(atoms))
        constants = dict(zip(body.constvars, self.closed.consts, strict=True))
        read = [v for v in constants if v in used]
        available = self._find_arguments_read_by_stage(number, stage_equations)
        leaves = {i: var for i, var in self.invars.items() if var in used and var in available}
        handed = [v for v in used if not (v in computed or v in available or v in constants)]
        piece = pipelines.jaxpr_of_equations(
            body, [*leaves.values(), *handed], stage_results, eqns
        ).jaxpr
        closed = jaxpr.ClosedJaxpr(piece.replace(constvars=read), [constants[v] for v in read])
        is_last = number == self.stage_assignment.count - 1
        return _Part(number, closed, tuple(leaves), len(handed), tuple(changed), is_last), handed

    def _find_arguments_read_by_stage(
        self, number: int, stage_equations: Sequence[jaxpr.JaxprEqn]
    ) -> set[Var]:
        """Returns the function's arguments that a stage reads directly.

        Args:
          number: of the stage.
          stage_equations: its equations.
        """
        marked = [
            atom for e in stage_equations if self.stage_assignment.is_marked(e) for atom in e.invars
        ]
        at_home = {
            v
            for v in self.invars.values()
            if self.stage_assignment.stage_of_value(v) in (number, None)
        }
        return at_home.union(self.variables.intersection(pipelines.unique_variables(marked)))

    def _add_constant_equations(
        self, stage_equations: Sequence[jaxpr.JaxprEqn], stage_results: Sequence[Any]
    ) -> list[jaxpr.JaxprEqn]:
        """Adds the equations that depend on constants alone and that a stage needs."""
        of, eqns = self.stage_assignment.of, self.closed.jaxpr.eqns
        free = [eqn for eqn in eqns if id(eqn) not in of]
        needed = pipelines.select_equations_for(
            free, [*stage_results, *(a for eqn in stage_equations for a in eqn.invars)]
        )
        chosen = {id(eqn) for eqn in (*stage_equations, *needed)}
        return [eqn for eqn in eqns if id(eqn) in chosen]

    def _find_stage_that_changes_leaf(self, index: int) -> int | None:
        """Returns the stage that changes a leaf of the state; None if no stage does."""
        leaf, value = self.updates[index]
        if value is leaf:
            return None
        ends = pipelines.unique_variables([value] if leaf is None else [value, leaf])
        stages = [
            stage for v in ends if (stage := self.stage_assignment.stage_of_value(v)) is not None
        ]
        return max(stages, default=self.stage_assignment.count - 1)


def _build_stage_function(
    name: str,
    part: _Part,
    variables: Pytree,
    state: Pytree,
    form: Any,
    policy: Callable[..., bool] | None,
) -> Callable[..., Any]:
    """Builds a stage in the form in which `pipeline` calls it.

    Args:
      name: for messages.
      part: the computation of the stage.
      variables: None if it is given none.
      state: None if it is given none.
      form: the structure of the last stage's outputs.
      policy: a `jax.checkpoint` policy, or None.
    """
    computed = functools.partial(jaxpr.run_equations, part.closed.jaxpr, part.closed.consts)
    if policy is not None:
        computed = jax.checkpoint(computed, policy=policy)

    def call_split_stage(*args: Pytree, **kwargs: Pytree) -> Pytree:
        leaves = jax.tree.leaves((args, kwargs))
        handed = leaves[len(leaves) - part.handed :]
        operands = [*(leaves[i] for i in part.leaves), *handed]
        flat = computed(operands)
        count = len(flat) - len(part.changed)
        outputs = jax.tree.unflatten(form, flat[:count]) if part.is_last else flat[:count]
        if state is None:
            return outputs
        new_state, structure = jax.tree.flatten(args[variables is not None])
        for index, value in zip(part.changed, flat[count:], strict=True):
            new_state[index] = value
        return StageOutput(outputs, jax.tree.unflatten(structure, new_state))

    call_split_stage.__name__ = name
    return call_split_stage


def _convert_to_stage_output(result: Pytree, state: Pytree) -> StageOutput:
    """Returns a function's result as a `StageOutput`, and checks that its state fits."""
    if state is None:
        return StageOutput(result, None)
    if not isinstance(result, StageOutput):
        raise PipelineError(
            f"a function with a state returned {type(result).__name__}, which has none",
            fix="return a StageOutput(outputs, state)",
        )
    if jax.tree.structure(result.state) != jax.tree.structure(state):
        raise PipelineError(
            f"a function was given the state {structure_text(jax.tree.structure(state))}, and "
            f"returned {structure_text(jax.tree.structure(result.state))}",
            fix="return the state in the form in which it was given",
        )
    return result


def _aval_of_leaf(leaf: Any) -> Any:
    """Returns the aval of a leaf; a leaf that is an aval itself as it is."""
    is_aval = isinstance(leaf, (jaxpr.ShapedArray, jax.ShapeDtypeStruct))
    return leaf if is_aval else jax.typeof(leaf)
