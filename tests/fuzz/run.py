"""Runs a program by `jax.jit` and by both engines, and says where they differ."""

from __future__ import annotations

import dataclasses as dc
import functools
import linecache
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
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
    use_ipus(program.ipus)
    text = program.text()
    wanted: Any = None
    if compared or "jit" in engines:
        wanted = _attempt("jit", lambda: _run(program.title, text, jax.jit))
    if isinstance(wanted, Failure):
        return wanted
    for engine in (engine for engine in engines if engine != "jit"):
        compiler = functools.partial(_compiled, engine=engine, donated=program.donated)
        got = _attempt(engine, functools.partial(_run, program.title, text, compiler))
        if isinstance(got, Failure):
            return got
        found = _compared(program, text, got, wanted) if wanted is not None else None
        if found:
            return Failure(engine, "difference", found)
        if program.inspected:
            broken = _attempt(engine, functools.partial(_inspect, program.title, text, engine))
            if isinstance(broken, Failure):
                return broken
    return None


def _compiled(fn: Any, engine: str, donated: tuple[int, ...]) -> Any:
    # Looked up here and now: whoever replaces the compiler is caught.
    if donated:
        return ipu.compile(fn, engine=engine, donate_argnums=donated)
    return ipu.compile(fn, engine=engine)


def _compared(
    program: Program, text: str, got: Sequence[Outcome], wanted: Sequence[Outcome]
) -> str | None:
    noise: list[list[Outcome]] = []
    for number, (mine, right) in enumerate(zip(got, wanted, strict=True)):
        found = difference(mine, right, program.precision)
        if found is None:
            continue
        if not noise:
            noise = [
                _run(program.title, text, jax.jit, nudge=(sign, program.precision))
                for sign in range(1, 5)
            ]
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
    title: str,
    text: str,
    compiler: Callable[[Any], Any],
    *,
    nudge: tuple[int, str] | None = None,
) -> list[Outcome]:
    module = _module(title, text)
    fn = module["program"]
    if compiler is jax.jit:
        fn = module.get("reference", fn)
    compiled = compiler(fn)
    outcomes: list[Outcome] = []
    for draw in DRAWS:
        arguments = module["arguments"](draw)
        if nudge is not None:
            arguments = jax.tree.map(lambda x: _nudged(x, *nudge), arguments)
        with warnings.catch_warnings():  # a program that is random has no use for some arguments
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            results = compiled(*arguments)
        jax.block_until_ready(results)
        jax.effects_barrier()
        told = [[*module["seen"], *module["noted"]], list(module["heard"])]
        for name in ("seen", "noted", "heard"):
            module[name].clear()
        sent = [queue.dequeue() for queue in module["queues"]]
        outcomes.append(Outcome(results, *told, sent, [ref[...] for ref in module["refs"]]))
    return outcomes


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


def _inspect(title: str, text: str, engine: str) -> None:
    """What reads a program must not fail on it."""
    module = _module(title, text)
    lowered = _compiled(module["program"], engine, ()).lower(*module["arguments"](0))
    lowered.as_text()
    executable = lowered.compile()
    str(executable.report())
    executable.cost_analysis()
    executable.memory_analysis()
