"""Traces the stages of a pipeline, and finds the values that each of them reads and computes.

Values between stages are symbols here (`Value`): a value that a stage only passes on keeps its
symbol, so nothing is computed, stashed or differentiated for it. A variable that is passed on to
the next stage becomes an activation: the next stage may be on another IPU than the variable.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import inspect
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.ground import (
    IPUError,
    PipelineError,
    as_list,
    find_signature_mismatch,
    watch_iterators,
)
from ipujax.pipelines.pipeline_arguments import OptimizerFunctionOutput
from ipujax.pipelines.pipeline_state import (
    StageOutput,
    find_changed_leaves,
    replace_leaves,
    state_leaf_path,
)
from ipujax.pipelines.stage_assignment import ipu_scope_name
from lowering import jaxpr, marks, name_source_line, ops, pipelines

Pytree = object
"""Arrays, or what stands for arrays, in any nesting that JAX knows of: only `jax.tree` looks in."""


Aval = jaxpr.ShapedValue
"""The shape and dtype of an array, known before there is one."""

SPANS_ALL = -1
"""In a device mapping: the stage spans all IPUs, and its own shard scopes place its operations."""


@dc.dataclass(frozen=True, eq=False)
class Value:
    """An array of one micro-batch (or of all), before there is one.

    Attributes:
      aval: shape and dtype.
      stage: the stage that makes it; -1 for variables, inputs, elements and untrained state.
      trainable: whether gradients flow back through it.
      storage: where it waits between tasks.
    """

    aval: Aval
    stage: int = -1
    trainable: bool = False
    storage: ops.Storage = ops.ON_TILES


@dc.dataclass(frozen=True)
class Part:
    """A function of a stage on one IPU; a stage of concurrent functions has several."""

    function: Callable[..., Pytree]
    ipu: int

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return getattr(self.function, "__name__", repr(self.function))

    def open_ipu_scope(self) -> contextlib.AbstractContextManager[object]:
        """Returns the scope that places what is traced in it on the IPU of the part."""
        if self.ipu == SPANS_ALL:
            return contextlib.nullcontext()
        return jax.named_scope(ipu_scope_name(self.ipu))


@dc.dataclass(frozen=True)
class Stage:
    """A traced stage.

    Attributes:
      number: counting from 0.
      parts: its functions.
      closed: operands -> results, flat; only what it computes itself.
      operands: the values that it reads.
      results: the values that it computes.
      changed: leaves of the untrained state: as the stage finds them -> as it leaves them.
    """

    number: int
    parts: tuple[Part, ...]
    closed: jaxpr.ClosedJaxpr
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    changed: dict[Value, Value]

    def open_ipu_scope(self) -> contextlib.AbstractContextManager[object]:
        """Returns the scope that places what is done for the stage as a whole."""
        return self.parts[-1].open_ipu_scope()


class Arguments(NamedTuple):
    """The arguments of a stage after variables and state: arrays, or `Value`s."""

    args: tuple[Pytree, ...]
    kwargs: dict[str, Pytree]


class TracedStage(NamedTuple):
    """A traced stage with its outputs, state and loss as pytrees of `Value`s.

    Attributes:
      stage: the stage.
      outputs: the outputs of all its functions, one after the other.
      state: the untrained state after it.
      loss: the loss of the last stage, in training.
    """

    stage: Stage
    outputs: list[Pytree]
    state: Pytree
    loss: Value | None


def trace_stage(
    number: int,
    parts: tuple[Part, ...],
    variables: Pytree,
    state: Pytree,
    arguments: Arguments,
    optimizer: Callable[..., OptimizerFunctionOutput] | None = None,
) -> TracedStage:
    """Traces one stage.

    Args:
      number: counting from 0.
      parts: its functions; all get the same arguments.
      variables: a pytree of `Value`s, or None.
      state: the untrained state as the stages before leave it, the same.
      arguments: the other arguments.
      optimizer: for the last stage in training, what gives the loss for its outputs.

    Raises:
      PipelineError: arguments that do not fit, or a value that was captured.
    """
    leaves, structure = jax.tree.flatten((variables, state, arguments))
    sources = list(dict.fromkeys(leaves))  # a stage may have given one value twice
    structures: list[object] = []  # JAX exports no type of theirs
    changed_leaves: list[int] = []

    def call_flat_stage(*flat: jax.Array) -> list[jax.Array]:
        arrays = dict(zip(sources, flat, strict=True))
        stage_arguments = structure.unflatten([arrays[v] for v in leaves])
        outputs, changed = call_stage(number, parts, *stage_arguments)
        outputs = jax.tree.map(jnp.asarray, outputs)
        results, outputs_structure = jax.tree.flatten(outputs)
        structures.append(outputs_structure)
        changed_leaves[:] = changed
        if optimizer is not None:
            with parts[-1].open_ipu_scope():
                results.append(_check_scalar_loss(optimizer(*outputs).loss))
        return [*results, *changed.values()]

    closed = jaxpr.trace_flat(call_flat_stage, [source.aval for source in sources])
    _refuse_captured_tracers(number, parts, closed)
    _refuse_operations_on_other_ipus(number, parts, closed.jaxpr)
    old_state_leaves = jax.tree.leaves(state)
    handed_on = [] if optimizer is not None else jax.tree.leaves(variables)
    handed_on += [value for value in old_state_leaves if value.stage < 0]
    stage, values = _reduce_to_own_equations(
        number,
        parts,
        closed,
        sources,
        frozenset(handed_on),
        [old_state_leaves[i] for i in changed_leaves],
    )
    last = len(values) - len(changed_leaves)
    new_state = replace_leaves(state, dict(zip(changed_leaves, values[last:], strict=True)))
    results = values[:last]
    loss = results.pop() if optimizer is not None else None
    return TracedStage(stage, jax.tree.unflatten(structures[-1], results), new_state, loss)


def call_stage(
    number: int, parts: Sequence[Part], variables: Pytree, state: Pytree, arguments: Arguments
) -> tuple[list[Pytree], dict[int, jax.Array]]:
    """Calls the functions of a stage.

    Returns:
      Their outputs, one after the other, and what they change of the untrained state, by place.

    Raises:
      PipelineError: arguments that a function does not take, or a state that does not fit.
    """
    outputs: list[Pytree] = []
    changed: dict[int, jax.Array] = {}
    for part in parts:
        with part.open_ipu_scope():
            result = _call_stage_function(number, part, (variables, state), arguments)
            if isinstance(result, StageOutput):
                stage_name = f"stage {number} (`{part.name}`)"
                for leaf_number, leaf in find_changed_leaves(
                    stage_name, state, result.state
                ).items():
                    if leaf_number in changed:
                        name = state_leaf_path(state, leaf_number)
                        raise PipelineError(
                            f"two functions of stage {number} change state{name}",
                            where=describe_definition_line(part.function),
                            fix="let one of them do it; they run at the same time",
                        )
                    changed[leaf_number] = leaf
                result = result.outputs
            outputs += as_list(result)
    return outputs, changed


def _reduce_to_own_equations(
    number: int,
    parts: tuple[Part, ...],
    closed: jaxpr.ClosedJaxpr,
    sources: Sequence[Value],
    handed_on: frozenset[Value],
    changed: Sequence[Value],
) -> tuple[Stage, list[Value]]:
    """Reduces a stage to what it computes itself, and finds the `Value` of each of its outputs.

    The last outputs are what becomes of the state's leaves `changed`; what is `handed_on` is a new
    value for the next stage.
    """
    body = closed.jaxpr
    source_of = dict(zip(body.invars, sources, strict=True))
    flowing = pipelines.variables_depending_on(
        body.eqns, [v for v, s in source_of.items() if s.trainable]
    )
    value_of: dict[_Key, Value] = {v: s for v, s in source_of.items() if s not in handed_on}
    computed: list[jaxpr.Var | jaxpr.Literal] = []
    untrained = len(body.outvars) - len(changed)
    for number_of_output, (atom, aval) in enumerate(
        zip(body.outvars, closed.out_avals, strict=True)
    ):
        if _atom_key(atom) in value_of:
            continue
        has_gradient = jnp.issubdtype(aval.dtype, jnp.inexact) and number_of_output < untrained
        is_flowing = not isinstance(atom, jaxpr.Literal) and atom in flowing
        value_of[_atom_key(atom)] = Value(aval, stage=number, trainable=has_gradient and is_flowing)
        computed.append(atom)
    results = tuple(value_of[_atom_key(atom)] for atom in computed)
    reduced = jaxpr.ClosedJaxpr(jaxpr.replace_equations(body, body.eqns, computed), closed.consts)
    pruned, reads = jaxpr.prune_unused(reduced)
    operands = tuple(sources[i] for i in reads)
    values = [value_of[_atom_key(atom)] for atom in body.outvars]
    changed_values = dict(zip(changed, values[untrained:], strict=True))
    return Stage(number, parts, pruned, operands, results, changed_values), values


_Key = jaxpr.Var | int


def _atom_key(atom: jaxpr.Var | jaxpr.Literal) -> _Key:
    """Returns a key that identifies an atom of a jaxpr: equal literals have different keys."""
    return id(atom) if isinstance(atom, jaxpr.Literal) else atom


_LEAD = ("the variables", "the state")


def _call_stage_function(
    number: int, part: Part, lead: tuple[Pytree, ...], arguments: Arguments
) -> Pytree:
    args = (*(tree for tree in lead if tree is not None), *arguments.args)
    if refusal := find_signature_mismatch(part.function, args, arguments.kwargs):
        signature, mismatch = refusal
        names = [n for n, tree in zip(_LEAD, lead, strict=True) if tree is not None]
        first = f"{', '.join(names)}, then " if names else ""
        previous_result = f"what stage {number - 1} returns"
        source = previous_result if number else "`inputs` and the infeed's element"
        raise PipelineError(
            f"stage {number} (`{part.name}`) does not take what it is given: {mismatch}\n"
            f"  given: {first}{source}: {_describe_arguments(arguments)}\n"
            f"  takes: {part.name}{signature}",
            where=describe_definition_line(part.function),
            fix="let the stage take exactly that, in this order",
        )
    try:
        with watch_iterators(part.function, f"stage {number} (`{part.name}`) of the pipeline"):
            return part.function(*args, **arguments.kwargs)
    except Exception as error:
        error.add_note(
            f"in stage {number} (`{part.name}`) of a pipeline, which was given "
            f"{_describe_arguments(arguments)}"
        )
        raise


def _describe_arguments(arguments: Arguments) -> str:
    """Returns the shapes and dtypes of a stage's arguments as a text."""
    named = (f"{k}={describe_shapes(v)}" for k, v in arguments.kwargs.items())
    return f"({', '.join([*map(describe_shapes, arguments.args), *named])})"


def describe_shapes(tree: Pytree) -> str:
    """Returns the dtypes and shapes of the arrays in a pytree as a text."""
    shapes = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)
    return shapes if isinstance(shapes, str) else str(shapes).replace("'", "")


def describe_definition_line(function: Callable[..., Pytree]) -> str:
    """Returns the file and line at which a function is defined, for messages.

    Of a function of ours, it is the user's line that is running now.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code and not jaxpr.is_user_code(code) and (line := jaxpr.current_user_line()):
        return line
    return name_source_line(code.co_filename, code.co_firstlineno) if code else "an unknown line"


@contextlib.contextmanager
def name_definition_line(function: Callable[..., Pytree]) -> Generator[None]:
    """Adds the line at which a function is defined to errors of ours that have none."""
    try:
        yield
    except IPUError as error:
        error.where = error.where or describe_definition_line(function)
        raise


def _refuse_captured_tracers(number: int, parts: Sequence[Part], closed: jaxpr.ClosedJaxpr) -> None:
    """Raises an error if a stage closes over a value that is being traced outside of it."""
    for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        if jaxpr.is_tracer(value):
            users = (e for e in closed.jaxpr.eqns if any(a is var for a in e.invars))
            line = next(filter(None, map(jaxpr.user_line, users)), "") or describe_definition_line(
                parts[0].function
            )
            raise PipelineError(
                f"stage {number} (`{parts[0].name}`) is trying to capture the tensor "
                f"{value.dtype}{list(value.shape)} of the function around it, which is not an "
                f"argument of the stage",
                where=line,
                fix="pass it as one of `inputs` or through the infeed and hand it on from "
                "stage to stage, or, if it is a parameter, in `variables`",
            )


def _refuse_operations_on_other_ipus(number: int, parts: Sequence[Part], body: jaxpr.Jaxpr) -> None:
    """Raises an error if a stage places operations on another IPU than its own."""
    ipus = {part.ipu for part in parts}
    if SPANS_ALL in ipus:
        return
    for eqn in body.eqns:
        shard = marks.read_marks(jaxpr.name_stack(eqn)).shard
        if shard is not None and shard not in ipus:
            raise PipelineError(
                f"stage {number} (`{parts[0].name}`) is on IPU {', '.join(map(str, ipus))}, but "
                f"uses `ipu_shard({shard})`",
                where=jaxpr.user_line(eqn),
                fix=f"remove the scope, or give the stage {SPANS_ALL} in device_mapping, "
                "where its scopes choose the IPUs",
            )
        for sub_jaxpr in jaxpr.sub_jaxprs(eqn):
            _refuse_operations_on_other_ipus(number, parts, sub_jaxpr)


def _check_scalar_loss(loss: ArrayLike) -> jax.Array:
    array = jnp.asarray(loss)
    if array.shape or not jnp.issubdtype(array.dtype, jnp.floating):
        raise PipelineError(
            "the loss that optimizer_function returns must be one floating-point number, and real; "
            f"it is {array.dtype}{list(array.shape)}",
            fix="reduce it, as jnp.mean does, in the last stage or in optimizer_function; of a "
            "complex number take jnp.abs or jnp.real",
        )
    return array
