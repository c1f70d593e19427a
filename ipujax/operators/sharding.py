"""Functions that read and propagate the shards of a jaxpr's equations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ipujax.ground import Checks, ConfigError, ConfigTypeError
from lowering import (
    equations_needed_by,
    infer_shard_from_twin_or_operands,
    marks,
    producer_of_each_variable,
    propagate_shard_marks,
    read_shard_mark,
)
from lowering import jaxpr as _jaxpr

_check = Checks(ConfigTypeError, ConfigError)
_SHARD_NAMES = (marks.SHARD, "_XlaSharding")


@_check.guard
def dependencies(roots: object, *, jaxpr: object = None) -> list[_jaxpr.JaxprEqn]:
    """Finds all that some equations depend on.

    Args:
      roots: a jaxpr, closed or not, which stands for what makes its results; or an equation or a
        variable of a jaxpr, or an iterable of such.
      jaxpr: the jaxpr of the roots; needed unless `roots` is one, since an equation does not
        know where it is.

    Returns:
      The equations of the jaxpr that the roots depend on, with the roots, in their order. Bodies
      of calls and control flow are not entered.

    Raises:
      ConfigTypeError: (a `TypeError`) for roots of another kind, or without their jaxpr.
      ConfigError: (a `ValueError`) if a root is none of the jaxpr's.
    """
    if isinstance(roots, (_jaxpr.ClosedJaxpr, _jaxpr.Jaxpr)):
        root_jaxpr = _require_jaxpr(roots)
        chosen: list[object] = [a for a in root_jaxpr.outvars if not isinstance(a, _jaxpr.Literal)]
    else:
        if jaxpr is None:
            raise ConfigTypeError(
                "dependencies() needs the jaxpr of its roots: dependencies(roots, jaxpr=closed)"
            )
        root_jaxpr = _require_jaxpr(jaxpr)
        if isinstance(roots, (_jaxpr.JaxprEqn, _jaxpr.Var)):
            roots = [roots]
        chosen = list(_check.require_instance(roots, Iterable, "roots", "equations or variables"))
    indices = {index for root in chosen for index in _find_equation_indices(root, root_jaxpr)}
    return [root_jaxpr.eqns[index] for index in equations_needed_by(root_jaxpr, indices)]


@_check.guard
def get_shard_from_colocation(op: _jaxpr.JaxprEqn, *, jaxpr: object = None) -> int | None:
    """Finds the shard of the equation that another one belongs to.

    A backward equation made under a shard carries that in its own name stack. If there is no such
    mark, its forward twin is looked up in the jaxpr, and then what makes its operands.

    Args:
      op: an equation.
      jaxpr: the jaxpr that it is from; without it only the equation itself is looked at.

    Returns:
      The shard, or `None` if there is none.

    Raises:
      ConfigTypeError: (a `TypeError`) if `op` is no equation.
    """
    shard = read_shard_mark(_check_equation(op))
    if shard is not None or jaxpr is None:
        return shard
    return infer_shard_from_twin_or_operands(op, _require_jaxpr(jaxpr))


@_check.guard
def has_attr(o: _jaxpr.JaxprEqn, attr_name: str) -> bool:
    """Returns whether an equation has an attribute: a parameter of its primitive, or a mark.

    Args:
      o: an equation.
      attr_name: the name of a parameter (`dimension_numbers`), of a frontend attribute
        (`partials_type`), or of a scope: `ipu_shard` (or `_XlaSharding`, as the original called
        it), `outside_compilation`, `ipu_jit_scope`, `outlined`.

    Raises:
      ConfigTypeError: (a `TypeError`) if `o` is no equation.
    """
    _check.require_text(attr_name, "the attr_name of has_attr")
    mark = marks.read_marks(_jaxpr.name_stack(_check_equation(o)))
    scopes = {
        **dict.fromkeys(_SHARD_NAMES, mark.shard),
        marks.OUTSIDE: mark.outside,
        marks.JIT_SCOPE: mark.jit_scope,
        marks.UNIT: mark.unit,
    }
    attributes = {*o.params, *dict(mark.attributes)}
    return attr_name in attributes or scopes.get(attr_name) is not None


@_check.guard
def propagate_sharding(g: object) -> Any:
    """Moves the shards of marked equations on to those that belong to them.

    An unmarked backward equation gets the shard of its forward twin; failing that, as all other
    equations below a marked one, it gets the shard of its operands. Equations above all marks
    stay unmarked. These are the compiler's own decisions, so compiling the result gives the same
    program; here they can be read, or changed before going on.

    Args:
      g: a jaxpr, closed or not. It is not changed.

    Returns:
      A jaxpr of the same kind; calls (such as those of `jax.jit`) with marks inside are opened.

    Raises:
      ConfigTypeError: (a `TypeError`) if `g` is no jaxpr.
      ConfigError: (a `ValueError`) if it is an open one and a call in it that must be opened
        holds constants.
    """
    if isinstance(g, _jaxpr.ClosedJaxpr):
        return propagate_shard_marks(g)
    open_jaxpr = _require_jaxpr(g)
    marked_jaxpr = propagate_shard_marks(_jaxpr.ClosedJaxpr(open_jaxpr, open_jaxpr.constvars)).jaxpr
    if len(marked_jaxpr.constvars) > len(open_jaxpr.constvars):
        raise ConfigError(
            "a call in the open jaxpr holds constants, which an open jaxpr cannot: give the closed "
            "one, as jax.make_jaxpr makes it"
        )
    return marked_jaxpr


def _check_equation(op: object) -> _jaxpr.JaxprEqn:
    return _check.require_instance(op, _jaxpr.JaxprEqn, "op", "an equation of a jaxpr")


def _require_jaxpr(jaxpr: object) -> _jaxpr.Jaxpr:
    if isinstance(jaxpr, _jaxpr.ClosedJaxpr):
        return jaxpr.jaxpr
    if isinstance(jaxpr, _jaxpr.Jaxpr):
        return jaxpr
    raise _check.wrong_type_error("a jaxpr, as jax.make_jaxpr(fn)(*args) gives", jaxpr, "jaxpr")


def _find_equation_indices(root: object, jaxpr: _jaxpr.Jaxpr) -> list[int]:
    """Returns the equation that a root is or comes from; none for an argument or a constant."""
    if isinstance(root, _jaxpr.Var):
        makes = producer_of_each_variable(jaxpr)
        if root in makes:
            return [makes[root]]
        if root in (*jaxpr.invars, *jaxpr.constvars):
            return []
    else:
        indices = [i for i, eqn in enumerate(jaxpr.eqns) if eqn is _check_equation(root)]
        if indices:
            return indices
    raise ConfigError(f"the root {root!r} is not of the jaxpr that was given with it")
