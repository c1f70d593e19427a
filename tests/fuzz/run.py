"""Runs a program by `jax.jit` and by both engines, and says where they differ."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import linecache
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import ipujax as ipu
from ipujax.driver import executable_cache
from tests.fuzz.compare import Outcome, difference
from tests.fuzz.source import Program
from tests.numbers import use_ipus

ENGINES = ("fused", "replay")
DRAWS = (0, 1)  # arguments of each call; the second finds what the first baked in


@dc.dataclass(frozen=True)
class Failure:
    """What went wrong.

    Attributes:
      engine: `jit` if the program itself is wrong.
      kind: what stays the same while the program is made smaller.
      message: what differs, or the traceback.
    """

    engine: str
    kind: str
    message: str


def check(
    program: Program, engines: Sequence[str] = ENGINES, *, compared: bool = True
) -> Failure | None:
    """Runs the program everywhere; the first failure, if any.

    Args:
      program: the program.
      engines: those to run.
      compared: whether `jax.jit` runs it, too, and the outcomes are compared.
    """
    use_ipus(program.ipus * program.copies)
    wanted: Any = None
    if compared or "jit" in engines:
        wanted = _attempt("jit", lambda: _run(program, None))
    others = [engine for engine in engines if engine != "jit"]
    if isinstance(wanted, Failure):
        if not program.contexts:
            return wanted
        for engine in others:  # what JAX refuses in a context, the engines do as well
            if not isinstance(_attempt(engine, functools.partial(_run, program, engine)), Failure):
                return Failure(engine, "accepted", wanted.message)
        return check(dc.replace(program, contexts=()), engines, compared=compared)
    for engine in others:
        failure = _checked(program, engine, wanted)
        if failure is not None:
            return failure
    return None


def _checked(program: Program, engine: str, wanted: Sequence[Outcome] | None) -> Failure | None:
    """What is wrong with one engine."""
    with _cache() if program.cached else contextlib.nullcontext():
        for _ in range(2 if program.cached else 1):  # then it is loaded
            got = _attempt(engine, functools.partial(_run, program, engine))
            if isinstance(got, Failure):
                return got
            found = _compared(program, got, wanted) if wanted is not None else None
            if found:
                return Failure(engine, "difference", found)
    if program.inspected:
        broken = _attempt(engine, functools.partial(_inspect, program, engine))
        if isinstance(broken, Failure):
            return broken
    return None


@contextlib.contextmanager
def _cache() -> Iterator[None]:
    """In the block, kernels are kept in a folder of its own, as `--executable_cache_path` asks."""
    names = [f"jax_{name}" for name in ("compilation_cache_dir", *_CACHE_LIMITS)]
    before = {name: getattr(jax.config, name) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        executable_cache.set_cache_folder(folder)
        try:
            yield
        finally:
            executable_cache.set_cache_folder(None)
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


_CACHE_LIMITS = (
    "persistent_cache_min_compile_time_secs",
    "persistent_cache_min_entry_size_bytes",
)


def _compiled(program: Program, fn: Any, engine: str | None) -> Any:
    static: Any = {"static_argnums": program.static} if program.statics else {}
    if engine is None:
        return jax.jit(fn, **static)
    # Looked up here and now: whoever replaces the compiler is caught.
    if program.donated:
        return ipu.compile(fn, engine=engine, donate_argnums=program.donated, **static)
    return ipu.compile(fn, engine=engine, **static)


def _compared(program: Program, got: Sequence[Outcome], wanted: Sequence[Outcome]) -> str | None:
    noise: list[list[Outcome]] = []
    for number, (mine, right) in enumerate(zip(got, wanted, strict=True)):
        found = difference(mine, right, program.precision)
        if found is None:
            continue
        if not noise:
            noise = [_run(program, None, nudge=(sign, program.precision)) for sign in range(1, 5)]
        found = difference(mine, right, program.precision, [each[number] for each in noise])
        if found:
            return f"call {number}: {found}"
    return None


def _attempt(engine: str, act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        lines = "".join(traceback.format_exception(error, limit=-12))
        return Failure(engine, type(error).__name__, lines)


def _module(title: str, text: str) -> dict[str, Any]:
    """The program's module, made anew: queues, Refs and what it told are of this run only."""
    file = f"<{title}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module: dict[str, Any] = {"__name__": "fuzzed"}
    exec(compile(text, file, "exec"), module)
    return module


def _run(
    program: Program, engine: str | None, *, nudge: tuple[int, str] | None = None
) -> list[Outcome]:
    """What each call of the program does; without an engine, `jax.jit`'s."""
    module = _module(program.title, program.text())
    with module["context"]():
        return _called(program, module, engine, nudge)


def _called(
    program: Program, module: dict[str, Any], engine: str | None, nudge: tuple[int, str] | None
) -> list[Outcome]:
    fn = module["program"]
    if engine is None:
        fn = module.get("reference", fn)
    compiled = _compiled(program, fn, engine)
    outcomes: list[Outcome] = []
    for draw in range(len(program.statics)) if program.statics else DRAWS:
        arguments = module["arguments"](draw)
        if nudge is not None:
            count = len(program.parameters)
            nudged = jax.tree.map(lambda x: _nudged(x, *nudge), arguments[:count])
            arguments = [*nudged, *arguments[count:]]
        with warnings.catch_warnings():  # a program that is random has no use for some arguments
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            results = compiled(*arguments)
        jax.block_until_ready(results)
        jax.effects_barrier()
        told = [[*module["seen"], *module["noted"]], list(module["heard"])]
        told = jax.tree.map(_narrow_told, told)
        for name in ("seen", "noted", "heard"):
            module[name].clear()
        sent = [queue.dequeue() for queue in module["queues"]]
        outcomes.append(Outcome(results, *told, sent, [ref[...] for ref in module["refs"]]))
    return outcomes


def _narrow_told(value: np.ndarray) -> np.ndarray:
    """With 32 bits where several devices call the host: JAX calls it in threads without x64."""
    if jax.device_count() == 1 or value.dtype.kind not in "iufc":
        return value
    with jax.enable_x64(False):
        return value.astype(jax.dtypes.canonicalize_dtype(value.dtype))


def _nudged(value: Any, sign: int, precision: str) -> Any:
    if isinstance(value, jax.ref.Ref):
        return value
    if not (isinstance(value, float) or jnp.issubdtype(value.dtype, jnp.floating)):
        return value
    signs = np.random.default_rng(sign).choice([-1.0, 1.0], np.shape(value))
    factor = 1.0 + 4.0 * float(jnp.finfo(precision).eps) * signs
    if isinstance(value, float):
        return value * float(factor)
    return (value * factor).astype(value.dtype)


def _inspect(program: Program, engine: str) -> None:
    """What reads a program must not fail on it."""
    module = _module(program.title, program.text())
    with module["context"]():
        kept = dc.replace(program, donated=())
        lowered = _compiled(kept, module["program"], engine).lower(*module["arguments"](0))
        lowered.as_text()
        executable = lowered.compile()
        str(executable.report())
        executable.cost_analysis()
        executable.memory_analysis()
