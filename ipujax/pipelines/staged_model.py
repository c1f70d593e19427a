"""Cuts a traced function into the stages of a pipeline that returns what it computes.

A leaf of the arguments lives in every stage that reads it: a pipeline brings it there once, before
the first micro-batch, and gradients of one leaf from several stages are added after the last one.
What the function computes goes from the stage that computes it straight to the stages that read it.
Losses are summed, and other outputs stacked, in the stage that computes them.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.pipelines.micro_batch_arguments import ArgumentLeaf, Role
from ipujax.pipelines.pipeline_stages import SPANS_ALL, Arguments, Aval, Stage, Value
from ipujax.pipelines.request import PipelineRequest
from ipujax.pipelines.stage_assignment import StageAssignment
from ipujax.pipelines.traced_function import TracedFunction
from ipujax.pipelines.traced_stages import Model
from lowering import jaxpr, marks, ops, pipelines, shape_of

_LOW_PRECISION = ("bfloat16", "float16")


@dc.dataclass(frozen=True, kw_only=True, eq=False)
class StagedRequest(PipelineRequest):
    """The request of a pipeline that returns losses, gradients or outputs, and updates nothing.

    Attributes:
      differentiates: whether it has a backward pass.
      recompute: whether stages keep only what enters them for their backward passes.
      parts: how many segments the function has, between which `stages` cuts it; 0 if a plan says
        where.
    """

    fewest_stages: ClassVar[int] = 1
    brings_ipus: ClassVar[bool] = True

    differentiates: bool = True
    recompute: bool = False
    parts: int = 0

    @property
    def segments(self) -> int:
        """As in `PipelineSpec`."""
        return self.parts

    @property
    def is_training(self) -> bool:
        """True if the pipeline has a backward pass."""
        return self.differentiates


@dc.dataclass(frozen=True)
class StagedModel(Model):
    """The stages of a function.

    Attributes:
      copies: the `Value`s of each leaf, one per stage that reads it, with that stage's number.
      loss_sums: the leaf of the state in which the losses are summed; none without a loss.
      stacks: those in which the other outputs are stacked.
    """

    copies: Mapping[ArgumentLeaf, Mapping[Value, int]]
    loss_sums: Sequence[Value]
    stacks: Sequence[Value]

    @functools.cached_property
    def maps_micro_batch_gradients(self) -> bool:
        """False: there is no optimizer that could."""
        return False

    @functools.cached_property
    def weight_storage(self) -> ops.Storage:
        """The storage of the variables between tasks: they are arguments, and stay on tiles."""
        return ops.ON_TILES

    def combination_of_state(self, value: Value) -> pipelines.Combination:
        """Returns how a leaf of the state is combined: a sum, or the micro-batch's number."""
        is_output = value in self.loss_sums or value in self.stacks
        return pipelines.Combination.SUM if is_output else pipelines.Combination.NUMBER

    def scope_of_stage(self, number: int) -> contextlib.AbstractContextManager[object]:
        """Returns the scope that places what is done for a stage outside of the loop."""
        return self.stages[number].open_ipu_scope()

    def mark_rows_of_stage(
        self, leaf: ArgumentLeaf, number: int
    ) -> contextlib.AbstractContextManager[object]:
        """Returns the scope that says of the slice of a leaf which stage reads it.

        Where a program's results stay on its IPUs, the whole leaf is then split over them.
        """
        ipu = self.stages[number].parts[-1].ipu
        if leaf.source is leaf or ipu == SPANS_ALL:
            return contextlib.nullcontext()
        return jax.named_scope(marks.write_mark(marks.ROWS, str(ipu)))


def aval_of(var: jaxpr.Var) -> Any:
    """Returns the shape and dtype of a variable; JAX types them as less than they are."""
    return var.aval


def dtype_of_sum(aval: Aval) -> Any:
    """Returns the dtype in which arrays are summed: float32 for those of 16 bits."""
    return jnp.dtype(jnp.float32) if aval.dtype.name in _LOW_PRECISION else aval.dtype


def build_staged_model(
    function: TracedFunction, assignment: StageAssignment, request: StagedRequest
) -> StagedModel:
    """Builds the stages of a traced function.

    Args:
      function: the function.
      assignment: the stage of each of its equations.
      request: the arguments of the pipeline.
    """
    return _StageBuilder(function, assignment, request).build_model()


class _StageBuilder:
    """The values and the stages of one function, while they are built."""

    def __init__(
        self, function: TracedFunction, assignment: StageAssignment, request: StagedRequest
    ):
        self.function, self.request, self.count = function, request, assignment.count
        self.body = function.closed.jaxpr
        self.leaf_of = function.leaves_by_variable()
        self.assignment = assignment
        self.free = _list_equations_of_whole_leaves(function, assignment)
        self.output_stages = [self._stage_of_output(atom) for atom in self.body.outvars]
        self.eqns = self._list_equations()
        self.reads = [self._list_reads(number) for number in range(self.count)]
        self.values = self._create_values()
        self.copies: dict[ArgumentLeaf, dict[Value, int]] = {}
        self.state: dict[str, Value] = {}

    # --- which stage has what ---------------------------------------------------------------------

    def _stage_of_output(self, atom: jaxpr.Atom) -> int:
        """Returns the stage that sums or stacks an output: the one that computes it."""
        stage = None
        if not isinstance(atom, jaxpr.Literal):
            stage = self.assignment.stage_of_value(atom)
        return self.count - 1 if stage is None else stage

    def outputs_of_stage(self, number: int) -> list[int]:
        """Returns the numbers of the outputs that a stage sums or stacks."""
        return [i for i, stage in enumerate(self.output_stages) if stage == number]

    def _list_equations(self) -> list[list[jaxpr.JaxprEqn]]:
        """Returns the equations of each stage, with those that each stage makes for itself."""
        free = [(i, eqn) for i, eqn in enumerate(self.body.eqns) if id(eqn) in self.free]
        positions = {id(eqn): i for i, eqn in free}
        in_stage: list[list[tuple[int, jaxpr.JaxprEqn]]] = [[] for _ in range(self.count)]
        for i, eqn in enumerate(self.body.eqns):
            number = self.assignment.of.get(id(eqn))
            if number is not None and id(eqn) not in self.free:
                in_stage[number].append((i, eqn))
        equations: list[list[jaxpr.JaxprEqn]] = []
        for number, positioned in enumerate(in_stage):
            wanted = [atom for _, eqn in positioned for atom in eqn.invars]
            wanted += [self.body.outvars[i] for i in self.outputs_of_stage(number)]
            own = pipelines.select_equations_for([eqn for _, eqn in free], wanted)
            positioned += [(positions[id(eqn)], eqn) for eqn in own]
            equations.append([eqn for _, eqn in sorted(positioned, key=lambda entry: entry[0])])
        return equations

    def _list_reads(self, number: int) -> list[jaxpr.Var]:
        """Returns what a stage reads: leaves, and values of earlier stages."""
        outputs = [self.body.outvars[i] for i in self.outputs_of_stage(number)]
        return pipelines.variables_read_from_outside(self.eqns[number], outputs)

    def _create_values(self) -> dict[jaxpr.Var, Value]:
        """Creates the `Value` of what a stage computes for later ones, and of the loss."""
        wanted = {var for read in self.reads for var in read}
        if self.function.has_loss and not isinstance(self.body.outvars[0], jaxpr.Literal):
            wanted.add(self.body.outvars[0])
        roots = [v for v, leaf in self.leaf_of.items() if leaf.role is Role.DIFFERENTIATED]
        flowing = pipelines.variables_depending_on(self.body.eqns, roots)
        values: dict[jaxpr.Var, Value] = {}
        for number, eqns in enumerate(self.eqns):
            for var in (v for eqn in eqns for v in eqn.outvars if v in wanted):
                has_gradient = var in flowing and jnp.issubdtype(aval_of(var).dtype, jnp.inexact)
                values.setdefault(var, Value(aval_of(var), stage=number, trainable=has_gradient))
        return values

    def results_of_stage(self, number: int) -> list[jaxpr.Var]:
        """Returns what a stage computes for later stages, and the loss."""
        made = {var for eqn in self.eqns[number] for var in eqn.outvars}
        return [v for v, value in self.values.items() if v in made and value.stage == number]

    # --- stages -----------------------------------------------------------------------------------

    def build_model(self) -> StagedModel:
        """Builds all stages, and lists their values."""
        stages = tuple(self._build_stage(number) for number in range(self.count))
        everything = [(leaf, v) for leaf, copies in self.copies.items() for v in copies]
        trained = [(a, v) for a, v in everything if a.role is Role.DIFFERENTIATED]
        fixed = tuple(v for a, v in everything if a.role is not Role.DIFFERENTIATED)
        has_loss = self.function.has_loss
        outputs = range(int(has_loss), len(self.body.outvars))
        return StagedModel(
            request=self.request,
            tree={f"{i}: {leaf.path}": value for i, (leaf, value) in enumerate(trained)},
            state=dict(self.state),
            inputs=fixed,
            element=Arguments((), {}),
            stages=stages,
            outputs=(),
            loss=self._loss_value(),
            copies=self.copies,
            loss_sums=[self.state[name] for name in ("loss",) if has_loss],
            stacks=[self.state[self._name_of_output(i)] for i in outputs],
        )

    def _loss_value(self) -> Value | None:
        loss = self.body.outvars[0] if self.function.has_loss else None
        return None if isinstance(loss, jaxpr.Literal | None) else self.values.get(loss)

    def _build_stage(self, number: int) -> Stage:
        """Builds one stage: its slices of the arguments, its equations, its sums and stacks."""
        reads, results = self.reads[number], self.results_of_stage(number)
        outputs = self.outputs_of_stage(number)
        states = self._create_state(number, outputs)
        roles = [self.leaf_of[v].role if v in self.leaf_of else Role.WHOLE for v in reads]
        piece = pipelines.jaxpr_of_equations(
            self.body, reads, [*results, *(self.body.outvars[i] for i in outputs)],
            self.eqns[number],
        )  # fmt: skip

        def run_on_micro_batch(index: jax.Array, arrays: Sequence[jax.Array]) -> Any:
            pairs = zip(roles, arrays, strict=True)
            operands = [take_micro_batch(role, array, index) for role, array in pairs]
            return pipelines.evaluate_without_tracing(piece, operands)

        run = jax.checkpoint(run_on_micro_batch) if self.request.recompute else run_on_micro_batch

        def run_stage(*flat: jax.Array) -> list[jax.Array]:
            arrays, buffers = flat[: len(reads)], flat[len(reads) :]
            index = buffers[0] if buffers else jnp.zeros((), jnp.int32)
            with self.request.stages[number][0].open_ipu_scope():
                computed = run(index, arrays)
                new = [
                    self._add_output(i, buffer, output, index)
                    for i, buffer, output in zip(
                        outputs, buffers[1:], computed[len(results) :], strict=True
                    )
                ]
                new = [index + 1, *new] if buffers else []
            return [*computed[: len(results)], *new]

        operands = [self._value_read(v, number) for v in reads]
        avals = [*map(self._aval_of_operand, reads), *(v.aval for v in states)]
        changed = {old: Value(old.aval, stage=number) for old in states}
        return Stage(
            number=number,
            parts=self.request.stages[number],
            closed=pipelines.trace_with_untraced_calls(run_stage, avals),
            operands=(*operands, *states),
            results=(*(self.values[v] for v in results), *changed.values()),
            changed=changed,
        )

    def _value_read(self, var: jaxpr.Var, number: int) -> Value:
        """Returns what a stage reads under a name: an earlier stage's value, or a new copy."""
        if var in self.values:
            return self.values[var]
        leaf = self.leaf_of[var]
        copy = Value(self._aval_of_operand(var), trainable=leaf.role is Role.DIFFERENTIATED)
        self.copies.setdefault(leaf, {})[copy] = number
        return copy

    def _aval_of_operand(self, var: jaxpr.Var) -> Aval:
        """Returns the aval under which a stage gets a value: all micro-batches of what is split."""
        leaf = self.leaf_of.get(var)
        if leaf is None or leaf.role is not Role.SPLIT:
            return aval_of(var)
        count = self.request.micro_batches
        return jax.ShapeDtypeStruct((count, *shape_of(var.aval)), aval_of(var).dtype)

    def _create_state(self, number: int, outputs: Sequence[int]) -> list[Value]:
        """Creates a stage's state: the micro-batch's number, sums and stacks; [] for none."""
        leaves = [self.leaf_of[v] for v in self.reads[number] if v in self.leaf_of]
        if not outputs and not any(a.role in (Role.SPLIT, Role.FOLDED) for a in leaves):
            return []
        names = [f"micro-batch of stage {number}", *map(self._name_of_output, outputs)]
        avals = [jax.ShapeDtypeStruct((), jnp.int32), *map(self._aval_of_buffer, outputs)]
        states = list(map(Value, avals))
        self.state.update(zip(names, states, strict=True))
        return states

    # --- outputs ----------------------------------------------------------------------------------

    def _is_loss(self, output: int) -> bool:
        return self.function.has_loss and output == 0

    def _name_of_output(self, output: int) -> str:
        """Returns the name, in the state, of the buffer of an output."""
        return "loss" if self._is_loss(output) else f"output {output - self.function.has_loss}"

    def _aval_of_buffer(self, output: int) -> Aval:
        aval = self.body.outvars[output].aval
        if self._is_loss(output):
            return jax.ShapeDtypeStruct((), dtype_of_sum(aval))
        return jax.ShapeDtypeStruct((self.request.micro_batches, *shape_of(aval)), aval.dtype)

    def _add_output(
        self, output: int, buffer: jax.Array, array: jax.Array, index: jax.Array
    ) -> jax.Array:
        """Adds a loss to its sum, or puts another output where its micro-batch belongs."""
        if self._is_loss(output):
            return buffer + array.astype(buffer.dtype)
        return lax.dynamic_update_index_in_dim(
            buffer, array, index, 0, allow_negative_indices=False
        )


def take_micro_batch(role: Role, array: jax.Array, index: jax.Array) -> jax.Array:
    """Returns the part of an argument that belongs to the micro-batch of a number.

    Args:
      role: of the argument.
      array: the argument, with micro-batches along axis 0 if it is split.
      index: the number of the micro-batch.
    """
    if role is Role.SPLIT:
        return lax.dynamic_index_in_dim(
            array, index, 0, keepdims=False, allow_negative_indices=False
        )
    if role is Role.FOLDED:
        return jax.random.fold_in(array, index)
    return array


def _list_equations_of_whole_leaves(
    function: TracedFunction, assignment: StageAssignment
) -> set[int]:
    """Returns the `id`s of the equations that each stage makes for itself.

    They are not marked, and depend on nothing but leaves that are the same for all micro-batches,
    such as casts of parameters.
    """
    leaves = function.leaves_by_variable()
    known = {v for v, a in leaves.items() if a.role in (Role.DIFFERENTIATED, Role.WHOLE)}
    free: set[int] = set()
    for eqn in function.closed.jaxpr.eqns:
        is_known = known.issuperset(pipelines.unique_variables(eqn.invars))
        if is_known and not assignment.is_marked(eqn) and not eqn.effects:
            free.add(id(eqn))
            known.update(eqn.outvars)
    return free
