"""Python functions of single elements, applied to whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.errors import CustomOpError, IPUError
from ipujax.operators.custom.arguments import check
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


def traced(function: Callable[..., Any], arrays: Sequence[jax.Array]) -> jaxpr.ClosedJaxpr:
    """The function of one element of each array.

    Raises:
      CustomOpError: it looks at values, takes another number of elements, gives something else
        than one, or is no composition of operations on elements.
    """
    name = _name(function)
    scalars = [jax.ShapeDtypeStruct((), x.dtype, weak_type=jax.typeof(x).weak_type) for x in arrays]
    try:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*scalars)
    except IPUError:
        raise
    except (TypeError, ValueError, IndexError) as wrong:
        does, fix = next(text for kinds, *text in _MISTAKES if isinstance(wrong, kinds))
        reason = str(wrong).partition("\n")[0]
        raise check.refuse(f"{name} {does}: {reason}", fix) from wrong
    if jax.tree.structure(shape) != jax.tree.structure(0) or jax.tree.leaves(shape)[0].shape:
        what = f"{name} gives {shape} for one element of each array"
        raise check.refuse(what, "return one element")
    _check(closed.jaxpr, name)
    if any(np.shape(value) for value in closed.consts):
        what = f"{name} reads an array that is no argument of it"
        raise check.refuse(what, "give the array to codelet_expression_op as well")
    return closed


def applied(closed: jaxpr.ClosedJaxpr, function: Any, arrays: Sequence[jax.Array]) -> jax.Array:
    """A function of elements, applied to arrays that broadcast; an error when differentiated."""
    count = len(closed.consts)
    # Made here, so that it names the line of the call and not that of the derivative.
    error = check.refuse(
        f"codelet_expression_op({_name(function)}) has no gradient, and was differentiated",
        "write the expression in plain JAX where it is trained through, or stop the gradient of "
        "its arguments with jax.lax.stop_gradient",
    )

    @jax.custom_jvp
    def whole(*operands: jax.Array) -> jax.Array:
        def of_elements(*elements: Any) -> Any:
            return jaxpr.run_equations(closed.jaxpr, operands[:count], elements)[0]

        return jnp.vectorize(of_elements)(*operands[count:])

    @whole.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise error

    return whole(*closed.consts, *arrays)


def checked_arrays(args: Sequence[Any]) -> list[jax.Array]:
    """The arguments as arrays.

    Raises:
      CustomOpError: there are none, one is no array, or their shapes do not broadcast.
    """
    if not args:
        raise check.refuse("codelet_expression_op got no array", "give at least one")
    arrays = [check.array(each, "an argument of codelet_expression_op") for each in args]
    try:
        np.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError as wrong:
        shapes = ", ".join(str(x.shape) for x in arrays)
        raise check.refuse(
            f"codelet_expression_op got arrays that do not broadcast: {shapes}",
            "give arrays of equal shapes, or with extents of 1 where they differ",
        ) from wrong
    return arrays


def _check(body: jaxpr.Jaxpr, name: str) -> None:
    for eqn in body.eqns:
        operation = eqn.primitive.name
        if jaxpr.call_body(eqn) is not None:
            for inner in jaxpr.sub_jaxprs(eqn):
                _check(inner, name)
        elif operation not in machine.ELEMENTWISE and not _does_nothing(eqn):
            raise CustomOpError(
                f"{name} uses `{operation}`, which is no operation on elements",
                where=jaxpr.user_line(eqn) or jaxpr.current_user_line(),
                fix="an expression makes one element of one element of each argument; do the rest "
                "outside",
            )


def _does_nothing(eqn: jaxpr.JaxprEqn) -> bool:
    is_scalar = all(not shape_of(var.aval) for var in (*eqn.invars, *eqn.outvars))
    return eqn.primitive.name in _ALLOWED and is_scalar


def _name(function: Any) -> str:
    return f"`{getattr(function, '__name__', 'the expression')}`"
