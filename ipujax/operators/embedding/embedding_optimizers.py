"""The optimizers of host embeddings, whose gradients the host applies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
from jax.typing import ArrayLike

from ipujax.ground import check

SGD = "SGD"
SGD_ACCUMULATED = "SGD+GA"

_Change = Callable[[], None]


class _Table(Protocol):
    @property
    def register_table(self) -> _Change: ...

    @property
    def deregister_table(self) -> _Change: ...


@runtime_checkable
class Embedding(Protocol):
    """What the methods of an optimizer need of a `HostEmbedding`."""

    name: str
    partition_strategy: str

    @property
    def table(self) -> _Table:
        """The rows, and who may use them."""
        ...

    def lookup(self, indices: ArrayLike) -> jax.Array:
        """Returns rows."""
        ...


@check.guard
class HostEmbeddingOptimizerSpec:
    """Stochastic gradient descent, applied at once (seed 001, 18.14.12).

    Args:
      learning_rate: a row loses its gradient times this.
      optimizer_name: must be None or "SGD".

    Raises:
      OperatorError: (a `ValueError`) for a rate that is not finite, or another optimizer.
      ConfigTypeError: (a `TypeError`) for a rate that is no number.

    The original's methods that make TensorFlow instructions take the `HostEmbedding` as their
    tensor; `HostEmbedding.register` and `lookup` do all of it.
    """

    def __init__(self, learning_rate: float, optimizer_name: str | None = None):
        if optimizer_name not in (None, SGD):
            raise check.value_error(
                f"host embeddings have no optimizer {optimizer_name!r}",
                f"use {SGD!r}, or HostEmbeddingSGDGAOptimizerSpec to accumulate gradients",
            )
        self._learning_rate = _check_learning_rate(learning_rate)

    @property
    def optimizer_name(self) -> str:
        """The original's name: "SGD", or "SGD+GA" where gradients of several batches add up."""
        return SGD if self.get_accumulation_factor() == 1 else SGD_ACCUMULATED

    def get_learning_rate(self) -> float:
        """Returns the learning rate."""
        return self._learning_rate

    def get_accumulation_factor(self) -> int:
        """The number of batches whose gradients are summed before they are applied: 1."""
        return 1

    def create_slot_variables(self, embedding_tensor: Embedding, name: str) -> list[Any]:
        """Returns the variables that the optimizer keeps beside the table: none."""
        _check_embedding(embedding_tensor, (), name)
        return []

    def create_register_instruction(
        self, embedding_tensor: Embedding, slot_vars: Sequence[Any], name: str
    ) -> Callable[[], None]:
        """Returns a function that lets programs use an embedding, as its `register` does.

        Args:
          embedding_tensor: the `HostEmbedding`.
          slot_vars: what `create_slot_variables` gave: nothing.
          name: the embedding's name.

        Raises:
          OperatorError: (a `ValueError`) another name, or slot variables.
          ConfigTypeError: (a `TypeError`) for what is no `HostEmbedding`.
        """
        return _check_embedding(embedding_tensor, slot_vars, name).table.register_table

    def create_deregister_instruction(
        self, embedding_tensor: Embedding, slot_vars: Sequence[Any], name: str
    ) -> Callable[[], None]:
        """Returns a function that ends what `create_register_instruction`'s began."""
        return _check_embedding(embedding_tensor, slot_vars, name).table.deregister_table

    def create_lookup_instruction(
        self,
        embedding_tensor: Embedding,
        indices: ArrayLike,
        slot_vars: Sequence[Any],
        partition_strategy: str,
        name: str,
    ) -> jax.Array:
        """Looks rows up in compiled code, as `HostEmbedding.lookup` does.

        Args:
          embedding_tensor: the `HostEmbedding`.
          indices: integers, of any shape.
          slot_vars: what `create_slot_variables` gave: nothing.
          partition_strategy: the embedding's own.
          name: the embedding's name.

        Returns:
          `[*indices.shape, columns]`.
        """
        embedding = _check_embedding(embedding_tensor, slot_vars, name)
        own = (embedding.partition_strategy,)
        check.require_one_of(partition_strategy, own, f"the partition_strategy of `{name}`")
        return embedding.lookup(indices)


@check.guard
class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """Stochastic gradient descent with the summed gradients of several batches.

    Args:
      learning_rate: a row loses the sum of its gradients times this.
      accumulation_factor: batches until the gradients are applied; with 1 this is plain SGD (fact
        `host_embedding.ga_factor_one`). A batch is what one lookup reads at a time: each iteration
        of a loop and each micro-batch of a pipeline is one, or two if it looks up twice.

    Raises:
      OperatorError: (a `ValueError`) for a factor less than 1, or a rate that is not finite.
      ConfigTypeError: (a `TypeError`) for a rate that is no number, or a factor that is no int.
    """

    def __init__(self, learning_rate: float, accumulation_factor: int):
        super().__init__(learning_rate)
        argument = "the accumulation_factor of a host embedding"
        self._factor = check.require_integer(accumulation_factor, argument, 1)

    def get_accumulation_factor(self) -> int:
        """The number of batches whose gradients are summed before they are applied."""
        return self._factor


def _check_embedding(embedding: object, slot_vars: Sequence[Any], name: str) -> Embedding:
    if not isinstance(embedding, Embedding):
        raise check.type_error(
            f"the embedding_tensor of {name!r} is a {type(embedding).__name__}",
            "give the HostEmbedding, which holds the table: create_host_embedding(...)",
        )
    if embedding.name != name:
        raise check.value_error(
            f"the host embedding is called {embedding.name!r}, not {name!r}", "give its own name"
        )
    if len(slot_vars):
        raise check.value_error(
            f"host embedding {name!r} was given slot variables, and SGD has none", "give ()"
        )
    return embedding


def _check_learning_rate(value: object) -> float:
    argument = "the learning_rate of a host embedding"
    rate = check.require_number(value, argument, "give a number; schedules are not supported")
    if not math.isfinite(rate):
        raise check.value_error(f"{argument} is {value}", "give a finite number")
    return rate
