"""Graphcore's custom operations: functions of a compiled library, and expressions over elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax

from ipujax.ground import CustomOpFileError, PyTree
from ipujax.ground import array_checks as operands
from ipujax.operators.custom import custom_op_calls, expression
from ipujax.operators.custom.custom_op_arguments import Gradients, check, check_custom_op_call
from ipujax.system import get_logger
from lowering import jaxpr


@check.guard
def codelet_expression_op(vertex_expression: Callable[..., PyTree], *args: PyTree) -> jax.Array:
    """Applies a Python expression to every element, as one fused operation.

    The function is traced with one element (a scalar) of each argument, so what it does cannot
    depend on the arguments' shapes; Python functions and operators, and all of `jax.numpy` and
    `jax.lax` that works on elements may be used.

    Args:
      vertex_expression: as many scalars as there are `args` -> one scalar.
      args: arrays of any dtypes, whose shapes broadcast as NumPy's do.

    Returns:
      An array of the broadcast shape, of the dtype that the expression gives.

    Raises:
      CustomOpError: (a `ValueError`) shapes that do not broadcast, an expression that does
        anything else than work on elements, or a derivative: there is none, as there was none in
        the original. `jax.lax.stop_gradient` on the arguments says that none is wanted.
      ConfigTypeError: (a `TypeError`) if `vertex_expression` is no function.

    Source: section 18.14.1; fact custom_ops.expression.
    """
    operands.check.require_function(vertex_expression, "vertex_expression")
    arrays = expression.require_expression_arrays(args)
    closed = expression.trace_elementwise(vertex_expression, arrays)
    return expression.apply_elementwise(closed, vertex_expression, arrays)


@check.guard
def cpu_user_operation(
    inputs: Sequence[PyTree],
    library_path: str | Path,
    outs: Mapping[str, object] | None = None,
    name: str = "UserOp",
    op_name: str = "Callback",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[jax.Array]:
    """Calls a compiled function on the host, with inputs from the IPU and results back to it.

    In a Program it is a host call between two kernels, with copies around it. Inside loops,
    conditions and pipelines it is a part of the kernel, during which the host works.

    Args:
      inputs: a list of arrays.
      library_path: a shared library that holds XLA FFI handlers as C symbols.
      outs: `{"output_types": [dtypes], "output_shapes": [shapes]}`; None for no results, in
        which case the function is called for what it does besides.
      name: what programs and reports call it.
      op_name: the handler's C symbol.
      separate_gradients: whether `<op_name>_grad_<i>` gives the gradient for input i, for each of
        them; otherwise `<op_name>_grad` gives all.
      inputs_with_gradients: numbers of the inputs that have gradients, in the order in which
        `<op_name>_grad` gives them; the others' are zero. None: all inputs.
      attributes: handed to the handler as its string attribute `attributes`; '' for None.
      gradient_attributes: the same, for gradient handlers.

    Returns:
      A list of arrays, one per entry of `outs`. Under `jax.vmap` the function is called for one
      example after the other.

    Raises:
      CustomOpError: (a `ValueError`) arguments that do not fit, a library that was built for
        something else, or a symbol that it lacks; that of a gradient is looked for when the
        gradient is taken.
      CustomOpFileError: (also a `FileNotFoundError`) there is no such library.

    Source: section 18.14.1; facts custom_ops.cpu_user_op, custom_ops.partial_gradients,
    custom_ops.api_level.
    """
    gradients = Gradients(separate_gradients, inputs_with_gradients, gradient_attributes)
    function, arrays = check_custom_op_call(
        inputs, library_path, outs, name, op_name, attributes, gradients
    )
    return custom_op_calls.call_user_function(function, arrays, on_host=True)


@check.guard
def precompiled_user_op(
    inputs: Sequence[PyTree],
    library_path: str | Path,
    gp_path: str | Path = "",
    outs: Mapping[str, object] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[jax.Array]:
    """Calls a compiled function as an operation of the IPU: a part of a kernel like any other.

    On devices other than CPUs its operands are copied to the host and its results back. The
    machine model knows nothing of what it does, and takes ten cycles per element of the largest
    array that it reads or writes; reports say so (source "default").

    Args:
      inputs: a list of arrays.
      library_path: a shared library that holds XLA FFI handlers as C symbols.
      gp_path: a precompiled codelet of the original. It must exist if given, but nothing is read
        from it, and a warning says so: the code is in the library.
      outs: as in `cpu_user_operation`, as are all that follow.
      name: what programs and reports call it.
      op_name: the handler's C symbol.
      separate_gradients: whether each input has a gradient handler of its own.
      inputs_with_gradients: numbers of the inputs that have gradients.
      attributes: handed to the handler.
      gradient_attributes: handed to gradient handlers.

    Returns:
      A list of arrays, one per entry of `outs`.

    Raises:
      CustomOpError: (a `ValueError`) as `cpu_user_operation`.
      CustomOpFileError: (also a `FileNotFoundError`) there is no such library, or codelet.

    Source: section 18.14.1; facts custom_ops.user_op_multi, custom_ops.partial_gradients,
    custom_ops.api_level.
    """
    gradients = Gradients(separate_gradients, inputs_with_gradients, gradient_attributes)
    function, arrays = check_custom_op_call(
        inputs, library_path, outs, name, op_name, attributes, gradients
    )
    _check_codelet(gp_path, name)
    return custom_op_calls.call_user_function(function, arrays, on_host=False)


def _check_codelet(gp_path: str | Path, name: str) -> None:
    check.require_instance(gp_path, (str, Path), f"`{name}`: gp_path", "a path")
    if gp_path == "":
        return
    if not Path(gp_path).is_file():
        raise CustomOpFileError(
            f"`{name}`: there is no codelet {str(gp_path)!r}",
            where=jaxpr.current_user_line(),
            fix="leave gp_path out: the code is in the library",
        )
    get_logger().warning(
        "`%s`: nothing is read from the codelet %s; what runs is in the library", name, gp_path
    )
