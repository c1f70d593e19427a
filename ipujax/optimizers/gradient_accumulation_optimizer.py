"""The optimizers that accumulate the gradients of several mini-batches, and apply them once."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.typing import DTypeLike

from ipujax.ground import OptimizerError, OptimizerTypeError, PyTree
from ipujax.optimizers import accumulation
from ipujax.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipujax.optimizers.ipu_optimizer import IpuOptimizer, check, map_gradients
from ipujax.optimizers.reduction_method import (
    GradientAccumulationReductionMethod,
    parse_reduction_method,
)
from ipujax.optimizers.trained_leaves import check_gradients, is_none, run_step_on_trained
from lowering import ops


@check.guard
class GradientAccumulationState(NamedTuple):
    """The state of an accumulating optimizer.

    Attributes:
      mini_step: mini-batches accumulated since the last update, int32.
      accumulated: the accumulators, in the structure of the parameters.
      inner_state: the state of the wrapped optimizer.
    """

    mini_step: PyTree
    accumulated: PyTree
    inner_state: PyTree


@check.guard
class GradientAccumulationOptimizerV2(IpuOptimizer):
    """An optimizer that adds up gradients of mini-batches and applies another one to the sum.

    Of every `num_mini_batches` calls of `update`, the last one applies the accumulated gradients;
    the others return zeros, and leave the wrapped optimizer's state as it is. Compiled code must
    call it in `loops.repeat` (or a pipeline that repeats), with a number of iterations that
    `num_mini_batches` divides. It is a plain transformation elsewhere.

    Args:
      opt: an optax transformation.
      num_mini_batches: mini-batches per update, at least 1.
      offload_weight_update_variables: keep the wrapped optimizer's state in streaming memory
        between updates; None does so where the system has any, as the original does. Leaves under
        `IPUConfig.optimizations.minimum_remote_tensor_size` bytes stay.
      replicated_optimizer_state_sharding: each replica keeps an equal part of the state that is
        offloaded; None stands for the value of `offload_weight_update_variables`.
      dtype: the dtype of the accumulators, and of the gradients that the wrapped optimizer sees:
        None for the variables' own, a dtype, or a function from a variable to one.
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
        opt: optax.GradientTransformation,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: DTypeLike | None = None,
        name: str | None = "GradientAccumulationOptimizerV2",
        *,
        reduction_method: GradientAccumulationReductionMethod
        | str = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(opt, name)
        owner = f"of {type(self).__name__}"
        self._count = check.require_integer(num_mini_batches, f"the num_mini_batches {owner}", 1)
        argument_name = f"the offload_weight_update_variables {owner}"
        offload = check.require_optional_flag(offload_weight_update_variables, argument_name)
        argument_name = f"the replicated_optimizer_state_sharding {owner}"
        sharding = check.require_optional_flag(replicated_optimizer_state_sharding, argument_name)
        is_sharded = bool(offload if sharding is None else sharding)
        self._storage = accumulation.choose_state_storage(offload, is_sharded, OptimizerError)
        self._dtype = accumulation.make_dtype_chooser(
            dtype, f"the dtype {owner}", jnp.inexact, OptimizerTypeError
        )
        self._reduction = parse_reduction_method(reduction_method)

    def init(self, params: PyTree) -> GradientAccumulationState:
        """Returns empty accumulators, and the wrapped optimizer's initial state."""
        return GradientAccumulationState(
            mini_step=jnp.zeros((), jnp.int32),
            accumulated=jax.tree.map(
                lambda variable: jnp.zeros(jnp.shape(variable), self._dtype(variable)), params
            ),
            inner_state=super().init(params),
        )

    def apply_gradients(
        self, gradients: PyTree, state: PyTree, params: PyTree = None, **extra: object
    ) -> PyTree:
        """Accumulates gradients of a mini-batch; the last one of an update applies the sum.

        Args:
          gradients: the gradients of one mini-batch.
          state: a `GradientAccumulationState`.
          params: the parameters, if the wrapped transformation wants them.
          extra: further arguments of the wrapped optimizer.

        Returns:
          `(updates, state)`; the updates are zeros until the update is due.

        Raises:
          OptimizerError: (a `ValueError`) in compiled code, outside a loop or in one whose length
            is no multiple; the wrapped optimizer turns its state into another dtype; or gradients
            that do not belong to the variables.
          OptimizerTypeError: (a `TypeError`) the state of another optimizer.
        """
        accumulation.check_accumulation_loop(type(self).__name__, self._count)
        if not isinstance(state, GradientAccumulationState):
            raise check.type_error(
                f"the state of {type(self).__name__} is a GradientAccumulationState, not a "
                f"{type(state).__name__}",
                "pass what its `init` or its last `update` returned",
            )
        variables = state.accumulated if params is None else params
        check_gradients(f"apply_gradients of {type(self).__name__}", gradients, variables)

        def accumulate(gradients: PyTree, state: PyTree, params: PyTree) -> PyTree:
            return self._accumulate_and_apply(gradients, state, params, **extra)

        return run_step_on_trained(accumulate, self, gradients, state, params)

    def _accumulate_and_apply(
        self, gradients: PyTree, state: GradientAccumulationState, params: PyTree, **extra: object
    ) -> tuple[PyTree, GradientAccumulationState]:
        """Adds gradients of trained leaves up, and applies the sums when they are due."""
        step, old_sums, inner_state = jax.tree.map(jnp.asarray, state)
        add, method, count = accumulation.add_to_accumulator, self._reduction, self._count
        sums = map_gradients(lambda g, t: add(t, g, method, count, step), gradients, old_sums)

        def update_from_accumulated_gradients() -> PyTree:
            loaded_state = jax.tree.map(
                lambda leaf: ops.bring_from_storage(leaf, self._storage), inner_state
            )
            updates, new_state = IpuOptimizer.apply_gradients(
                self, sums, loaded_state, params, **extra
            )
            new_state = accumulation.cast_state_like(new_state, inner_state)
            return updates, jax.tree.map(
                lambda leaf: ops.move_to_storage(leaf, self._storage), new_state
            )

        def apply_and_clear() -> PyTree:
            return *update_from_accumulated_gradients(), jax.tree.map(jnp.zeros_like, sums)

        def keep_accumulating() -> PyTree:
            return (
                jax.tree.map(
                    lambda shape_struct: jnp.zeros(shape_struct.shape, shape_struct.dtype),
                    result_shapes[0],
                ),
                inner_state,
                sums,
            )

        result_shapes = jax.eval_shape(update_from_accumulated_gradients)
        # The predicate is the same on all replicas, so that collectives may be in the branch.
        updates, inner_state, sums = lax.cond(step + 1 == count, apply_and_clear, keep_accumulating)
        accumulators = jax.tree.map(
            lambda new_sum, old_sum: old_sum if new_sum is None else new_sum,
            sums,
            old_sums,
            is_leaf=is_none,
        )
        return updates, GradientAccumulationState((step + 1) % count, accumulators, inner_state)

    def state_of_wrapped_optimizer(self, state: PyTree) -> PyTree:
        """Returns the wrapped optimizer's part of the state."""
        return state.inner_state


@check.guard
class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """`GradientAccumulationOptimizerV2` whose accumulated gradients are averaged over replicas.

    Replicas exchange gradients once per update, not once per mini-batch.

    Args:
      opt: an optax transformation.
      num_mini_batches: as in `GradientAccumulationOptimizerV2`.
      offload_weight_update_variables: as in `GradientAccumulationOptimizerV2`.
      replicated_optimizer_state_sharding: as in `GradientAccumulationOptimizerV2`.
      dtype: as in `GradientAccumulationOptimizerV2`.
      name: as in `GradientAccumulationOptimizerV2`.
      reduction_method: over mini-batches; over replicas it is always the mean.

    Raises:
      OptimizerTypeError: (a `TypeError`) an argument of a wrong type.
      OptimizerError: (a `ValueError`) as `GradientAccumulationOptimizerV2`.
    """

    def __init__(
        self,
        opt: optax.GradientTransformation,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool | None = False,
        dtype: DTypeLike | None = None,
        name: str | None = "CrossReplicaGradientAccumulationOptimizerV2",
        *,
        reduction_method: GradientAccumulationReductionMethod
        | str = GradientAccumulationReductionMethod.SUM,
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
    """An optimizer that adds up gradients for gradient descent, with or without momentum.

    It is a `GradientAccumulationOptimizerV2` without its options. The original folded the momentum
    into the accumulator, with the same results.

    Args:
      opt: `optax.sgd(...)`, or a transformation that keeps no more state.
      num_mini_batches: mini-batches per update, at least 1.
      verify_usage: refuse transformations whose state shows that they are anything else (Adam's
        moments do; one without state cannot be recognised).
      name: a named scope for what applying gradients computes.
      reduction_method: as in `GradientAccumulationOptimizerV2`.

    Raises:
      OptimizerTypeError: (a `TypeError`) an argument of a wrong type.
      OptimizerError: (a `ValueError`) a count under 1, or another kind of optimizer; from
        `update`, as `GradientAccumulationOptimizerV2`.
    """

    def __init__(
        self,
        opt: optax.GradientTransformation,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str | None = "GradientAccumulationOptimizer",
        *,
        reduction_method: GradientAccumulationReductionMethod
        | str = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(opt, num_mini_batches, name=name, reduction_method=reduction_method)
        self._verify = check.require_flag(
            verify_usage, f"the verify_usage of {type(self).__name__}"
        )
        state: PyTree = None
        # A transformation may insist on the real parameters, which only `init` is given.
        with contextlib.suppress(Exception):
            state = jax.eval_shape(self.wrapped.init, jnp.zeros(()))
        self._verify_state(state)

    def init(self, params: PyTree) -> GradientAccumulationState:
        """Returns the initial state, after checking that it is one of momentum."""
        state = super().init(params)
        self._verify_state(state.inner_state)
        return state

    def _verify_state(self, state: PyTree) -> None:
        part_name = accumulation.find_state_beyond_momentum(state) if self._verify else None
        if part_name is not None:
            raise check.value_error(
                f"{type(self).__name__} supports gradient descent with or without momentum only, "
                f"but the state of the optimizer that it wraps has a {part_name}",
                "use GradientAccumulationOptimizerV2, which takes any optimizer; or pass "
                "verify_usage=False",
            )


@check.guard
class CrossReplicaGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """`GradientAccumulationOptimizer` whose accumulated gradients are averaged over replicas.

    Replicas exchange gradients once per update, not once per mini-batch.

    Args:
      opt: as in `GradientAccumulationOptimizer`.
      num_mini_batches: as in `GradientAccumulationOptimizer`.
      verify_usage: as in `GradientAccumulationOptimizer`.
      name: as in `GradientAccumulationOptimizer`.
      reduction_method: over mini-batches; over replicas it is always the mean.

    Raises:
      OptimizerTypeError: (a `TypeError`) an argument of a wrong type.
      OptimizerError: (a `ValueError`) as `GradientAccumulationOptimizer`.
    """

    def __init__(
        self,
        opt: optax.GradientTransformation,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str | None = "CrossReplicaGradientAccumulationOptimizer",
        *,
        reduction_method: GradientAccumulationReductionMethod
        | str = GradientAccumulationReductionMethod.SUM,
    ):
        super().__init__(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            verify_usage,
            name,
            reduction_method=reduction_method,
        )
