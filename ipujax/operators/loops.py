"""Loops on the device: for a fixed number of iterations, or while a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.ground import (
    ArrayChecks,
    LoopTypeError,
    PyTree,
    api_boundary,
    as_list,
    find_signature_mismatch,
    is_plain_list_or_tuple,
    parameter_names,
    structure_text,
    watch_iterators,
)
from ipujax.host import IPUInfeedQueue, trace_frames
from lowering import jaxpr, ops

_check = ArrayChecks(LoopTypeError, LoopTypeError)


@_check.guard
@api_boundary
def repeat(
    n: object,
    body: Callable[..., PyTree],
    inputs: PyTree = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> PyTree:
    """Runs `body` `n` times.

    Args:
      n: the number of iterations: an int, or an int32 scalar known at run time only. With an int
        the loop can be differentiated in reverse.
      body: takes the loop variables, then the infeed's element (positional, or by keyword if it is
        a dict), and returns the new loop variables in the same structure, shapes and dtypes.
      inputs: a list of initial loop variables, each a pytree of arrays; None for none. Anything
        that is no list or tuple is one loop variable.
      infeed_queue: gives `body` an element in each iteration.
      use_while_v1: chose between two kinds of TensorFlow loops, which were lowered alike; both
        values mean the same here.

    Returns:
      The final loop variables: one alone if there is one, otherwise a tuple (`()` for none).

    Raises:
      LoopTypeError: (a `TypeError`) a body with other arguments or results than the loop needs.
      OutOfRangeError: when run, if the data set ends before the loop.
    """
    _check.require_flag(use_while_v1, "use_while_v1")
    count = _check_trip_count(n)
    with trace_frames.trace_loop_body(count if isinstance(count, int) else None):
        loop = _Loop("repeat", body, inputs, infeed_queue)
    if not ops.uses_streams(loop.body):
        return loop.unflatten_result(_repeat_without_queues(loop, count))
    names = parameter_names(body, range(len(loop.variables)))
    final = ops.repeat_with_queues(
        loop.body, loop.consts, loop.initial, count, loop.structure, names=names
    )
    return loop.unflatten_result(final)


@_check.guard
@api_boundary
def while_loop(
    condition: Callable[..., PyTree],
    body: Callable[..., PyTree],
    inputs: PyTree = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: object = None,
    use_while_v1: bool = True,
) -> PyTree:
    """Runs `body` as long as `condition` holds.

    Args:
      condition: takes the loop variables (never an infeed's element), returns a boolean scalar.
      body: as in `repeat`.
      inputs: as in `repeat`.
      infeed_queue: as in `repeat`.
      maximum_iterations: stop after so many iterations whatever the condition says.
      use_while_v1: as in `repeat`.

    Returns:
      As `repeat`.

    Raises:
      LoopTypeError: (a `TypeError`) wrong signature of `condition` or `body`.
    """
    _check.require_flag(use_while_v1, "use_while_v1")
    _check.require_function(condition, "the condition of while_loop")
    loop = _Loop("while_loop", body, inputs, infeed_queue)
    _check_arity("the condition", condition, loop.variables)

    def evaluate_condition(carried: PyTree) -> PyTree:
        done, flat = carried
        answer = jnp.asarray(condition(*jax.tree.unflatten(loop.structure, flat)))
        if answer.shape != () or answer.dtype != jnp.bool_:
            raise LoopTypeError(
                f"the condition must return one boolean, not {answer.dtype}{list(answer.shape)}"
            )
        return answer if limit is None else answer & (done < limit)

    def run_body_and_count(carried: PyTree) -> PyTree:
        done, flat = carried
        stepped = jaxpr.run_equations(loop.body.jaxpr, (), [*loop.consts, *flat])
        # JAX would take variables that never change out of the loop; the error that a data set's
        # end raises has to find all of them there.
        return done + 1, [
            jnp.copy(new) if new is old else new for new, old in zip(stepped, flat, strict=True)
        ]

    limit = None if maximum_iterations is None else _check_trip_count(maximum_iterations)
    with watch_iterators(condition, "the condition of while_loop"):
        _, final = lax.while_loop(
            evaluate_condition, run_body_and_count, (jnp.int32(0), loop.initial)
        )
    return loop.unflatten_result(final)


class _Loop:
    """A loop whose body has been traced."""

    def __init__(
        self,
        name: str,
        body: Callable[..., PyTree],
        inputs: PyTree,
        infeed_queue: IPUInfeedQueue | None,
    ):
        _check.require_instance(infeed_queue, IPUInfeedQueue, "infeed_queue", optional=True)
        _check.require_function(body, f"the body of {name}")
        self.name = name
        self.variables = as_list(inputs)
        _check.require_array_leaves(self.variables, f"the loop variables of {name}")
        leaves, self.structure = jax.tree.flatten(tuple(self.variables))
        self.initial = [without_weak_type(leaf) for leaf in leaves]
        self.avals = [jax.typeof(leaf) for leaf in self.initial]
        element = infeed_queue.arguments() if infeed_queue else ([], {})
        _check_arity("the loop body", body, self.variables, element)

        def flat_body(*flat: PyTree) -> list[PyTree]:
            variables = jax.tree.unflatten(self.structure, flat)
            args, kwargs = (
                infeed_queue.take_traced_element(self.structure) if infeed_queue else ([], {})
            )
            return self._check_results(body(*variables, *args, **kwargs))

        with watch_iterators(body, f"the body of {name}"):
            self.body, self.consts = jaxpr.constants_to_arguments(
                jaxpr.trace_flat(flat_body, self.avals)
            )

    def _check_results(self, results: PyTree) -> list[PyTree]:
        """Returns the flat new loop variables, and checks that they fit the old ones."""
        variables = self._as_variables(results)
        leaves, structure = jax.tree.flatten(tuple(variables))
        if structure != self.structure:
            raise LoopTypeError(
                f"the body of {self.name} returned another structure than it got:\n"
                f"  got      {structure_text(self.structure)}\n"
                f"  returned {'nothing' if results is None else structure_text(structure)}",
                fix="return the loop variables in the order and structure of `inputs`",
            )
        arrays = [jnp.asarray(leaf) for leaf in leaves]
        for number, (array, aval) in enumerate(zip(arrays, self.avals, strict=True)):
            old_form = f"{aval.dtype}{list(aval.shape)}"
            new_form = f"{array.dtype}{list(array.shape)}"
            if new_form != old_form:
                raise LoopTypeError(
                    f"leaf {number} of the loop variables of {self.name} went in as {old_form} and "
                    f"came out of the body as {new_form}",
                    fix="keep shapes, and cast in the body (`.astype`) or the initial value",
                )
        return arrays

    def _as_variables(self, results: PyTree) -> list[PyTree]:
        count = len(self.variables)
        if count == 1:
            if (
                not is_plain_list_or_tuple(results)
                or jax.tree.structure((results,)) == self.structure
            ):
                return [results]
        # The original's bodies end with operations, such as what enqueue returned.
        values = as_list(results)
        while len(values) > count and values[-1] is None:
            values = values[:-1]
        return values

    def unflatten_result(self, flat: Sequence[PyTree]) -> PyTree:
        """Returns the loop's result in the structure of its inputs."""
        variables = jax.tree.unflatten(self.structure, flat)
        return variables[0] if len(variables) == 1 else variables


def _repeat_without_queues(loop: _Loop, count: object) -> Sequence[PyTree]:
    """Runs a loop without queues as one of JAX's own loops."""

    def run_body(carried: Sequence[PyTree]) -> list[PyTree]:
        return jaxpr.run_equations(loop.body.jaxpr, (), [*loop.consts, *carried])

    if isinstance(count, int):
        final, _ = lax.scan(lambda c, _: (run_body(c), None), loop.initial, None, length=count)
        return final
    return lax.fori_loop(0, count, lambda _, c: run_body(c), loop.initial)


def without_weak_type(leaf: PyTree) -> PyTree:
    """Returns a leaf as an array without a weak type, so that promotion keeps its dtype."""
    array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    weak = jax.typeof(array).weak_type
    return lax.convert_element_type(array, array.dtype) if weak else array


def _check_trip_count(n: PyTree) -> PyTree:
    """Returns a trip count: a Python int if it is known, else an int32 scalar."""
    if jaxpr.is_tracer(n):
        if n.shape == () and jnp.issubdtype(n.dtype, jnp.integer):
            return n.astype(jnp.int32)
    return _check.require_integer(n, "a number of iterations", 0)


def _check_arity(
    description: str,
    function: Callable[..., PyTree],
    variables: Sequence[PyTree],
    element: tuple[list[PyTree], dict[str, PyTree]] = ([], {}),
) -> None:
    args, kwargs = element
    if refusal := find_signature_mismatch(function, [*variables, *args], kwargs):
        signature, mismatch = refusal
        keywords = f" (by keyword: {', '.join(map(str, kwargs))})" if kwargs else ""
        raise LoopTypeError(
            f"{description} takes {signature}, but the loop has {len(variables)} input(s) and "
            f"{len(args) + len(kwargs)} infeed element(s){keywords}: {mismatch}"
        )
