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

from lowering.ground import line_of_file as _line
from lowering.jaxprs.avals import Aval as Aval
from lowering.jaxprs.primitives_with_bodies import CALLS, has_bodies

Atom = Any  # Var | Literal; JAX types the avals inside as Any as well

trace_state_clean: Callable[[], bool] = _core.trace_state_clean
discharge_state: Callable[[ClosedJaxpr], ClosedJaxpr] = _discharge.discharge_state
is_user_file: Callable[[str], bool] = _source.is_user_filename
hold_weakly: Callable[[type], None] = getattr(_core, "weakref_cache_key_types", set[type]()).add
api_boundary = _traceback.api_boundary
leave_out_of_tracebacks: Callable[[str], None] = _traceback.register_exclusion
PYTREE_NODE_CLASSES: Mapping[type, object] = _tree_util._registry  # pyright: ignore[reportPrivateUsage]
# To be called after an effect that failed: later ones of the thread would wait for it, and fail.
forget_effects: Callable[[], None] = _dispatch.runtime_tokens.clear


def hide_frames_of(folder: str, shown_folder: str | None = None) -> None:
    """Makes JAX pass over frames of files below `folder`, except those below `shown_folder`."""
    register_exclusion(folder)
    if shown_folder is not None:
        _source.register_inclusion(shown_folder)


hide_frames_of(__file__.removesuffix("jaxprs/jaxpr.py"))


def _register_effect(name: str, *, ordered: bool) -> Effect:
    """Registers an effect that may live wherever JAX lets one live and is never dropped."""
    effect_class: Any = type(name, (Effect,), {"__repr__": lambda self: name})
    registries = [_effects.lowerable_effects, _effects.control_flow_allowed_effects]
    registries += [_effects.custom_derivatives_allowed_effects, _effects.remat_allowed_effects]
    if ordered:
        # Effects of replicas on several devices are in order on each device.
        registries += [_effects.ordered_effects, _effects.shardable_ordered_effects]
    for registry in registries:
        registry.add_type(effect_class)
    return effect_class()


STREAM_EFFECT = _register_effect("Stream", ordered=True)  # of queues
TABLE_EFFECT = _register_effect("Table", ordered=True)  # of the host: a lookup, or its update
CALL_EFFECT = _register_effect(
    "Call", ordered=False
)  # of a user's compiled function, besides computing
FIRST_REPLICA_EFFECT = _register_effect(
    "First", ordered=False
)  # of a callback that is the first replica's
ORDERED_FIRST_REPLICA_EFFECT = _register_effect("FirstInOrder", ordered=True)


def is_ordered(eqn: JaxprEqn) -> bool:
    """Returns whether an equation's effects must stay in order with other ordered ones."""
    return bool(eqn.effects) and any(_effects.ordered_effects.contains(e) for e in eqn.effects)


def touches_refs(jaxpr: Jaxpr | ClosedJaxpr) -> bool:
    """Returns whether a jaxpr takes, makes, reads or writes Refs, JAX's mutable arrays."""
    takes = any(isinstance(aval, AbstractRef) for aval in jaxpr.in_avals)
    return takes or any(isinstance(e, (_RefEffect, _OwnRefEffect)) for e in jaxpr.effects)


def add_discharge_rule(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Registers the rule that rewrites a primitive in a function without Refs.

    Args:
      primitive: one of ours, with several results.
      rule: takes the operands, with values instead of Refs, and the parameters; returns, for each
        operand, the last value of a Ref and None for others, and the results.
    """
    # The avals are the first arguments: in one context since JAX 0.11.
    num_leading_arguments = 1 if hasattr(_discharge, "DischargeContext") else 2
    register_rule = _discharge.register_discharge_rule(primitive)
    register_rule(lambda *args, **params: rule(*args[num_leading_arguments:], **params))


def trace_context() -> Any:
    """Returns the thread's configuration, as far as another one makes jit compile anew."""
    return _config.trace_context()


def nan_and_inf_checks() -> tuple[bool, bool]:
    """Returns whether this thread raises at a NaN (`jax.debug_nans`), and at an infinity."""
    return _config.debug_nans.value, _config.debug_infs.value


def is_debugging() -> bool:
    """Returns whether this thread checks numbers (`jax.debug_nans`) or runs without jit."""
    return _config.debug_nans.value or _config.debug_infs.value or _config.disable_jit.value


def call_body(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """Returns the body of a call (jit, remat, custom derivatives), or None."""
    parameter = CALLS.get(eqn.primitive.name)
    body = eqn.params.get(parameter) if parameter else None
    if body is None:
        return None
    return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())


def params_without_derivative_rules(eqn: JaxprEqn) -> dict[str, Any]:
    """Returns the parameters that say what an equation computes, without derivative rules."""
    name = eqn.primitive.name
    has_rules = name.startswith(("custom_jvp_call", "custom_vjp_call"))
    return {CALLS[name]: eqn.params[CALLS[name]]} if has_rules else eqn.params


def is_jaxpr(value: Any) -> bool:
    """Returns whether an equation's parameter is a jaxpr, closed or not."""
    return isinstance(value, (Jaxpr, ClosedJaxpr))


def sub_jaxprs(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    """Yields the jaxprs in an equation's parameters, if its primitive is JAX's or ours."""
    if not has_bodies(eqn.primitive.name):
        return
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if is_jaxpr(item):
                yield item.jaxpr if isinstance(item, ClosedJaxpr) else item


def map_sub_jaxprs(eqn: JaxprEqn, change: Callable[[ClosedJaxpr], ClosedJaxpr]) -> JaxprEqn:
    """Replaces each jaxpr in an equation's parameters by one of the same signature.

    An equation whose primitive is neither JAX's nor ours stays as it is.
    """
    if not has_bodies(eqn.primitive.name):
        return eqn

    def map_value(item: Any) -> Any:
        if isinstance(item, ClosedJaxpr):
            return change(item)
        if isinstance(item, Jaxpr):
            return change(ClosedJaxpr(item, ())).jaxpr if not item.constvars else item
        if isinstance(item, tuple):
            items = [map_value(part) for part in item]  # pyright: ignore[reportUnknownVariableType]
            return type(item)(*items) if hasattr(item, "_fields") else tuple(items)
        return item

    return eqn.replace(params={name: map_value(value) for name, value in eqn.params.items()})


def scan_counts(scan: JaxprEqn) -> tuple[int, int]:
    """Returns how many operands of a `lax.scan` are constants, and how many loop variables."""
    params = scan.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()  # since JAX 0.11
    return len(consts), len(carry)


def fresh_var(aval: Aval) -> Var:
    """Returns a variable that no other jaxpr uses."""
    return Var(aval)


def is_dropped(var: Atom) -> bool:
    """Returns whether an equation's result is thrown away."""
    return isinstance(var, DropVar)


def replace_equations(jaxpr: Jaxpr, eqns: Sequence[JaxprEqn], outvars: Sequence[Atom]) -> Jaxpr:
    """Returns the jaxpr with other equations and results, and their effects."""
    effects = frozenset(e for eqn in eqns for e in eqn.effects)
    return jaxpr.replace(eqns=list(eqns), outvars=list(outvars), effects=effects)


def trace_flat(
    function: Callable[..., Any], avals: Sequence[Aval], axis: tuple[str, int] | None = None
) -> ClosedJaxpr:
    """Traces a function of flat arrays with the given avals, in a named axis if there is one."""
    return jax.make_jaxpr(function, axis_env=[axis] if axis else None)(*avals)


def user_line(eqn: JaxprEqn) -> str:
    """Returns `file:line (function)` of the user's code behind an equation, or ''."""
    return line_of_traceback(eqn.source_info.traceback)


def line_of_traceback(traceback: Any) -> str:
    """Returns `file:line (function)` of a JAX traceback's innermost user frame, or ''."""
    frame = next(user_frames(traceback), None)
    return f"{_line(frame.file_name, frame.start_line)} ({frame.function_name})" if frame else ""


def user_frames(traceback: Any) -> Iterator[Any]:
    """Yields the user's frames of a JAX traceback, innermost first."""
    codes, instructions = traceback.raw_frames() if traceback else ((), ())
    for code, instruction in zip(codes, instructions, strict=True):
        if _is_user_code(code):
            yield _source.raw_frame_to_frame(code, instruction)


def _is_user_code(code: CodeType) -> bool:
    """Returns whether the user wrote the code; what `dataclasses` writes has no file to hide."""
    return not code.co_qualname.startswith("__create_fn__.") and is_user_file(code.co_filename)


def current_user_line() -> str:
    """Returns `file:line (function)` of the user's code that is running now, or ''."""
    return line_of_traceback(_source.current().traceback)


def current_name_stack() -> str:
    """Returns the name stack of what is traced now."""
    return str(_source.current_name_stack())


def name_stack(eqn: JaxprEqn) -> str:
    """Returns the equation's own name stack, innermost name last."""
    return str(eqn.source_info.name_stack)


def source_info_in_call(eqn: JaxprEqn, outer_call: JaxprEqn, body: Jaxpr) -> Any:
    """Returns the source info that an equation of an outer call has once that is opened."""
    stack = outer_call.source_info.name_stack + eqn.source_info.name_stack
    return add_caller_frames(eqn, outer_call, body).source_info.replace(name_stack=stack)


def add_caller_frames(eqn: JaxprEqn, outer_eqn: JaxprEqn | None, body: Jaxpr) -> JaxprEqn:
    """Adds the frames of the equation around a body to those of an equation in it.

    JAX traces a function once and keeps the frames inside it. Equations that a library made get the
    frames of the outer equation alone.
    """
    outer_traceback = outer_eqn.source_info.traceback if outer_eqn is not None else None
    own_traceback = eqn.source_info.traceback
    if outer_traceback is None or own_traceback == outer_traceback:
        return eqn
    stems = _stems_from_user(eqn, body.debug_info.func_src_info)
    frames = own_traceback + outer_traceback if stems else outer_traceback
    return eqn.replace(source_info=eqn.source_info.replace(traceback=frames))


def _stems_from_user(eqn: JaxprEqn, function: str) -> bool:
    """Returns whether the user's code, called by a library or not, made an equation.

    Args:
      eqn: one of the equations that tracing a function made.
      function: `name at file:line` of that function.
    """
    name, _, location = function.partition(" at ")
    file = location.rpartition(":")[0]
    traceback = eqn.source_info.traceback
    for code in traceback.raw_frames()[0] if traceback else ():
        if _is_user_code(code):
            return True
        if code.co_filename == file and code.co_name == name:
            return False
    return False


def bind_equation(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Runs an equation on values (or tracers), under its own name stack and source line."""
    params = eqn.primitive.get_bind_params(eqn.params)
    with at_source_of(eqn), in_context_of(eqn):
        result = eqn.primitive.bind(*values, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def at_source_of(eqn: JaxprEqn) -> Any:
    """Returns a context; what is traced in it gets the equation's line and name stack."""
    stack = _source.current_name_stack() + eqn.source_info.name_stack
    return _source.user_context(eqn.source_info.traceback, name_stack=stack)


def in_context_of(eqn: JaxprEqn) -> Any:
    """Returns a context; what is traced in it is configured as the equation is.

    The configuration is what JAX keeps beside the parameters: how random bits are made, on which
    device to compute, and metadata for XLA.
    """
    return eqn.ctx.manager


def run_equations(jaxpr: Jaxpr, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr on values (or tracers), and keeps its name stacks and source lines."""
    return list(eval_jaxpr(jaxpr, consts, *values))


def frames_key(eqn: JaxprEqn) -> tuple[tuple[str, int, int], ...]:
    """Returns the user's frames behind an equation; those of its backward twin are equal."""
    frames = user_frames(eqn.source_info.traceback)
    return tuple((f.file_name, f.start_line, f.start_column) for f in frames)


def constants_to_arguments(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list[Any]]:
    """Returns the jaxpr with its constants as first arguments, and the constants."""
    jaxpr = closed.jaxpr
    debug = jaxpr.debug_info._replace(arg_names=None)
    invars = [*jaxpr.constvars, *jaxpr.invars]
    open_ = jaxpr.replace(constvars=[], invars=invars, debug_info=debug)
    return ClosedJaxpr(open_, ()), list(closed.consts)


def prune_unused(
    closed: ClosedJaxpr, is_result_used: Sequence[bool] | None = None
) -> tuple[ClosedJaxpr, list[int]]:
    """Returns the jaxpr with the used results only, and which arguments those depend on.

    Args:
      closed: any jaxpr.
      is_result_used: for each result, whether it is used; None for all.
    """
    jaxpr, consts = constants_to_arguments(closed)
    is_used = [True] * len(jaxpr.out_avals) if is_result_used is None else list(is_result_used)
    pruned, is_read = _partial_eval.dce_jaxpr(jaxpr.jaxpr, is_used)
    count = len(consts)
    kept_consts = [value for value, read in zip(consts, is_read[:count], strict=True) if read]
    constvars, invars = pruned.invars[: len(kept_consts)], pruned.invars[len(kept_consts) :]
    debug = pruned.debug_info._replace(arg_names=None, result_paths=None)
    pruned = pruned.replace(constvars=constvars, invars=invars, debug_info=debug)
    return ClosedJaxpr(pruned, kept_consts), [i for i, read in enumerate(is_read[count:]) if read]


def prune_equation(eqn: JaxprEqn, is_result_used: Sequence[bool]) -> JaxprEqn | None:
    """Returns the equation with the used results only, as JAX prunes it; None if none is used.

    Args:
      eqn: any equation.
      is_result_used: for each of its results, whether it is used.
    """
    rule = _partial_eval.dce_rules.get(eqn.primitive)
    return eqn if rule is None else rule(list(is_result_used), eqn)[1]


def add_innermost_scope(eqn: JaxprEqn, scope: str) -> JaxprEqn:
    """Returns the equation inside one more, innermost, named scope."""
    source = eqn.source_info
    return eqn.replace(source_info=source.replace(name_stack=source.name_stack.extend(scope)))


def is_tracer(value: Any) -> bool:
    """Returns whether a value belongs to an open trace, so that its contents are unknown."""
    return isinstance(value, Tracer)


def wait_for_peers(name: str, seconds: float) -> None:
    """Waits until all processes of `jax.distributed` have called this with the same name."""
    _distributed.global_state.client.wait_at_barrier(name, int(seconds * 1000))  # pyright: ignore
