"""The gate to JAX's changing parts: the only module that touches `jax.extend` and `jax._src`.

Everything else in this project that needs a jaxpr, a primitive or a rule takes it from here, so
that a new JAX release is one file's work.

Names taken from `jax._src`, where nothing public will do:

* `config.trace_context`: whether jit would compile the same in another thread, or another time.
* `config.debug_nans`, `debug_infs`, `disable_jit`: what `jax.config` says in three times the time.
* `distributed.global_state`: a barrier of processes that waits as long as it is told.
* `dispatch.runtime_tokens`: would raise what an effect raised once more, later and at exit.
* `core.trace_state_clean`: is any trace open? `jax.extend.core` only answers for jit and vmap.
* `core.weakref_cache_key_types`: of which classes JAX's caches keep no parameter alive.
* `effects.*_effects`: registries: effects live under jit, loops, derivatives, remat, and in order.
* `partial_eval.dce_jaxpr`, `dce_rules` (public, without promise): JAX's own dead code elimination.
* `core.positional_effects`, `core.InternalMutableArrayEffect`, `state.types.RefEffect`,
  `state.discharge`: which Refs a jaxpr touches, and how each primitive of JAX does without them.
* `tree_util._registry`: the classes that are nodes of pytrees, which a file may name.
* `source_info_util.is_user_filename`, `raw_frame_to_frame`, `register_inclusion`,
  `current_name_stack`: the user's file and line of an equation, and the scopes around one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import jax
from jax._src import config as _config
from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import distributed as _distributed
from jax._src import effects as _effects
from jax._src import source_info_util as _source
from jax._src import traceback_util as _traceback
from jax._src import tree_util as _tree_util
from jax._src.core import InternalMutableArrayEffect as _OwnRefEffect
from jax._src.core import positional_effects as positional_effects
from jax._src.state import discharge as _discharge
from jax._src.state.types import RefEffect as _RefEffect
from jax.core import ShapedArray as ShapedArray
from jax.core import Tracer as Tracer
from jax.core import eval_jaxpr as eval_jaxpr
from jax.extend.core import ClosedJaxpr as ClosedJaxpr
from jax.extend.core import DropVar as DropVar
from jax.extend.core import Effect as Effect
from jax.extend.core import Jaxpr as Jaxpr
from jax.extend.core import JaxprEqn as JaxprEqn
from jax.extend.core import Literal as Literal
from jax.extend.core import Primitive as Primitive
from jax.extend.core import Var as Var
from jax.extend.random import threefry_2x32 as threefry_2x32
from jax.extend.source_info_util import register_exclusion
from jax.interpreters import ad as ad
from jax.interpreters import batching as batching
from jax.interpreters import mlir as mlir
from jax.interpreters import partial_eval as _partial_eval
from jax.ref import AbstractRef as AbstractRef

from lowering.avals import Aval as Aval
from lowering.bodies import CALLS, has_bodies
from lowering.places import line_of_file as _line

Atom = Any  # Var | Literal; JAX types the avals inside as Any as well

trace_state_clean: Callable[[], bool] = _core.trace_state_clean
discharge_state: Callable[[ClosedJaxpr], ClosedJaxpr] = _discharge.discharge_state
is_user_file: Callable[[str], bool] = _source.is_user_filename
hold_weakly: Callable[[type], None] = getattr(_core, "weakref_cache_key_types", set[type]()).add
api_boundary = _traceback.api_boundary
leave_out_of_tracebacks: Callable[[str], None] = _traceback.register_exclusion
NODES: Mapping[type, object] = _tree_util._registry  # pyright: ignore[reportPrivateUsage]
# After an effect that failed: each later one of the thread would wait for it, and fail.
forget_effects: Callable[[], None] = _dispatch.runtime_tokens.clear


def hide_frames_of(folder: str, but: str | None = None) -> None:
    """Makes JAX pass over frames of files below `folder`, except below `but`, as not the user's."""
    register_exclusion(folder)
    if but is not None:
        _source.register_inclusion(but)


hide_frames_of(__file__.removesuffix("jaxpr.py"))


def _effect(name: str, *, ordered: bool) -> Effect:
    """An effect of ours: it may live wherever JAX lets one live, and is never dropped."""
    kind: Any = type(name, (Effect,), {"__repr__": lambda self: name})
    registries = [_effects.lowerable_effects, _effects.control_flow_allowed_effects]
    registries += [_effects.custom_derivatives_allowed_effects, _effects.remat_allowed_effects]
    if ordered:
        # Those of replicas on several devices are in order on each.
        registries += [_effects.ordered_effects, _effects.shardable_ordered_effects]
    for registry in registries:
        registry.add_type(kind)
    return kind()


STREAM = _effect("Stream", ordered=True)  # of queues
TABLE = _effect("Table", ordered=True)  # of the host: a lookup, or its update
CALL = _effect("Call", ordered=False)  # of a user's compiled function, besides computing
FIRST = _effect("First", ordered=False)  # of a callback that is the first replica's
FIRST_IN_ORDER = _effect("FirstInOrder", ordered=True)


def is_ordered(eqn: JaxprEqn) -> bool:
    """Whether the equation's effects must keep their place among the other ordered ones."""
    return bool(eqn.effects) and any(_effects.ordered_effects.contains(e) for e in eqn.effects)


def touches_refs(jaxpr: Jaxpr | ClosedJaxpr) -> bool:
    """Whether a jaxpr takes, makes, reads or writes Refs, JAX's mutable arrays."""
    takes = any(isinstance(aval, AbstractRef) for aval in jaxpr.in_avals)
    return takes or any(isinstance(e, (_RefEffect, _OwnRefEffect)) for e in jaxpr.effects)


def discharges(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Makes `rule` what is done with a primitive in a function that has to do without Refs.

    Args:
      primitive: one of ours, with several results.
      rule: takes the operands, values in the place of Refs, and the parameters; gives, for each
        operand, the last value of what was a Ref and None for others, and the results.
    """
    # The avals come first: in one context since JAX 0.11.
    first = 1 if hasattr(_discharge, "DischargeContext") else 2
    register = _discharge.register_discharge_rule(primitive)
    register(lambda *args, **params: rule(*args[first:], **params))


def trace_context() -> Any:
    """The configuration of this thread, as far as jit compiles anew when it is another."""
    return _config.trace_context()


def number_checks() -> tuple[bool, bool]:
    """Whether this thread asks for an error at a NaN (`jax.debug_nans`), and at an infinity."""
    return _config.debug_nans.value, _config.debug_infs.value


def is_debugging() -> bool:
    """Whether this thread wants to see more of a function than its results, which takes time."""
    return _config.debug_nans.value or _config.debug_infs.value or _config.disable_jit.value


def call_body(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The body of a call (jit, remat, custom derivatives), or None for any other equation."""
    parameter = CALLS.get(eqn.primitive.name)
    body = eqn.params.get(parameter) if parameter else None
    if body is None:
        return None
    return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())


def computing_params(eqn: JaxprEqn) -> dict[str, Any]:
    """The parameters that say what an equation computes: rules of derivatives are left out."""
    name = eqn.primitive.name
    own = name.startswith(("custom_jvp_call", "custom_vjp_call"))
    return {CALLS[name]: eqn.params[CALLS[name]]} if own else eqn.params


def is_jaxpr(value: Any) -> bool:
    """Whether an equation's parameter is a jaxpr, closed or not."""
    return isinstance(value, (Jaxpr, ClosedJaxpr))


def sub_jaxprs(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    """Every jaxpr among the equation's parameters, if its primitive is JAX's or ours."""
    if not has_bodies(eqn.primitive.name):
        return
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if is_jaxpr(item):
                yield item.jaxpr if isinstance(item, ClosedJaxpr) else item


def map_sub_jaxprs(eqn: JaxprEqn, change: Callable[[ClosedJaxpr], ClosedJaxpr]) -> JaxprEqn:
    """The equation with each jaxpr among its parameters replaced by one of the same signature.

    As it is if its primitive is neither JAX's nor ours.
    """
    if not has_bodies(eqn.primitive.name):
        return eqn

    def mapped(item: Any) -> Any:
        if isinstance(item, ClosedJaxpr):
            return change(item)
        if isinstance(item, Jaxpr):
            return change(ClosedJaxpr(item, ())).jaxpr if not item.constvars else item
        if isinstance(item, tuple):
            parts = [mapped(part) for part in item]  # pyright: ignore[reportUnknownVariableType]
            return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)
        return item

    return eqn.replace(params={name: mapped(value) for name, value in eqn.params.items()})


def scan_counts(scan: JaxprEqn) -> tuple[int, int]:
    """How many of a `lax.scan`'s operands are constants, and how many loop variables follow."""
    params = scan.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()  # since JAX 0.11
    return len(consts), len(carry)


def fresh_var(aval: Aval) -> Var:
    """A variable that no other jaxpr uses."""
    return Var(aval)


def is_dropped(var: Atom) -> bool:
    """Whether an equation's result is thrown away."""
    return isinstance(var, DropVar)


def with_eqns(jaxpr: Jaxpr, eqns: Sequence[JaxprEqn], outvars: Sequence[Atom]) -> Jaxpr:
    """The jaxpr with other equations and results, its effects counted afresh."""
    effects = frozenset(e for eqn in eqns for e in eqn.effects)
    return jaxpr.replace(eqns=list(eqns), outvars=list(outvars), effects=effects)


def trace_flat(
    function: Callable[..., Any], avals: Sequence[Aval], axis: tuple[str, int] | None = None
) -> ClosedJaxpr:
    """Traces a function of flat arrays with the given avals, inside a named axis if asked."""
    return jax.make_jaxpr(function, axis_env=[axis] if axis else None)(*avals)


def user_line(eqn: JaxprEqn) -> str:
    """`file:line (function)` of the user's code behind an equation, or ''."""
    return line_of(eqn.source_info.traceback)


def line_of(traceback: Any) -> str:
    """`file:line (function)` of the innermost user frame of a JAX traceback, or ''."""
    frame = next(user_frames(traceback), None)
    return f"{_line(frame.file_name, frame.start_line)} ({frame.function_name})" if frame else ""


def user_frames(traceback: Any) -> Iterator[Any]:
    """The user's frames of a JAX traceback, innermost first."""
    codes, places = traceback.raw_frames() if traceback else ((), ())
    for code, place in zip(codes, places, strict=True):
        if _is_users(code):
            yield _source.raw_frame_to_frame(code, place)


def _is_users(code: CodeType) -> bool:
    """Whether the user wrote it; what `dataclasses` writes has no file that could be hidden."""
    return not code.co_qualname.startswith("__create_fn__.") and is_user_file(code.co_filename)


def current_user_line() -> str:
    """`file:line (function)` of the user's code that is running now, or ''."""
    return line_of(_source.current().traceback)


def current_name_stack() -> str:
    """The name stack of what is traced here and now."""
    return str(_source.current_name_stack())


def name_stack(eqn: JaxprEqn) -> str:
    """The equation's own name stack, innermost name last."""
    return str(eqn.source_info.name_stack)


def under(eqn: JaxprEqn, outer: JaxprEqn, body: Jaxpr) -> Any:
    """The source info of `eqn`, one of the body of the call `outer`, once that has been opened."""
    stack = outer.source_info.name_stack + eqn.source_info.name_stack
    return called_from(eqn, outer, body).source_info.replace(name_stack=stack)


def called_from(eqn: JaxprEqn, outer: JaxprEqn | None, body: Jaxpr) -> JaxprEqn:
    """An equation of a body, with the frames of the equation around that behind its own.

    Of what it traces once and keeps, JAX keeps the frames inside; those of libraries' functions
    do without.
    """
    around = outer.source_info.traceback if outer is not None else None
    own = eqn.source_info.traceback
    if around is None or own == around:
        return eqn
    stems = _stems_from_user(eqn, body.debug_info.func_src_info)
    frames = own + around if stems else around
    return eqn.replace(source_info=eqn.source_info.replace(traceback=frames))


def _stems_from_user(eqn: JaxprEqn, function: str) -> bool:
    """Whether the user's code made an equation: a function of his, or one given to a library.

    Args:
      eqn: one of the equations that tracing a function made.
      function: `name at file:line` of that function.
    """
    name, _, place = function.partition(" at ")
    file = place.rpartition(":")[0]
    traceback = eqn.source_info.traceback
    for code in traceback.raw_frames()[0] if traceback else ():
        if _is_users(code):
            return True
        if code.co_filename == file and code.co_name == name:
            return False
    return False


def bind_equation(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Runs one equation on values (or tracers), under its own name stack and source line."""
    params = eqn.primitive.get_bind_params(eqn.params)
    with at_source_of(eqn), in_context_of(eqn):
        result = eqn.primitive.bind(*values, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def at_source_of(eqn: JaxprEqn) -> Any:
    """A context: what is traced in it has the equation's line, and is under its name stack."""
    stack = _source.current_name_stack() + eqn.source_info.name_stack
    return _source.user_context(eqn.source_info.traceback, name_stack=stack)


def in_context_of(eqn: JaxprEqn) -> Any:
    """A context: what is traced in it is configured as the equation is.

    That is what JAX keeps beside the parameters: how random bits are made, where to compute, and
    metadata for XLA.
    """
    return eqn.ctx.manager


def run_equations(jaxpr: Jaxpr, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr on values (or tracers), keeping its name stacks and source lines."""
    return list(eval_jaxpr(jaxpr, consts, *values))


def frames_key(eqn: JaxprEqn) -> tuple[tuple[str, int, int], ...]:
    """The user's frames behind an equation, innermost first; equal for forward and backward."""
    frames = user_frames(eqn.source_info.traceback)
    return tuple((f.file_name, f.start_line, f.start_column) for f in frames)


def hoisted(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """The jaxpr with its constants as first arguments, and the constants."""
    jaxpr = closed.jaxpr
    debug = jaxpr.debug_info._replace(arg_names=None)
    invars = [*jaxpr.constvars, *jaxpr.invars]
    open_ = jaxpr.replace(constvars=[], invars=invars, debug_info=debug)
    return ClosedJaxpr(open_, ()), list(closed.consts)


def without_unused(
    closed: ClosedJaxpr, used: Sequence[bool] | None = None
) -> tuple[ClosedJaxpr, list[int]]:
    """The jaxpr with the wanted results only, and which of its arguments those depend on.

    Args:
      closed: any jaxpr.
      used: for each result, whether it is wanted; None for all.
    """
    jaxpr, consts = hoisted(closed)
    wanted = [True] * len(jaxpr.out_avals) if used is None else list(used)
    pruned, is_read = _partial_eval.dce_jaxpr(jaxpr.jaxpr, wanted)
    count = len(consts)
    kept = [value for value, read in zip(consts, is_read[:count], strict=True) if read]
    constvars, invars = pruned.invars[: len(kept)], pruned.invars[len(kept) :]
    debug = pruned.debug_info._replace(arg_names=None, result_paths=None)
    pruned = pruned.replace(constvars=constvars, invars=invars, debug_info=debug)
    return ClosedJaxpr(pruned, kept), [i for i, read in enumerate(is_read[count:]) if read]


def prune_equation(eqn: JaxprEqn, used: Sequence[bool]) -> JaxprEqn | None:
    """The equation with the wanted results only, as JAX prunes it; None if nobody needs it.

    Args:
      eqn: any equation.
      used: for each of its results, whether it is wanted.
    """
    rule = _partial_eval.dce_rules.get(eqn.primitive)
    return eqn if rule is None else rule(list(used), eqn)[1]


def with_scope(eqn: JaxprEqn, text: str) -> JaxprEqn:
    """The equation inside one more, innermost, named scope."""
    source = eqn.source_info
    return eqn.replace(source_info=source.replace(name_stack=source.name_stack.extend(text)))


def is_tracer(value: Any) -> bool:
    """Whether a value is one of a trace that is going on, so that its contents are unknown."""
    return isinstance(value, Tracer)


def wait_for_peers(name: str, seconds: float) -> None:
    """Waits for all processes of `jax.distributed`, each of which has to call this once by name."""
    _distributed.global_state.client.wait_at_barrier(name, int(seconds * 1000))  # pyright: ignore
