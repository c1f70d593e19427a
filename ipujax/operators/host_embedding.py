"""Embeddings: lookups in tables on the device, and in tables that stay on the host."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Iterable, Sequence
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from ipujax.ground import PyTree, check, parse_dtype, values_if_known
from ipujax.operators.embedding.embedding_optimizers import (
    HostEmbeddingOptimizerSpec as HostEmbeddingOptimizerSpec,
)
from ipujax.operators.embedding.embedding_optimizers import (
    HostEmbeddingSGDGAOptimizerSpec as HostEmbeddingSGDGAOptimizerSpec,
)
from ipujax.operators.embedding.host_table import HostTable
from ipujax.operators.embedding.initial import initialize_table
from lowering import jaxpr, ops

STRATEGIES = ("TOKEN", "ENCODING")


@check.guard
def embedding_lookup(
    params: PyTree,
    ids: ArrayLike,
    name: str | None = None,
    serialization_factor: int = 1,
    *,
    indices_are_sorted: bool = False,
) -> jax.Array:
    """Looks up rows of a table on the device (seed 001, 18.14.12).

    The gradient adds each row's gradients up, by a scatter.

    Args:
      params: the table, `[rows, ...]`.
      ids: which rows, integers of any shape; one that is no row stands for the nearest.
      name: a named scope for the operation.
      serialization_factor: into how many equal parts of `params` the lookup is broken up, one
        after the other. That takes more time, and less memory where something else uses `params`
        in other ways. The gradient is one scatter all the same, as in the original.
      indices_are_sorted: a promise that the flat ids ascend, which lookups may be faster for.

    Returns:
      `[*ids.shape, *params.shape[1:]]`, of the dtype of `params`.

    Raises:
      OperatorError: (a `ValueError`) for a table without rows, ids that are no integers, ids
        outside of the table if they are known while tracing, and a serialization factor less than
        1 (fact `embedding.factor_min`) or that does not divide the rows.
      ConfigTypeError: (a `TypeError`) for a factor that is no int, or a flag that is no bool.
    """
    is_sorted = check.require_flag(indices_are_sorted, "the indices_are_sorted of embedding_lookup")
    table = check.require_array(params, "the params of embedding_lookup")
    if not table.ndim or not len(table):
        raise check.value_error(
            f"the params of embedding_lookup have shape {list(table.shape)}",
            "give a table, whose first dimension is its rows, with at least one row",
        )
    parts = _check_serialization_factor(serialization_factor, len(table))
    flat = _clamp_indices(ids, "the ids of embedding_lookup", len(table)).reshape(-1)
    with check.operator_scope(name):
        flat = jnp.clip(flat, 0, len(table) - 1)
        lookup = _gather_rows if parts == 1 else functools.partial(_look_up_in_parts, parts)
        looked_up_rows = lookup(is_sorted, table, flat)
        return looked_up_rows.reshape(*np.shape(ids), *table.shape[1:])


def _check_serialization_factor(factor: object, rows: int) -> int:
    argument = "the serialization_factor of embedding_lookup"
    parts = check.require_integer(factor, argument, 1)
    if rows % parts:
        raise check.value_error(
            f"{argument} is {parts}, but it must divide the {rows} rows of the table",
            "use a divisor, or give the table more rows",
        )
    return parts


def _gather_rows(is_sorted: bool, table: jax.Array, flat: jax.Array) -> jax.Array:
    return table.at[flat].get(
        mode="promise_in_bounds", indices_are_sorted=is_sorted, wrap_negative_indices=False
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _look_up_in_parts(parts: int, is_sorted: bool, table: jax.Array, flat: jax.Array) -> jax.Array:
    """Looks rows up in one part of the table after the other."""
    length = len(table) // parts
    table_parts = table.reshape(parts, length, *table.shape[1:])
    numbers = jnp.arange(parts, dtype=flat.dtype)

    def look_up_part(rows: jax.Array, entry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        part, number = entry
        rows_in_part = flat - number * length
        inside = (rows_in_part >= 0) & (rows_in_part < length)
        part_rows = _gather_rows(is_sorted, part, jnp.clip(rows_in_part, 0, length - 1))
        return jnp.where(inside.reshape(-1, *(1,) * (table.ndim - 1)), part_rows, rows), None

    nothing = jnp.zeros((len(flat), *table.shape[1:]), table.dtype)
    return jax.lax.scan(look_up_part, nothing, (table_parts, numbers))[0]


@_look_up_in_parts.defjvp
def _look_up_jvp(parts: int, is_sorted: bool, primals: PyTree, tangents: PyTree) -> PyTree:
    _, flat = primals
    return _look_up_in_parts(parts, is_sorted, *primals), _gather_rows(is_sorted, tangents[0], flat)


def _clamp_indices(indices: ArrayLike, argument: str, rows: int | None) -> jax.Array:
    """Returns indices clamped to int32; known ones must be inside of the table, if it is given.

    Raises:
      OperatorError: they are no integers, or outside.
    """
    values = values_if_known(indices)
    numbers = jnp.asarray(indices) if values is None else values
    if not jnp.issubdtype(numbers.dtype, jnp.integer):
        raise check.value_error(
            f"{argument} have dtype {numbers.dtype}", "give integers, int32 say"
        )
    if rows is not None and values is not None:
        outside = values[(values < 0) | (values >= rows)]
        if outside.size:
            raise check.value_error(
                f"{argument} contain {outside.flat[0]}, but the table has {rows} rows",
                f"rows are counted from 0 to {rows - 1}",
            )
    limits, narrow = jnp.iinfo(numbers.dtype), jnp.iinfo(jnp.int32)
    if limits.max > narrow.max:
        numbers = numbers.clip(max(limits.min, narrow.min), narrow.max)
    return jnp.asarray(numbers, jnp.int32)


@check.guard
class HostEmbedding:
    """A table that stays on the host; compiled code looks rows up (seed 001, 18.14.12).

    The device's memory holds the rows that are looked up, never the table. To train it, compiled
    code differentiates with respect to `handle`, given to `lookup`::

        def loss(weights, handle, tokens):
            return model(weights, embedding.lookup(tokens, handle=handle))

        gradients = jax.grad(loss, argnums=(0, 1))(weights, embedding.handle, tokens)

    The handle's gradient is zero; on the way to it the rows' gradients are sent to the host, where
    `optimizer_spec` applies them, those of each lookup once. Lookups and updates happen in the
    order of the program: in a loop an iteration sees the updates of those before, while a lookup
    that is differentiated as a part of a larger function, such as a scan, sees none of that
    function's.

    In a pipeline they happen as it runs: engine "replay" follows the schedule, so that a
    micro-batch may not see the updates of the ones just before it, and engine "fused" runs one
    micro-batch after the other. `HostEmbeddingSGDGAOptimizerSpec` with the pipeline's number of
    micro-batches applies them at its end, as the weights' gradients are, in either.

    With replicas, which then share a JAX device, the gradients of all of them are applied.

    Where replicas (or examples of `jax.vmap`) go different ways at a condition, or leave a loop at
    different times, JAX computes everything for all of them. Differentiate around the condition:
    those that go another way then send nothing. A derivative taken inside of the branch or the
    loop's body is sent for all. Nor may two branches call one jitted function with a lookup, if
    each example is differentiated by itself.

    Attributes:
      table: what programs use of the table.

    Args:
      name: unique among the embeddings that are registered at a time; a warning is logged where
        there is another one of that name.
      embedding_tensor: an array, `[tokens, encoding]`, of floats; it is copied.
      partition_strategy: "TOKEN" or "ENCODING": along which axis replicas would share the table in
        remote buffers. Here one host holds it for all, so that results do not depend on it.
      optimizer_spec: how gradients are applied; None, or a learning rate of 0, for a table that is
        not trained: no gradients are sent then.

    Raises:
      OperatorError: (a `ValueError`) for another strategy (fact `host_embedding.bad_strategy`),
        what is no array (fact `host_embedding.bad_tensor`), or is not of rank 2, or not of floats,
        and a spec that is none.
      ConfigTypeError: (a `TypeError`) for a name that is no text.
    """

    def __init__(
        self,
        name: str,
        embedding_tensor: ArrayLike,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ):
        check.require_text(name, "the name of a host embedding")
        argument = f"the partition_strategy of host embedding `{name}`"
        check.require_one_of(partition_strategy, STRATEGIES, argument)
        if optimizer_spec is not None and not isinstance(
            optimizer_spec, HostEmbeddingOptimizerSpec
        ):
            raise check.value_error(
                f"the optimizer_spec of host embedding `{name}` is {optimizer_spec!r}",
                "give a HostEmbeddingOptimizerSpec, a HostEmbeddingSGDGAOptimizerSpec, or None",
            )
        values = _check_embedding_tensor(embedding_tensor, name)
        self.name, self.partition_strategy = name, partition_strategy
        self.optimizer_spec = optimizer_spec
        dtype = jax.dtypes.canonicalize_dtype(values.dtype)
        self.table = HostTable(name, np.array(values, dtype, order="C"), optimizer_spec)
        self.table.take_name()

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> NoReturn:
        """Raises an error that says to call `lookup`: an embedding is no function.

        Raises:
          ConfigTypeError: (a `TypeError`) always; it says what to call instead.
        """
        raise check.type_error(
            f"host embedding `{self.name}` was called as a function",
            "call `embedding.lookup(indices)` in compiled code, and run that inside of "
            "`with embedding.register():`",
        )

    @property
    def handle(self) -> jax.Array:
        """The float32 scalar 0 with respect to which to differentiate, to train the table."""
        return jnp.zeros((), jnp.float32)

    def get_embedding_tensor(self) -> np.ndarray:
        """Returns a copy of the table, after all programs that have been started."""
        return self.table.copy_values()

    @contextlib.contextmanager
    def register(self, session: None = None) -> Generator[HostEmbedding]:
        """Lets programs look this embedding up inside the `with` block, from any thread.

        Leaving the block waits for programs that have been started in it. Gradients that wait to
        be accumulated with later ones go on waiting, for the next block. If rows were looked up,
        and there is an optimizer, but no lookup was ever given the handle, a warning is logged.

        Args:
          session: must be None; there are no sessions.

        Raises:
          FailedPreconditionError: (a `RuntimeError`) an embedding of this name is registered. A
            program that is run outside of the block raises it too (fact
            `host_embedding.not_registered`).
          ConfigTypeError: (a `TypeError`) if a session is given.
        """
        if session is not None:
            raise check.type_error(f"register got the session {session!r}", "leave it out")
        self.table.register_table()
        try:
            yield self
        finally:
            self.table.deregister_table()
        self.table.warn_if_idle()

    def lookup(
        self, indices: ArrayLike, clip_indices: bool = True, *, handle: object = None
    ) -> jax.Array:
        """Looks up the rows at indices from compiled code.

        Args:
          indices: which rows, integers of any shape.
          clip_indices: whether an index that is no row stands for the nearest; without it, such
            an index ends the program with an `OperatorError`.
          handle: `handle` of this embedding, or the traced value of it, to train the table; None
            only looks up. Without an `optimizer_spec`, or with a learning rate of 0, it changes
            nothing: its gradient is zero, and none is sent.

        Returns:
          `[*indices.shape, encoding]`, of the table's dtype.

        Raises:
          OperatorError: (a `ValueError`) for indices that are no integers, or outside of the table
            without `clip_indices` if they are known while tracing, or a handle that is no float32
            scalar.
          ConfigTypeError: (a `TypeError`) if `clip_indices` is no bool.
        """
        clips = check.require_flag(clip_indices, "the clip_indices of lookup")
        rows = len(self.table.values)
        row_numbers = _clamp_indices(
            indices, f"the indices for `{self.name}`", None if clips else rows
        )
        scalar = (
            self.handle
            if handle is None
            else check.require_array(handle, f"the handle for `{self.name}`")
        )
        if scalar.shape != () or scalar.dtype != jnp.float32:
            raise check.value_error(
                f"the handle for `{self.name}` is {scalar.dtype}{list(scalar.shape)}",
                "give `embedding.handle`, a float32 scalar",
            )
        with jax.named_scope(self.name):
            inside = jnp.clip(row_numbers, 0, rows - 1) if clips else row_numbers
            site = self.table.add_lookup_site(jaxpr.current_user_line(), handle is not None)
            return ops.look_up_rows(self.table, inside, scalar, site)


@check.guard
def create_host_embedding(
    name: str,
    shape: Sequence[int],
    dtype: DTypeLike,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: object = None,
) -> HostEmbedding:
    """Makes a host embedding, and the table for it (seed 001, 18.14.12).

    Args:
      name: as for `HostEmbedding`; randomness is drawn from it as well.
      shape: `[tokens, encoding]`.
      dtype: floats.
      partition_strategy: as for `HostEmbedding`.
      optimizer_spec: as for `HostEmbedding`.
      initializer: a function `(key, shape, dtype)`, such as those of `jax.nn.initializers`, or
        `(shape, dtype)`; or an array, or a number. None draws uniformly from +-sqrt(6 / (tokens +
        encoding)), in pieces, so that a large table needs no memory beside its own.

    Raises:
      OperatorError: (a `ValueError`) as for `HostEmbedding`, and for an initializer that gives
        another shape.
      ConfigTypeError: (a `TypeError`) as for `HostEmbedding`, and for what is no initializer, no
        dtype or no shape.
    """
    argument = f"the shape of host embedding `{name}`"
    if not isinstance(shape, Iterable):
        raise check.wrong_type_error("a list of two lengths", shape, argument)
    lengths = [
        check.require_integer(length, argument)
        for length in check.require_bounded_entries(shape, argument, most=64)
    ]
    if any(length < 0 for length in lengths):
        raise check.value_error(f"{argument} is {lengths}", "give lengths of axes")
    nothing = np.broadcast_to(np.zeros((), _check_table_dtype(dtype, name)), lengths)
    embedding = HostEmbedding(name, nothing, partition_strategy, optimizer_spec)
    initialize_table(embedding.table.values, initializer, name)
    return embedding


def _check_table_dtype(dtype: DTypeLike, name: str) -> np.dtype[np.generic]:
    parsed_dtype = parse_dtype(dtype)
    if parsed_dtype is None:
        description = f"the dtype of host embedding `{name}` is {dtype!r}"
        raise check.type_error(description, "give jnp.float32, say")
    return parsed_dtype


def _check_embedding_tensor(tensor: object, name: str) -> np.ndarray:
    argument = f"the embedding_tensor of host embedding `{name}`"
    values = values_if_known(tensor) if isinstance(tensor, (np.ndarray, jax.Array)) else None
    if values is None:
        raise check.value_error(
            f"{argument} is a {type(tensor).__name__}",
            "give an array of NumPy or JAX whose values are there",
        )
    if values.ndim != 2 or not len(values):
        raise check.value_error(
            f"{argument} has shape {list(values.shape)}",
            "give it two dimensions, tokens and encoding, and at least one token",
        )
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise check.value_error(
            f"{argument} is {values.dtype}", "give floats: float32, float16 or bfloat16"
        )
    return values
