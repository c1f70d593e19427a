"""The gate to JAX's changing parts: the only module that touches `jax.extend` and `jax._src`.

Everything else in this project that needs a jaxpr, a primitive or a rule takes it from here, so
that a new JAX release is one file's work.

Names taken from `jax._src`, where nothing public will do:

* `array.ArrayImpl`: the only way to an array that is on another device than JAX's first, and that
  JAX moves by itself to compute with arrays of others.
* `config.trace_context`: whether jit would compile the same in another thread, or another time.
* `config.debug_nans`, `debug_infs`, `disable_jit`: what `jax.config` says in three times the time.
* `distributed.global_state`: a barrier of processes that waits as long as it is told.
* `lib.xla_client`: copies between devices in a fifth of the time of `device_put`, which first finds
  out whether shards have to be cut anew; and what has been compiled for one device, for others.
* `dispatch.runtime_tokens`: would raise what an effect raised once more, later and at exit.
* `core.trace_state_clean`: is any trace open? `jax.extend.core` only answers for jit and vmap.
* `core.weakref_cache_key_types`: of which classes JAX's caches keep no parameter alive.
* `effects.*_effects`: registries: effects live under jit, loops, derivatives, remat, and in order.
* `partial_eval.dce_jaxpr`, `dce_rules` (public, without promise): JAX's own dead code elimination.
* `core.positional_effects`, `core.InternalMutableArrayEffect`, `state.types.RefEffect`,
  `state.discharge`: which Refs a jaxpr touches, and how each primitive of JAX does without them.
* `tree_util._registry`: the classes that are nodes of pytrees, which a file may name.
* `source_info_util.is_user_filename`, `raw_frame_to_frame`, `register_inclusion`,
  `current`, `current_name_stack`: the user's file and line of an equation, and its scopes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from traceback import walk_tb
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeGuard, cast
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax._src import array as _array
from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import distributed as _distributed
from jax._src import effects as _effects
from jax._src import source_info_util as _source
from jax._src import traceback_util as _traceback
from jax._src import tree_util as _tree_util
from jax._src.core import InternalMutableArrayEffect as _OwnRefEffect
from jax._src.interpreters import batching as _batching
from jax._src.lib import xla_client as _xla_client  # pyright: ignore[reportPrivateImportUsage]
from jax._src.source_info_util import NameStack as NameStack
from jax._src.state import discharge as _discharge
from jax._src.state.types import RefEffect as _RefEffect
from jax.core import Tracer as Tracer
from jax.extend.core import Effect as Effect
from jax.extend.source_info_util import register_exclusion
from jax.interpreters import ad as ad
from jax.interpreters import mlir as mlir

from lowering.ground import name_source_line as _line
from lowering.jaxprs.avals import Aval as Aval
from lowering.jaxprs.avals import ShapedValue as ShapedValue
from lowering.jaxprs.primitives_with_bodies import CALLS, has_bodies
from lowering.jaxprs.typed_jax import dce_jaxpr as _dce_jaxpr
from lowering.jaxprs.typed_jax import dce_rules as _dce_rules
from lowering.jaxprs.typed_jax import eval_jaxpr as eval_jaxpr
from lowering.jaxprs.typed_jax import jit as _jit
from lowering.jaxprs.typed_jax import lower_fun as lower_fun
from lowering.jaxprs.typed_jax import make_jaxpr as make_jaxpr
from lowering.jaxprs.typed_jax import register_lowering as register_lowering

if TYPE_CHECKING:
    from lowering.jaxprs.jaxpr_types import AbstractRef as AbstractRef
    from lowering.jaxprs.jaxpr_types import Atom as Atom
    from lowering.jaxprs.jaxpr_types import ClosedJaxpr as ClosedJaxpr
    from lowering.jaxprs.jaxpr_types import DropVar as DropVar
    from lowering.jaxprs.jaxpr_types import Jaxpr as Jaxpr
    from lowering.jaxprs.jaxpr_types import JaxprEqn as JaxprEqn
    from lowering.jaxprs.jaxpr_types import Literal as Literal
    from lowering.jaxprs.jaxpr_types import Primitive as Primitive
    from lowering.jaxprs.jaxpr_types import ShapedArray as ShapedArray
    from lowering.jaxprs.jaxpr_types import SourceInfo as SourceInfo
    from lowering.jaxprs.jaxpr_types import Traceback as Traceback
    from lowering.jaxprs.jaxpr_types import Var as Var
    from lowering.jaxprs.jaxpr_types import current as _current_source
    from lowering.jaxprs.jaxpr_types import debug_infs as _debug_infs
    from lowering.jaxprs.jaxpr_types import debug_nans as _debug_nans
    from lowering.jaxprs.jaxpr_types import disable_jit as _disable_jit
    from lowering.jaxprs.jaxpr_types import positional_effects as positional_effects
    from lowering.jaxprs.jaxpr_types import threefry_2x32 as threefry_2x32
    from lowering.jaxprs.jaxpr_types import trace_context as _trace_context
else:
    from jax._src.config import debug_infs as _debug_infs
    from jax._src.config import debug_nans as _debug_nans
    from jax._src.config import disable_jit as _disable_jit
    from jax._src.config import trace_context as _trace_context
    from jax._src.core import positional_effects as positional_effects
    from jax._src.source_info_util import current as _current_source
    from jax.core import ShapedArray as ShapedArray
    from jax.extend.core import (
        ClosedJaxpr,
        DropVar,
        Jaxpr,
        JaxprEqn,
        Literal,
        Primitive,
        Var,
    )
    from jax.extend.random import threefry_2x32 as threefry_2x32
    from jax.ref import AbstractRef

    Atom = Var | Literal

_CLIENT = cast("Any", _xla_client)  # without annotations
JaxPrimitive = _core.Primitive  # of which `Primitive` is the complete declaration
trace_state_clean: Callable[[], bool] = _core.trace_state_clean
discharge_state = cast("Callable[[ClosedJaxpr], ClosedJaxpr]", _discharge.discharge_state)
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
# Those of a callback that is the first replica's.
FIRST_REPLICA_EFFECT = _register_effect("First", ordered=False)
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

    def discharge(*args: Any, **params: Any) -> Any:
        return rule(*args[num_leading_arguments:], **params)

    _discharge.register_discharge_rule(primitive)(discharge)


def jit_configuration_of_thread() -> Any:
    """Returns the thread's configuration, as far as another one makes jit compile anew."""
    return _trace_context()


def nan_and_inf_checks() -> tuple[bool, bool]:
    """Returns whether this thread raises at a NaN (`jax.debug_nans`), and at an infinity."""
    return _debug_nans.value, _debug_infs.value


def is_debugging() -> bool:
    """Returns whether this thread checks numbers (`jax.debug_nans`) or runs without jit."""
    return _debug_nans.value or _debug_infs.value or _disable_jit.value


def body_of_call(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """Returns the body of a call (jit, remat, custom derivatives), or None."""
    parameter = CALLS.get(eqn.primitive.name)
    body = eqn.params.get(parameter) if parameter else None
    if body is None:
        return None
    return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())


def is_jaxpr(value: object) -> TypeGuard[Jaxpr | ClosedJaxpr]:
    """Returns whether an equation's parameter is a jaxpr, closed or not."""
    return isinstance(value, (Jaxpr, ClosedJaxpr))


def sub_jaxprs(eqn: JaxprEqn) -> Sequence[Jaxpr]:
    """Returns the jaxprs in an equation's parameters, if its primitive is JAX's or ours."""
    if (body := body_of_call(eqn)) is not None:
        return (body.jaxpr,)  # its other parameters are long, as one is for each operand
    if not has_bodies(eqn.primitive.name):
        return ()
    parts: list[Any] = []
    for value in eqn.params.values():
        parts += value if isinstance(value, (tuple, list)) else (value,)
    return [
        part.jaxpr if isinstance(part, ClosedJaxpr) else part for part in filter(is_jaxpr, parts)
    ]


def equations_with_bodies(jaxpr: Jaxpr | ClosedJaxpr) -> Sequence[JaxprEqn]:
    """Returns the equations of a jaxpr that have `sub_jaxprs`, in order; finds them once."""
    jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    eqns = jaxpr.eqns
    numbers = _EQUATIONS_WITH_BODIES.get(jaxpr)
    if numbers is None:
        numbers = tuple(number for number, eqn in enumerate(eqns) if sub_jaxprs(eqn))
        _EQUATIONS_WITH_BODIES[jaxpr] = numbers
    return [eqns[number] for number in numbers]


# Numbers, since an equation may hold its jaxpr: in a queue that holds the program that reads it.
_EQUATIONS_WITH_BODIES = WeakKeyDictionary["Jaxpr", "tuple[int, ...]"]()


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
            parts = cast("tuple[Any, ...]", item)
            return getattr(parts, "_make", tuple)(map(map_value, parts))
        return item

    return eqn.replace(params={name: map_value(value) for name, value in eqn.params.items()})


def count_scan_constants_and_variables(scan: JaxprEqn) -> tuple[int, int]:
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
    function: Callable[..., Any], avals: Sequence[ShapedValue], axis: tuple[str, int] | None = None
) -> ClosedJaxpr:
    """Traces a function of flat arrays with the given avals, in a named axis if there is one."""
    return make_jaxpr(function, axis_env=[axis] if axis else None)(*avals)


def trace_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that JAX traces and derives once; to be called inside a trace only.

    Its equations come to stand where it is called, with the name stack and the line of the call.
    """
    return _jit(function, inline=True)


def user_line(eqn: JaxprEqn) -> str:
    """Returns `file:line (function)` of the user's code behind an equation, or ''."""
    return line_of_traceback(eqn.source_info.traceback)


@functools.lru_cache(maxsize=1 << 14)
def line_of_traceback(traceback: Traceback | None) -> str:
    """Returns `file:line (function)` of a JAX traceback's innermost user frame, or ''."""
    frame = next(user_frames(traceback), None)
    return f"{_line(frame.file_name, frame.start_line)} ({frame.function_name})" if frame else ""


def user_frames(traceback: Traceback | None) -> Iterator[_source.Frame]:
    """Yields the user's frames of a JAX traceback, innermost first."""
    codes, instructions = traceback.raw_frames() if traceback else ((), ())
    for code, instruction in zip(codes, instructions, strict=True):
        if is_user_code(code):
            yield _source.raw_frame_to_frame(code, instruction)


def is_user_code(code: CodeType) -> bool:
    """Returns whether the user wrote the code; what `dataclasses` writes has no file to hide."""
    return not code.co_qualname.startswith("__create_fn__.") and is_user_file(code.co_filename)


def current_user_line() -> str:
    """Returns `file:line (function)` of the user's code that is running now, or ''."""
    return line_of_traceback(_current_source().traceback)


def line_where_raised(error: BaseException) -> str:
    """Returns `file:line (function)` of the innermost user frame that an error passed, or ''."""
    frames = list(walk_tb(error.__traceback__))
    users = [(frame, line) for frame, line in frames if is_user_code(frame.f_code)]
    if not users:
        return ""
    frame, line = users[-1]
    return f"{_line(frame.f_code.co_filename, line)} ({frame.f_code.co_name})"


def current_name_stack() -> str:
    """Returns the name stack of what is traced now."""
    return str(_source.current_name_stack())


def name_stack(eqn: JaxprEqn) -> str:
    """Returns the equation's own name stack, innermost name last."""
    stack = eqn.source_info.name_stack
    known = _TEXTS.get(id(stack))
    if known is None:
        if len(_TEXTS) >= _MOST_TEXTS:
            _TEXTS.clear()
        known = _TEXTS[id(stack)] = stack, str(stack)
    return known[1]


# By identity, and kept alive: a scope `jvp` and the transformation make equal stacks.
_TEXTS: dict[int, tuple[NameStack, str]] = {}
_MOST_TEXTS = 1 << 15


def bind_equation(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Runs an equation on values (or tracers), under its own name stack and source line."""
    params = eqn.primitive.get_bind_params(eqn.params)
    with use_source_of(eqn), use_configuration_of(eqn):
        result = eqn.primitive.bind(*values, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def use_source_of(eqn: JaxprEqn) -> Any:
    """Returns a context; what is traced in it gets the equation's line and name stack."""
    stack = _source.current_name_stack() + eqn.source_info.name_stack
    return _source.user_context(eqn.source_info.traceback, name_stack=stack)


def use_configuration_of(eqn: JaxprEqn) -> Any:
    """Returns a context; what is traced in it is configured as the equation is.

    The configuration is what JAX keeps beside the parameters: how random bits are made, on which
    device to compute, and metadata for XLA.
    """
    return eqn.ctx.manager


def copy_shards(arrays: Sequence[jax.Array], shardings: Sequence[Any]) -> list[jax.Array]:
    """Copies each array to the devices of a sharding that cuts it into the same shards.

    Nothing is checked; random keys are not taken. The host waits for nothing, and reads no value.
    """
    devices = [sharding._internal_device_list for sharding in shardings]
    semantics = [_REUSE_INPUT] * len(arrays)
    return _copy_arrays(list(arrays), devices, list(shardings), semantics)


def load_executable_for_device(code: bytes, device: Any) -> Any:
    """Returns what XLA has compiled for one device, for another device of the same client."""
    options = _CLIENT.CompileOptions()
    options.device_assignment = _CLIENT.DeviceAssignment.create(np.array([[device.id]], np.int32))
    return device.client.deserialize_executable(code, _CLIENT.DeviceList((device,)), options)


_copy_arrays: Any = getattr(_CLIENT, "batched_copy_array_to_devices_with_sharding", None)
can_copy_shards: bool = _copy_arrays is not None  # otherwise `device_put` does it, in more time
_REUSE_INPUT: Any = _CLIENT.ArrayCopySemantics.REUSE_INPUT


def release_from_device(array: jax.Array) -> jax.Array:
    """Returns an array of one device as one that JAX may move to compute with those of others."""
    build: Any = _array.ArrayImpl
    return build(array.aval, array.sharding, [array.addressable_data(0)], committed=False)


def run_equations(jaxpr: Jaxpr, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr on values (or tracers), and keeps its name stacks and source lines."""
    return list(eval_jaxpr(jaxpr, consts, *values))


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
    pruned, is_read = _dce_jaxpr(jaxpr.jaxpr, is_used)
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
    rule = _dce_rules.get(eqn.primitive)
    return eqn if rule is None else rule(list(is_result_used), eqn)[1]


def add_innermost_scope(eqn: JaxprEqn, scope: str) -> JaxprEqn:
    """Returns the equation inside one more, innermost, named scope."""
    source = eqn.source_info
    return eqn.replace(source_info=source.replace(name_stack=source.name_stack.extend(scope)))


def is_tracer(value: Any) -> bool:
    """Returns whether a value belongs to an open trace, so that its contents are unknown."""
    return isinstance(value, Tracer)


def is_mapped(value: Any) -> bool:
    """Returns whether a value stands for one example of a `vmap` that is under way."""
    return isinstance(value, _batching.BatchTracer)


def wait_for_peers(name: str, seconds: float) -> None:
    """Waits until all processes of `jax.distributed` have called this with the same name."""
    _distributed.global_state.client.wait_at_barrier(name, int(seconds * 1000))  # pyright: ignore
