"""Programs as data: a tree of statements that prints as Python."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from textwrap import indent
from typing import TypeAlias

PRELUDE = """\
import contextlib
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.experimental.xla_metadata import set_xla_metadata

import ipujax as ipu
from ipujax.scopes import frontend_attribute, ipu_jit_scope, ipu_shard, outside_compilation_scope


class Pair(NamedTuple):
    first: Any
    second: Any


seen = []  # what the program told the host, in order
noted = []  # the same of ordered calls for debugging, whose order is their own
heard = []  # the same of effects without an order
queues = []  # outfeeds
refs = []  # Refs that outlive a call


def tell(*values):
    seen.append([np.array(value) for value in values])


def note(*values):
    noted.append([np.array(value) for value in values])


def mention(*values):
    heard.append([np.array(value) for value in values])


def kept(ref):
    refs.append(ref)
    return ref

"""


@dc.dataclass(frozen=True)
class Line:
    """One or several lines of Python.

    Attributes:
      text: the lines.
      plain: lines that give the same names values of the same types, without operands; what a
        failing program is made smaller with. None if the line may be dropped, or must stay.
    """

    text: str
    plain: str | None = None


@dc.dataclass(frozen=True)
class Define:
    """A nested function.

    Attributes:
      head: decorators and the `def` line.
      body: its statements.
      result: the expression that it returns.
    """

    head: str
    body: tuple[Statement, ...]
    result: str


@dc.dataclass(frozen=True)
class Marked:
    """Statements in a scope.

    Attributes:
      scope: what is entered, such as `ipu_shard(1)`.
      body: the statements.
    """

    scope: str
    body: tuple[Statement, ...]


Statement: TypeAlias = Line | Define | Marked


@dc.dataclass(frozen=True)
class Program:
    """A whole program.

    Attributes:
      title: which program of which seed it is.
      ipus: the IPUs of its device.
      constants: statements before the function: arrays and functions that it closes over.
      parameters: names of its parameters.
      arguments: for each, an expression that draws its value from `rng`.
      body: the function's statements.
      results: what it returns: names of entries of a dict, and their expressions.
      reference: lines that define `reference`, the function that says what is right; the program
        itself under `jax.jit` if there are none.
      donated: which arguments' buffers the engines may reuse.
      precision: the coarsest dtype that the program rounds to.
      replicated: whether a device of more IPUs than the marks use may run replicas.
      inspected: whether its report, text and costs are asked for.
      contexts: functions of JAX whose contexts it is called in, and their arguments.
      statics: of each call the value of a static argument, `knob`, the last one; () without.
      copies: how many times `ipus` its device has.
      cached: whether what is compiled is kept in a folder, and loaded from there.
    """

    title: str
    ipus: int
    constants: tuple[Statement, ...]
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]
    body: tuple[Statement, ...]
    results: tuple[tuple[str, str], ...]
    reference: str = ""
    donated: tuple[int, ...] = ()
    precision: str = "float32"
    replicated: bool = True
    inspected: bool = False
    contexts: tuple[tuple[str, str], ...] = ()
    statics: tuple[str, ...] = ()
    copies: int = 1
    cached: bool = False

    @property
    def static(self) -> tuple[int, ...]:
        """Which arguments are compile-time constants."""
        return (len(self.parameters),) if self.statics else ()

    def text(self) -> str:
        """The program as a Python module."""
        lines = [f'"""{self.title}: {self.ipus * self.copies} IPUs."""\n', PRELUDE]
        opened = [f"stack.enter_context(jax.{name}({value}))" for name, value in self.contexts]
        body = "\n".join(["stack = contextlib.ExitStack()", *opened, "return stack"])
        lines.append(f"\n\ndef context():\n{indent(body, _STEP)}\n\n")
        lines.append(printed(self.constants) if self.constants else "")
        lines.append(f"\n\ndef arguments(draw):\n{indent(self._arguments(), _STEP)}\n")
        body, results = self.body, self.results
        if not self.replicated and self.ipus > 1:
            # Something on the last IPU, whatever the marks in the body: one replica needs them all.
            last = Line("last = lax.iota(jnp.int32, 2)")
            body = (*body, Marked(f"ipu_shard({self.ipus - 1})", (last,)))
            results = (*results, ("last", "last"))
        result = "{" + ", ".join(f'"{name}": {text}' for name, text in results) + "}"
        knob = ["knob"] if self.statics else []
        head = f"def program({', '.join([*self.parameters, *knob])}):"
        lines.append("\n" + printed([Define(head, body, result)]))
        if self.reference:
            lines.append("\n\n" + self.reference)
        return "\n".join(lines) + "\n"

    def script(self) -> str:
        """The module, and what compares it when it is run."""
        return self.text() + _FOOTER.format(
            ipus=self.ipus * self.copies,
            reference="reference" if self.reference else "program",
            donated=f", donate_argnums={self.donated}" if self.donated else "",
            static=f", static_argnums={self.static}" if self.statics else "",
            calls=max(1, len(self.statics)),
        )

    def _arguments(self) -> str:
        return "\n".join(
            [
                "rng = np.random.default_rng(draw)",
                "return [",
                *(f"{_STEP}{text}," for text in self.arguments),
                *([f"{_STEP}[{', '.join(self.statics)}][draw],"] if self.statics else []),
                "]",
            ]
        )


_STEP = "    "

_FOOTER = """

if __name__ == "__main__":
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = {ipus}
    config.configure_ipu_system()
    with context():
        runs = {{"jit": jax.jit({reference}{static})}}
        for engine in ("fused", "replay"):
            runs[engine] = ipu.compile(program, engine=engine{donated}{static})
        for draw in range({calls}):
            for name, run in runs.items():
                print(f"{{name + ':':7}}", run(*arguments(draw)))
    print(seen, noted, heard)
"""


def printed(statements: Sequence[Statement]) -> str:
    """The statements as Python."""
    return "\n".join(_text(statement) for statement in statements) or "pass"


def _text(statement: Statement) -> str:
    match statement:
        case Line():
            return statement.text
        case Define():
            body = [*statement.body, Line(f"return {statement.result}")]
            return f"{statement.head}\n{indent(printed(body), _STEP)}"
        case Marked():
            return f"with {statement.scope}:\n{indent(printed(statement.body), _STEP)}"
