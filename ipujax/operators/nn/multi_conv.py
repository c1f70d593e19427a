"""Convolutions that may run side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax

from ipujax.ground import IPUError, Keywords, PyTree, check, suggest_closest_name
from lowering import jaxpr, marks

_ATTRIBUTE = marks.MULTI_CONV
_PLAN_TYPES = ("parallel", "serial")


@check.guard
def multi_conv(
    func: Callable[..., PyTree] | None = None, options: Keywords | None = None
) -> Callable[..., PyTree]:
    """Declares that the convolutions of a function may run in parallel; also a decorator.

    So none of them may depend on another one's result, at least not outside loops (a loop counts
    as one operation). Each call traces the function once.
    Numbers are those of the function itself (fact nn.multi_conv_equal). All its operations, and
    those of its gradient, carry the frontend attributes `multi_conv` and, for each option,
    `multi_conv.<option>`.

    The machine model runs them at the same time, each on tiles of its own, for as long as the
    slowest takes; so it does their gradients. Those inside of jitted functions and loops are
    planned by themselves.

    Args:
      func: takes positional arguments only, all of them (pytrees of) arrays; returns at least one
        array.
      options: Poplar's options of multi-convolutions: "planType" ("parallel" or "serial"),
        "perConvReservedTiles" (a whole number) and "cycleBackOff" (a number from 0 to 1). Values
        may be text. They act on reports: "serial" has convolutions follow each other, each on all
        tiles; each convolution but the last has its tiles while so many (50) are kept for every
        smaller one, and gives back what it can without taking longer by more than that share (0.1)
        for each of these.

    Returns:
      A function with the results of `func`; without `func`, a decorator that makes one.

    Raises:
      ConfigTypeError: (a `TypeError`) `func` is no function or `options` no dict; in a call, for
        keyword arguments.
      OperatorError: (a `ValueError`) Poplar has no such option, or it has no such value (fact
        nn.multi_conv_options); in a call, if `func` returns no array, or a convolution depends on
        another.
    """
    check.require_function(func, "`func` of multi_conv", optional=True)
    texts = _check_multi_conv_options(options)
    if func is None:
        return lambda wrapped: multi_conv(wrapped, options)
    label = getattr(func, "__name__", "multi_conv")
    named = {_ATTRIBUTE: "True"} | {f"{_ATTRIBUTE}.{name}": text for name, text in texts.items()}
    attributes = [marks.write_mark(marks.ATTRIBUTE, name, text) for name, text in named.items()]

    @functools.wraps(func)
    def run_multi_conv(*args: PyTree, **kwargs: PyTree) -> PyTree:
        check.require_positional_arrays(args, kwargs, f"multi_conv function `{label}`")
        # A new function each time: what JAX remembers of a function may be of another trace.
        body, results = jax.make_jaxpr(lambda *operands: func(*operands), return_shape=True)(*args)
        check.require_some_array(results, f"multi_conv function `{label}`")
        _refuse_dependent_convolutions(body.jaxpr, [False] * len(body.jaxpr.invars), label)
        with jax.named_scope("/".join(attributes)):
            values = jaxpr.run_equations(body.jaxpr, body.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(results), values)

    return run_multi_conv


def _refuse_dependent_convolutions(
    body: jaxpr.Jaxpr, follows: Sequence[bool], label: str
) -> list[bool]:
    """Raises an error if a convolution depends on the result of another one.

    Args:
      body: the equations.
      follows: for each argument, whether it comes from a convolution.
      label: the function's name.

    Returns:
      For each result, whether it comes from a convolution.
    """
    convolution_results = {var for var, does in zip(body.invars, follows, strict=True) if does}

    def comes_after(atom: object) -> bool:
        return not isinstance(atom, jaxpr.Literal) and atom in convolution_results

    for eqn in body.eqns:
        operands = [comes_after(atom) for atom in eqn.invars]
        is_convolution = eqn.primitive.name == "conv_general_dilated"
        if is_convolution and any(operands):
            raise _dependent_convolution_error(eqn, label)
        call = jaxpr.body_of_call(eqn)
        if call is not None:
            results = _refuse_dependent_convolutions(call.jaxpr, operands, label)
        else:
            sub_results = [
                _refuse_dependent_convolutions(sub, [any(operands)] * len(sub.invars), label)
                for sub in jaxpr.sub_jaxprs(eqn)
            ]
            does = is_convolution or any(operands) or any(map(any, sub_results))
            results = [does] * len(eqn.outvars)
        convolution_results.update(
            var for var, does in zip(eqn.outvars, results, strict=True) if does
        )
    return [comes_after(atom) for atom in body.outvars]


def _dependent_convolution_error(eqn: jaxpr.JaxprEqn, label: str) -> IPUError:
    line = jaxpr.user_line(eqn)
    return check.value_error(
        f"in the multi_conv function `{label}` a convolution depends on another"
        + (f": that of {line}" if line else ""),
        "give it convolutions that are independent of each other, and call the later ones outside",
    )


def _check_multi_conv_options(options: Keywords | None) -> dict[str, str]:
    expected = 'a dict, such as {"perConvReservedTiles": "50"},'
    check.require_instance(options, dict, "`options` of multi_conv", expected, optional=True)
    texts = options or {}
    for name, value in texts.items():
        if name not in _VALUES:
            raise check.value_error(
                f"multi_conv got invalid_option {name!r}{suggest_closest_name(str(name), _VALUES)}",
                f"there are {', '.join(_VALUES)}; give options of single convolutions, such as "
                "availableMemoryProportion, in the configuration's convolutions.poplar_options",
            )
        is_right, expected = _VALUES[name]
        if not is_right(str(value)):
            raise check.value_error(
                f"option {name!r} of multi_conv is {value!r}", f"give {expected}"
            )
    return {name: str(value) for name, value in texts.items()}


def _is_fraction(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


_VALUES: dict[str, tuple[Callable[[str], bool], str]] = {
    "planType": (lambda text: text in _PLAN_TYPES, " or ".join(map(repr, _PLAN_TYPES))),
    "perConvReservedTiles": (str.isdecimal, "a whole number of tiles"),
    "cycleBackOff": (_is_fraction, "a number from 0 to 1"),
}
