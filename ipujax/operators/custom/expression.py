"""Applies Python functions of single elements to whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import CustomOpError, IPUError, PyTree
from ipujax.operators.custom.custom_op_arguments import check
from lowering import jaxpr, machine, shape_of

# What a function of scalars may hold beside operations on elements: calls, and what does nothing.
_ALLOWED = frozenset({"copy", "copy_p", "stop_gradient", "broadcast_in_dim", "squeeze", "reshape"})


# What JAX raises for a function that is none of elements; what the function does, and what to do.
_MISTAKES = (
    (
        jax.errors.TracerBoolConversionError,
        "decides by the value of an element",
        "choose with jnp.where",
    ),
    (
        (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError),
        "uses an element as a number of Python or NumPy",
        "use the functions of jax.numpy, such as jnp.sin for math.sin or np.sin",
    ),
    (
        Exception,
        "does not work on one element (a scalar) of each array",
        "take one scalar per array, and do what has axes outside of the expression",
    ),
)


def trace_elementwise(
    function: Callable[..., PyTree], arrays: Sequence[jax.Array]
) -> jaxpr.ClosedJaxpr:
    """Traces a function of one element of each array.

    Raises:
      CustomOpError: it looks at values, takes another number of elements, gives something else
        than one, or is no composition of operations on elements.
    """
    name = _expression_name(function)
    scalars = [jax.ShapeDtypeStruct((), x.dtype, weak_type=jax.typeof(x).weak_type) for x in arrays]
    try:
        closed, shape = jaxpr.make_jaxpr(function, return_shape=True)(*scalars)
    except IPUError:
        raise
    except (TypeError, ValueError, IndexError) as wrong:
        does, fix = next(text for kinds, *text in _MISTAKES if isinstance(wrong, kinds))
        reason = str(wrong).partition("\n")[0]
        raise check.value_error(f"{name} {does}: {reason}", fix) from wrong
    if jax.tree.structure(shape) != jax.tree.structure(0) or jax.tree.leaves(shape)[0].shape:
        problem = f"{name} gives {shape} for one element of each array"
        raise check.value_error(problem, "return one element")
    _check_elementwise(closed.jaxpr, name)
    if any(np.shape(value) for value in closed.consts):
        problem = f"{name} reads an array that is no argument of it"
        raise check.value_error(problem, "give the array to codelet_expression_op as well")
    return closed


def apply_elementwise(
    closed: jaxpr.ClosedJaxpr, function: object, arrays: Sequence[jax.Array]
) -> jax.Array:
    """Applies a traced function of elements to arrays that broadcast; it has no gradient."""
    count = len(closed.consts)
    # Made here, so that it names the line of the call and not that of the derivative.
    error = check.value_error(
        f"codelet_expression_op({_expression_name(function)}) has no gradient, and was "
        "differentiated",
        "write the expression in plain JAX where it is trained through, or stop the gradient of "
        "its arguments with jax.lax.stop_gradient",
    )

    @jax.custom_jvp
    def apply_to_all(*operands: jax.Array) -> jax.Array:
        def apply_to_elements(*elements: object) -> PyTree:
            return jaxpr.run_equations(closed.jaxpr, operands[:count], elements)[0]

        return jnp.vectorize(apply_to_elements)(*operands[count:])

    @apply_to_all.defjvp
    def refuse_derivative(primals: PyTree, tangents: PyTree) -> PyTree:
        raise error

    return apply_to_all(*closed.consts, *arrays)


def require_expression_arrays(args: Sequence[PyTree]) -> list[jax.Array]:
    """Returns the arguments of an expression as arrays.

    Raises:
      CustomOpError: there are none, one is no array, or their shapes do not broadcast.
    """
    if not args:
        raise check.value_error("codelet_expression_op got no array", "give at least one")
    arrays = [
        check.require_array(argument, "an argument of codelet_expression_op") for argument in args
    ]
    try:
        np.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError as wrong:
        shapes = ", ".join(str(x.shape) for x in arrays)
        raise check.value_error(
            f"codelet_expression_op got arrays that do not broadcast: {shapes}",
            "give arrays of equal shapes, or with extents of 1 where they differ",
        ) from wrong
    return arrays


def _check_elementwise(body: jaxpr.Jaxpr, name: str) -> None:
    for eqn in body.eqns:
        operation = eqn.primitive.name
        if jaxpr.body_of_call(eqn) is not None:
            for sub_jaxpr in jaxpr.sub_jaxprs(eqn):
                _check_elementwise(sub_jaxpr, name)
        elif operation not in machine.ELEMENTWISE and not _is_harmless_scalar_equation(eqn):
            raise CustomOpError(
                f"{name} uses `{operation}`, which is no operation on elements",
                where=jaxpr.user_line(eqn) or jaxpr.current_user_line(),
                fix="an expression makes one element of one element of each argument; do the rest "
                "outside",
            )


def _is_harmless_scalar_equation(eqn: jaxpr.JaxprEqn) -> bool:
    is_scalar = all(not shape_of(var.aval) for var in (*eqn.invars, *eqn.outvars))
    return eqn.primitive.name in _ALLOWED and is_scalar


def _expression_name(function: object) -> str:
    return f"`{getattr(function, '__name__', 'the expression')}`"
