"""Traces the stages of a pipeline, and finds out what each of them reads and makes.

Values between stages are symbols here (`Value`): a value that a stage only passes on keeps its
symbol, so nothing is computed, stashed or differentiated for it. A variable that is passed on to
the next stage becomes an activation: the next stage may be on another IPU than the variable.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import inspect
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.checks.arguments import as_list, misfit
from ipujax.errors import PipelineError
from ipujax.pipelines.arguments import OptimizerFunctionOutput
from lowering import jaxpr, marks, ops, pipelines

Pytree = object
"""Arrays, or what stands for arrays, in any nesting that JAX knows of: only `jax.tree` looks in."""


Aval = jaxpr.ShapedArray | jax.ShapeDtypeStruct
"""The shape and dtype of an array, known before there is one."""

SPANS_ALL = -1
"""In a device mapping: the stage runs on all IPUs, and its own shards say where."""


@dc.dataclass(frozen=True, eq=False)
class Value:
    """An array of one micro-batch (or of all), before there is one.

    Attributes:
      aval: shape and dtype.
      stage: the stage that makes it; -1 for variables, inputs and elements.
      constant: whether it is the same for all micro-batches.
      trainable: whether gradients flow back through it.
      storage: where it waits between tasks.
    """

    aval: Aval
    stage: int = -1
    constant: bool = False
    trainable: bool = False
    storage: ops.Storage = ops.HERE


@dc.dataclass(frozen=True)
class Part:
    """A function of a stage on one IPU; a stage of concurrent functions has several."""

    function: Callable[..., Pytree]
    ipu: int

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return getattr(self.function, "__name__", repr(self.function))

    def on_its_ipu(self) -> contextlib.AbstractContextManager[object]:
        """The scope that places what is traced inside."""
        if self.ipu == SPANS_ALL:
            return contextlib.nullcontext()
        return jax.named_scope(marks.write(marks.SHARD, str(self.ipu)))


@dc.dataclass(frozen=True)
class Stage:
    """A traced stage.

    Attributes:
      number: counting from 0.
      parts: its functions.
      closed: operands -> results, flat; only what it computes itself.
      operands: what it reads.
      results: what it computes.
    """

    number: int
    parts: tuple[Part, ...]
    closed: jaxpr.ClosedJaxpr
    operands: tuple[Value, ...]
    results: tuple[Value, ...]

    def on_its_ipu(self) -> contextlib.AbstractContextManager[object]:
        """The scope of what is done for the stage as a whole."""
        return self.parts[-1].on_its_ipu()


class Arguments(NamedTuple):
    """What a stage is called with after the variables: arrays, or `Value`s in their places."""

    args: tuple[Pytree, ...]
    kwargs: dict[str, Pytree]


class StageOutput(NamedTuple):
    """What a stage of a pipeline with a state returns.

    Attributes:
      outputs: what it would return without one.
      state: as the stage was given it, with new leaves where it changes them.
    """

    outputs: Pytree
    state: Pytree


def trace_stage(
    number: int,
    parts: tuple[Part, ...],
    variables: Pytree,
    arguments: Arguments,
    optimizer: Callable[..., OptimizerFunctionOutput] | None = None,
) -> tuple[Stage, list[Pytree], Value | None]:
    """Traces one stage.

    Args:
      number: counting from 0.
      parts: its functions; all get the same arguments.
      variables: a pytree of `Value`s, or None.
      arguments: the other arguments.
      optimizer: for the last stage in training, what gives the loss for its outputs.

    Returns:
      The stage, its outputs (pytrees of `Value`s; those of all parts, one after the other), and
      the loss.

    Raises:
      PipelineError: arguments that do not fit, or a value that was captured.
    """
    leaves, structure = jax.tree.flatten((variables, arguments))
    sources = list(dict.fromkeys(leaves))  # a stage may have given one value twice
    structures: list[object] = []  # JAX exports no type of theirs

    def whole(*flat: jax.Array) -> list[jax.Array]:
        arrays = dict(zip(sources, flat, strict=True))
        outputs = call_stage(number, parts, *structure.unflatten([arrays[v] for v in leaves]))
        outputs = jax.tree.map(jnp.asarray, outputs)
        results, outputs_structure = jax.tree.flatten(outputs)
        structures.append(outputs_structure)
        if optimizer is not None:
            with parts[-1].on_its_ipu():
                results.append(_scalar(optimizer(*outputs).loss))
        return results

    closed = jaxpr.trace_flat(whole, [source.aval for source in sources])
    _check_captures(number, parts, closed)
    _check_shards(number, parts, closed.jaxpr)
    handed_on = [] if optimizer is not None else jax.tree.leaves(variables)
    stage, values = _stage(number, parts, closed, sources, frozenset(handed_on))
    loss = values.pop() if optimizer is not None else None
    return stage, jax.tree.unflatten(structures[-1], values), loss


def call_stage(
    number: int, parts: Sequence[Part], variables: Pytree, arguments: Arguments
) -> list[Pytree]:
    """Calls the functions of a stage; gives their outputs, one after the other.

    Raises:
      PipelineError: arguments that a function does not take.
    """
    lead = () if variables is None else (variables,)
    outputs: list[Pytree] = []
    for part in parts:
        with part.on_its_ipu():
            outputs += as_list(_called(number, part, lead, arguments))
    return outputs


def _stage(
    number: int,
    parts: tuple[Part, ...],
    closed: jaxpr.ClosedJaxpr,
    sources: Sequence[Value],
    variables: frozenset[Value],
) -> tuple[Stage, list[Value]]:
    """The stage reduced to what it computes, and the `Value` of each of its outputs."""
    inner = closed.jaxpr
    source_of = dict(zip(inner.invars, sources, strict=True))
    flowing = pipelines.dependent(inner.eqns, [v for v, s in source_of.items() if s.trainable])
    known: dict[_Key, Value] = {v: s for v, s in source_of.items() if s not in variables}
    computed: list[jaxpr.Var | jaxpr.Literal] = []
    for atom, aval in zip(inner.outvars, closed.out_avals, strict=True):
        if _key(atom) in known:
            continue
        is_float = jnp.issubdtype(aval.dtype, jnp.floating)
        is_flowing = not isinstance(atom, jaxpr.Literal) and atom in flowing
        known[_key(atom)] = Value(aval, stage=number, trainable=is_float and is_flowing)
        computed.append(atom)
    results = tuple(known[_key(atom)] for atom in computed)
    reduced = jaxpr.ClosedJaxpr(jaxpr.with_eqns(inner, inner.eqns, computed), closed.consts)
    pruned, reads = jaxpr.without_unused(reduced)
    operands = tuple(sources[i] for i in reads)
    return Stage(number, parts, pruned, operands, results), [known[_key(a)] for a in inner.outvars]


_Key = jaxpr.Var | int


def _key(atom: jaxpr.Var | jaxpr.Literal) -> _Key:
    """What tells an atom of a jaxpr from others: equal literals are two."""
    return id(atom) if isinstance(atom, jaxpr.Literal) else atom


def _called(number: int, part: Part, lead: tuple[Pytree, ...], arguments: Arguments) -> Pytree:
    args = (*lead, *arguments.args)
    if refusal := misfit(part.function, args, arguments.kwargs):
        signature, mismatch = refusal
        first = "the variables, then " if lead else ""
        before = f"what stage {number - 1} returns"
        source = before if number else "`inputs` and the infeed's element"
        raise PipelineError(
            f"stage {number} (`{part.name}`) does not take what it is given: {mismatch}\n"
            f"  given: {first}{source}: {_listed(arguments)}\n"
            f"  takes: {part.name}{signature}",
            where=_defined(part.function),
            fix="let the stage take exactly that, in this order",
        )
    try:
        return part.function(*args, **arguments.kwargs)
    except Exception as error:
        error.add_note(
            f"in stage {number} (`{part.name}`) of a pipeline, which was given {_listed(arguments)}"
        )
        raise


def _listed(arguments: Arguments) -> str:
    """Shapes and dtypes of arguments."""
    named = (f"{k}={_described(v)}" for k, v in arguments.kwargs.items())
    return f"({', '.join([*map(_described, arguments.args), *named])})"


def _described(tree: Pytree) -> str:
    """Shapes and dtypes of an argument."""
    shapes = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)
    return shapes if isinstance(shapes, str) else str(shapes).replace("'", "")


def _defined(function: Callable[..., Pytree]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "an unknown line"


def _check_captures(number: int, parts: Sequence[Part], closed: jaxpr.ClosedJaxpr) -> None:
    """A stage may close over constants, never over a value that is being traced outside."""
    for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        if jaxpr.is_tracer(value):
            users = (e for e in closed.jaxpr.eqns if any(a is var for a in e.invars))
            line = next(filter(None, map(jaxpr.user_line, users)), "") or _defined(
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


def _check_shards(number: int, parts: Sequence[Part], body: jaxpr.Jaxpr) -> None:
    """A stage runs on its own IPU, unless it spans all of them."""
    ipus = {part.ipu for part in parts}
    if SPANS_ALL in ipus:
        return
    for eqn in body.eqns:
        shard = marks.read(jaxpr.name_stack(eqn)).shard
        if shard is not None and shard not in ipus:
            raise PipelineError(
                f"stage {number} (`{parts[0].name}`) is on IPU {', '.join(map(str, ipus))}, but "
                f"uses `ipu_shard({shard})`",
                where=jaxpr.user_line(eqn),
                fix=f"leave the scope out, or give the stage {SPANS_ALL} in device_mapping, "
                "which lets its own scopes say where",
            )
        for inner in jaxpr.sub_jaxprs(eqn):
            _check_shards(number, parts, inner)


def _scalar(loss: ArrayLike) -> jax.Array:
    array = jnp.asarray(loss)
    if array.shape or not jnp.issubdtype(array.dtype, jnp.floating):
        raise PipelineError(
            "the loss that optimizer_function returns must be one floating-point number, it is "
            f"{array.dtype}{list(array.shape)}",
            fix="reduce it, as jnp.mean does, in the last stage or in optimizer_function",
        )
    return array
