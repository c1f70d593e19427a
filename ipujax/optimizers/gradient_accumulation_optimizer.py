"""Gradients of several mini-batches, accumulated and applied once."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.errors import OptimizerError, OptimizerTypeError
from ipujax.gradient_accumulation import GradientAccumulationReductionMethod, parse_reduction_method
from ipujax.optimizers import accumulation
from ipujax.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipujax.optimizers.ipu_optimizer import IpuOptimizer, check, is_none, map_gradients
from ipujax.optimizers.trained_leaves import check_gradients, step_trained
from lowering import ops

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationState",
]


def __dir__() -> list[str]:
    return __all__


@check.guard
class GradientAccumulationState(NamedTuple):
    """The state of an accumulating optimizer.

    Attributes:
      mini_step: mini-batches accumulated since the last update, int32.
      accumulated: their gradients, in the structure of the parameters.
      inner_state: of the wrapped optimizer.
    """

    mini_step: Any
    accumulated: Any
    inner_state: Any


@check.guard
class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Adds up the gradients of several mini-batches and applies the wrapped optimizer to the sum.

    Of every `num_mini_batches` calls of `update`, the last one applies the accumulated gradients;
    the others return zeros, and leave the wrapped optimizer's state as it is. Compiled code must
    call it in `loops.repeat` (or a pipeline that repeats), with a number of iterations that
    `num_mini_batches` divides. It is a plain transformation elsewhere.

    Args:
      opt: an optax transformation.
      num_mini_batches: mini-batches per update, at least 1.
      offload_weight_update_variables: keep the wrapped optimizer's state in remote memory between
        updates; None does so where the system has any, as the original does. Leaves under
        `IPUConfig.optimizations.minimum_remote_tensor_size` bytes stay.
      replicated_optimizer_state_sharding: each replica keeps an equal part of the state that is
        offloaded; None stands for the value of `offload_weight_update_variables`.
      dtype: of the accumulators, and of the gradients that the wrapped optimizer sees: None for
        the variables' own, a dtype, or a function from a variable to one.
      name: a named scope for what applying gradients computes.
      reduction_method: a `GradientAccumulationReductionMethod` or its name; a later release of
        the original has it.

    Raises:
      OptimizerTypeError: (a `TypeError`) an argument of a wrong type.
      OptimizerError: (a `ValueError`) a count under 1, or state sharded but not offloaded; from
        `update` in compiled code, no loop or one of the wrong length.
    """

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        name: str | None = "GradientAccumulationOptimizerV2",
        *,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(opt, name)
        of = f"of {type(self).__name__}"
        self._count = check.integer(num_mini_batches, f"the num_mini_batches {of}", 1)
        what = f"the offload_weight_update_variables {of}"
        offload = check.optional_flag(offload_weight_update_variables, what)
        what = f"the replicated_optimizer_state_sharding {of}"
        sharded = check.optional_flag(replicated_optimizer_state_sharding, what)
        is_sharded = bool(offload if sharded is None else sharded)
        self._storage = accumulation.storage_of(offload, is_sharded, OptimizerError)
        self._dtype = accumulation.dtype_chooser(
            dtype, f"the dtype {of}", jnp.inexact, OptimizerTypeError
        )
        self._reduction = parse_reduction_method(reduction_method)

    def init(self, params: Any) -> GradientAccumulationState:
        """Empty accumulators, and the wrapped optimizer's initial state."""
        return GradientAccumulationState(
            mini_step=jnp.zeros((), jnp.int32),
            accumulated=jax.tree.map(
                lambda variable: jnp.zeros(jnp.shape(variable), self._dtype(variable)), params
            ),
            inner_state=super().init(params),
        )

    def apply_gradients(self, gradients: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        """Accumulates the gradients of one mini-batch; the last one of an update applies them all.

        Args:
          gradients: of one mini-batch.
          state: a `GradientAccumulationState`.
          params: the parameters, if the wrapped transformation wants them.
          extra: handed on.

        Returns:
          `(updates, state)`; the updates are zeros until the update is due.

        Raises:
          OptimizerError: (a `ValueError`) in compiled code, outside a loop or in one whose length
            is no multiple; the wrapped optimizer turns its state into another dtype; or gradients
            that do not belong to the variables.
          OptimizerTypeError: (a `TypeError`) the state of another optimizer.
        """
        accumulation.check_loop(type(self).__name__, self._count)
        if not isinstance(state, GradientAccumulationState):
            raise check.refuse_type(
                f"the state of {type(self).__name__} is a GradientAccumulationState, not a "
                f"{type(state).__name__}",
                "pass what its `init` or its last `update` returned",
            )
        known = state.accumulated if params is None else params
        check_gradients(f"apply_gradients of {type(self).__name__}", gradients, known)

        def accumulate(gradients: Any, state: Any, params: Any) -> Any:
            return self._accumulate(gradients, state, params, **extra)

        return step_trained(accumulate, self, gradients, state, params)

    def _accumulate(
        self, gradients: Any, state: GradientAccumulationState, params: Any, **extra: Any
    ) -> tuple[Any, GradientAccumulationState]:
        """Adds gradients of trained leaves up, and applies the sums when they are due."""
        step, empty, inner = jax.tree.map(jnp.asarray, state)
        add, method, count = accumulation.added, self._reduction, self._count
        sums = map_gradients(lambda g, t: add(t, g, method, count, step), gradients, empty)

        def applied() -> Any:
            loaded = jax.tree.map(lambda leaf: ops.load(leaf, self._storage), inner)
            updates, new = IpuOptimizer.apply_gradients(self, sums, loaded, params, **extra)
            new = accumulation.like(new, inner)
            return updates, jax.tree.map(lambda leaf: ops.store(leaf, self._storage), new)

        def due() -> Any:
            return *applied(), jax.tree.map(jnp.zeros_like, sums)

        def waits() -> Any:
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes[0]), inner, sums

        shapes = jax.eval_shape(applied)
        # The predicate is the same on all replicas, so that collectives may be in the branch.
        updates, inner, sums = lax.cond(step + 1 == count, due, waits)
        kept = jax.tree.map(lambda s, e: e if s is None else s, sums, empty, is_leaf=is_none)
        return updates, GradientAccumulationState((step + 1) % count, kept, inner)

    def wrapped_state(self, state: Any) -> Any:
        """The wrapped optimizer's part of the state."""
        return state.inner_state


@check.guard
class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """`GradientAccumulationOptimizerV2` whose accumulated gradients are averaged over replicas.

    Replicas exchange gradients once per update, not once per mini-batch.

    Args:
      opt: an optax transformation.
      num_mini_batches: as in `GradientAccumulationOptimizerV2`, like all that follow.
      offload_weight_update_variables: see there.
      replicated_optimizer_state_sharding: see there.
      dtype: see there.
      name: see there.
      reduction_method: over mini-batches; over replicas it is always the mean.

    Raises:
      OptimizerTypeError: (a `TypeError`) an argument of a wrong type.
      OptimizerError: (a `ValueError`) as `GradientAccumulationOptimizerV2`.
    """

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: Any = None,
        name: str | None = "CrossReplicaGradientAccumulationOptimizerV2",
        *,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            name,
            reduction_method=reduction_method,
        )


@check.guard
class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """Adds up gradients for gradient descent, with or without momentum.

    As `GradientAccumulationOptimizerV2` without its options. The original folded the momentum into
    the accumulator, which gives the same numbers.

    Args:
      opt: `optax.sgd(...)`, or what keeps no more state than it does.
      num_mini_batches: mini-batches per update, at least 1.
      verify_usage: refuse transformations whose state shows that they are anything else (Adam's
        moments do; one without state cannot be told apart).
      name: a named scope for what applying gradients computes.
      reduction_method: as in `GradientAccumulationOptimizerV2`.

    Raises:
      OptimizerTypeError: (a `TypeError`) an argument of a wrong type.
      OptimizerError: (a `ValueError`) a count under 1, or another kind of optimizer; from
        `update`, as `GradientAccumulationOptimizerV2`.
    """

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str | None = "GradientAccumulationOptimizer",
        *,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(opt, num_mini_batches, name=name, reduction_method=reduction_method)
        self._verify = check.flag(verify_usage, f"the verify_usage of {type(self).__name__}")
        state: Any = None
        # A transformation may insist on the real parameters, which only `init` is given.
        with contextlib.suppress(Exception):
            state = jax.eval_shape(self.wrapped.init, jnp.zeros(()))
        self._verify_state(state)

    def init(self, params: Any) -> GradientAccumulationState:
        """As `GradientAccumulationOptimizerV2.init`, with the usage verified."""
        state = super().init(params)
        self._verify_state(state.inner_state)
        return state

    def _verify_state(self, state: Any) -> None:
        other = accumulation.other_than_momentum(state) if self._verify else None
        if other is not None:
            raise check.refuse(
                f"{type(self).__name__} supports gradient descent with or without momentum only, "
                f"but the state of the optimizer that it wraps has a {other}",
                "use GradientAccumulationOptimizerV2, which takes any optimizer; or pass "
                "verify_usage=False",
            )


@check.guard
class CrossReplicaGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """`GradientAccumulationOptimizer` whose accumulated gradients are averaged over replicas.

    Replicas exchange gradients once per update, not once per mini-batch.

    Args:
      opt: as in `GradientAccumulationOptimizer`, like all that follow.
      num_mini_batches: see there.
      verify_usage: see there.
      name: see there.
      reduction_method: over mini-batches; over replicas it is always the mean.

    Raises:
      OptimizerTypeError: (a `TypeError`) an argument of a wrong type.
      OptimizerError: (a `ValueError`) as `GradientAccumulationOptimizer`.
    """

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str | None = "CrossReplicaGradientAccumulationOptimizer",
        *,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            verify_usage,
            name,
            reduction_method=reduction_method,
        )
