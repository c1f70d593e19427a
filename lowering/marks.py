"""Marks: what the scopes write into name stacks, and how the compiler reads it back.

A mark is `jax.named_scope` text such as `ipu_shard[2]`. It rides in every equation's name stack
through jit, grad, vmap, remat, custom derivatives and control flow; a backward equation carries
`transpose(jvp(ipu_shard[2]))`, so it lands where its forward pass did. Inside a loop body only
the enclosing loop says `transpose`, hence stacks are read joined with the enclosing ones.
"""

from __future__ import annotations

import contextlib
import dataclasses as dc
import functools
import re
from typing import Literal
from urllib.parse import quote, unquote

import jax

SHARD = "ipu_shard"
STAGE = "pipeline_stage"
OUTSIDE = "outside_compilation"
ATTRIBUTE = "frontend_attribute"
JIT_SCOPE = "ipu_jit_scope"
UNIT = "outlined"
BLOCK = "outlined_block"
EACH = "each_replica"

# The attributes that the two numeric scopes set, as the original named them.
PARTIALS_TYPE = "partials_type"
STOCHASTIC_ROUNDING = "stochastic_rounding"

# Under this attribute, convolutions run at the same time; its options are "multi_conv.<option>".
MULTI_CONV = "multi_conv"

# Under this attribute with this value, convolutions may add up their products in any order.
CONVOLUTIONS = "convolutions"
PRODUCTS = "products"

# A whole name of a stack, or one inside `jvp(...)` and its kind; anything else is a user's scope.
_MARK = re.compile(
    r"(?<![^/(])((?:ipu_shard|pipeline_stage)(?=\[\d+\])|outside_compilation|frontend_attribute|ipu_jit_scope|outlined|outlined_block|each_replica)"
    r"\[([^\]]*)\]"
)

NARROWED = "narrowed"  # around what stands for a result of float16

# What JAX wraps around names, and the names that it writes itself.
_TRANSFORMS = re.compile(r"^(?:(?:jvp|transpose|vmap)\()+")
# Around a derivative, a transposition repeats the names, and wraps the first.
_AGAIN = re.compile(r"^(.+?)((?:/[^/]+)*)/transpose\(\1\)\2(?=/|$)")
_DERIVATIVE = re.compile(r"(?:^|[/(])(jvp|transpose)\(")
_OF_JAX = frozenset({"checkpoint", "rematted_computation"})
_KINDS = (SHARD, STAGE, OUTSIDE, ATTRIBUTE, JIT_SCOPE, UNIT, BLOCK, EACH, NARROWED)
_OURS = re.compile(rf"({'|'.join(_KINDS)})\[")


@dc.dataclass(frozen=True, slots=True)
class Marks:
    """What all the scopes around one equation say; the innermost scope wins.

    Attributes:
      shard: the IPU that `ipu_shard` asked for.
      stage: the pipeline stage that a front end put the equation into.
      outside: the name of the `outside_compilation_scope` around it.
      unit: the name of the outlined function around it that must stay on one IPU.
      block: which outlined function is around it, whose calls share one code.
      attributes: frontend attributes, in the order of their first opening.
      each_replica: whether a callback is every replica's own.
      jit_scope: the innermost `ipu_jit_scope`.
      backward: whether the equation belongs to a backward pass.
    """

    shard: int | None = None
    stage: int | None = None
    outside: str | None = None
    unit: str | None = None
    block: str | None = None
    each_replica: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    jit_scope: str | None = None
    backward: bool = False

    @property
    def partials_type(self) -> str | None:
        """The dtype name that `scopes.partials_type` asks for."""
        return dict(self.attributes).get(PARTIALS_TYPE)

    @property
    def convolutions(self) -> str | None:
        """What convolutions may become on CPUs (see `passes.as_products`)."""
        return dict(self.attributes).get(CONVOLUTIONS)

    @property
    def multi_conv(self) -> tuple[tuple[str, str], ...] | None:
        """The options of the multi-convolution around it, and its number if it has one."""
        named = dict(self.attributes)
        if MULTI_CONV not in named:
            return None
        prefix = f"{MULTI_CONV}."
        options = ((n.removeprefix(prefix), v) for n, v in self.attributes if n.startswith(prefix))
        return (("number", named[MULTI_CONV]), *options)

    @property
    def stochastic_rounding(self) -> bool | None:
        """What `scopes.stochastic_rounding` asks for; None leaves it to the configuration."""
        asked = dict(self.attributes).get(STOCHASTIC_ROUNDING)
        return None if asked is None else asked == "True"


def write(kind: str, *fields: str) -> str:
    """The scope text of a mark; fields may hold any characters."""
    return f"{kind}[{'='.join(quote(field, safe='') for field in fields)}]"


def on_shard(shard: int | None) -> contextlib.AbstractContextManager[object]:
    """A scope that places what is traced in it; None leaves that open."""
    return contextlib.nullcontext() if shard is None else jax.named_scope(write(SHARD, str(shard)))


@functools.lru_cache(maxsize=1 << 16)
def read(stack: str) -> Marks:
    """The marks of an equation with this (joined) name stack."""
    if "[" not in stack and "transpose" not in stack:
        return _NONE
    texts: dict[str, str] = {}
    attributes: dict[str, str] = {}
    for kind, text in _MARK.findall(stack):
        if kind == ATTRIBUTE:
            name, _, value = text.partition("=")
            attributes[unquote(name)] = unquote(value)
        else:
            texts[kind] = unquote(text)
    shard, stage = texts.get(SHARD), texts.get(STAGE)
    return Marks(
        shard=None if shard is None else int(shard),
        stage=None if stage is None else int(stage),
        outside=texts.get(OUTSIDE),
        unit=texts.get(UNIT),
        block=texts.get(BLOCK),
        each_replica=EACH in texts,
        attributes=tuple(attributes.items()),
        jit_scope=texts.get(JIT_SCOPE),
        backward="transpose(" in stack,
    )


@functools.lru_cache(maxsize=1 << 16)
def derivative(stack: str) -> Literal["forward", "backward"] | None:
    """The pass of the outermost derivative around an equation: "forward", "backward" or None."""
    first = _DERIVATIVE.search(stack)
    if first is None:
        return None
    return "forward" if first[1] == "jvp" else "backward"


def scope(stack: str) -> str:
    """The innermost name of a stack that neither we nor JAX have written there, or ""."""
    return scopes(stack).rpartition("/")[2]


@functools.lru_cache(maxsize=1 << 16)
def scopes(stack: str) -> str:
    """All such names of a stack, outermost first, as `blocks/attention`."""
    names: list[str] = []
    for part in _AGAIN.sub(r"\1\2", stack).split("/"):
        name = _TRANSFORMS.sub("", part)
        while name.count(")") > name.count("("):
            name = name.removesuffix(")")
        if name and name not in _OF_JAX and not _OURS.match(name):
            names.append(name)
    half = len(names) // 2
    if "rematted_computation" in stack and names[:half] == names[half:]:
        names = names[half:]  # JAX names both the derivative and what is computed again for it
    return "/".join(names)


def within(outer: str, inner: str) -> str:
    """The scopes of what has the scopes `inner` in a body that is in `outer`."""
    if not outer or f"{inner}/".startswith(f"{outer}/"):
        return inner
    return f"{outer}/{inner}" if inner else outer


def joined(enclosing: str, stack: str) -> str:
    """The name stack of an equation inside a body whose equation has the stack `enclosing`."""
    return f"{enclosing}/{stack}" if enclosing and stack else enclosing or stack


_NONE = Marks()
