"""The marks that scopes write into name stacks, and how the compiler reads them back.

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
EACH_REPLICA = "each_replica"
ROWS = "rows_of_ipu"

# The attributes that the two numeric scopes set, as the original named them.
PARTIALS_TYPE = "partials_type"
STOCHASTIC_ROUNDING = "stochastic_rounding"

# Under this attribute, convolutions run at the same time; its options are "multi_conv.<option>".
MULTI_CONV = "multi_conv"

# Under this attribute with this value, convolutions may add up their products in any order.
CONVOLUTIONS = "convolutions"
PRODUCTS = "products"

_FUSES_LINES = "fuses_lines"

# A whole name of a stack, or one inside `jvp(...)` and its kind; anything else is a user's scope.
_MARK = re.compile(
    r"(?<![^/(])((?:ipu_shard|pipeline_stage|rows_of_ipu)(?=\[\d+\])|outside_compilation|frontend_attribute|ipu_jit_scope|outlined|outlined_block|each_replica|composed)"
    r"\[([^\]]*)\]"
)

NARROWED = "narrowed"  # around what stands for a result of float16
COMPOSED = "composed"  # around the body of a function that is one operation of the original

# The prefixes that JAX wraps around names.
_TRANSFORMS = re.compile(r"^(?:(?:jvp|transpose|vmap)\()+")
# Around a derivative, a transposition repeats the names, and wraps the first.
_AGAIN = re.compile(r"^(.+?)((?:/[^/]+)*)/transpose\(\1\)\2(?=/|$)")
_DERIVATIVE = re.compile(r"(?:^|[/(])(jvp|transpose)\(")
_OF_JAX = frozenset({"checkpoint", "rematted_computation"})
_KINDS = (
    SHARD,
    STAGE,
    OUTSIDE,
    ATTRIBUTE,
    JIT_SCOPE,
    UNIT,
    BLOCK,
    EACH_REPLICA,
    ROWS,
    NARROWED,
    COMPOSED,
)
_OURS = re.compile(rf"({'|'.join(_KINDS)})\[")


@dc.dataclass(frozen=True, slots=True)
class Marks:
    """The marks of all scopes around one equation; the innermost scope wins.

    Attributes:
      shard: the IPU that `ipu_shard` asked for.
      stage: the pipeline stage that a front end put the equation into.
      rows_of_ipu: the IPU of the stage that reads a slice of a stacked parameter.
      outside: the name of the `outside_compilation_scope` around it.
      unit: the name of the outlined function around it that must stay on one IPU.
      block: the name of the outlined function around it whose calls share one code.
      attributes: frontend attributes, in the order of their first opening.
      each_replica: whether a callback is every replica's own.
      composed: the name of the composed function around it that the original has as one operation.
      jit_scope: the innermost `ipu_jit_scope`.
      backward: whether the equation belongs to a backward pass.
    """

    shard: int | None = None
    stage: int | None = None
    rows_of_ipu: int | None = None
    outside: str | None = None
    unit: str | None = None
    block: str | None = None
    each_replica: bool = False
    composed: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    jit_scope: str | None = None
    backward: bool = False

    @property
    def partials_type(self) -> str | None:
        """The dtype name that `scopes.partials_type` asks for."""
        return dict(self.attributes).get(PARTIALS_TYPE)

    @property
    def convolutions(self) -> str | None:
        """The form that convolutions may take on CPUs (see `rewrite_convolutions_as_products`)."""
        return dict(self.attributes).get(CONVOLUTIONS)

    @property
    def fuses_lines(self) -> bool:
        """Whether elementwise operations of several lines run as one."""
        return dict(self.attributes).get(_FUSES_LINES) != "False"

    @property
    def multi_conv(self) -> tuple[tuple[str, str], ...] | None:
        """The options of the multi-convolution around it, and its number if it has one."""
        value_of_attribute = dict(self.attributes)
        if MULTI_CONV not in value_of_attribute:
            return None
        prefix = f"{MULTI_CONV}."
        options = ((n.removeprefix(prefix), v) for n, v in self.attributes if n.startswith(prefix))
        return (("number", value_of_attribute[MULTI_CONV]), *options)

    @property
    def stochastic_rounding(self) -> bool | None:
        """The request of `scopes.stochastic_rounding`; None leaves it to the configuration."""
        request = dict(self.attributes).get(STOCHASTIC_ROUNDING)
        return None if request is None else request == "True"


def write_mark(kind: str, *fields: str) -> str:
    """Returns the scope text of a mark; fields may hold any characters."""
    return f"{kind}[{'='.join(quote(field, safe='') for field in fields)}]"


def keep_lines_apart() -> contextlib.AbstractContextManager[object]:
    """Returns a scope in which elementwise operations of several lines do not run as one.

    So it is with PopART's compiler: what it has as one operation, a gelu or a norm, is what one
    line calls. That of the TensorFlow port fuses them.
    """
    return jax.named_scope(write_mark(ATTRIBUTE, _FUSES_LINES, "False"))


def place_on_shard(shard: int | None) -> contextlib.AbstractContextManager[object]:
    """Returns a scope that places what is traced in it on a shard; None leaves that open."""
    return (
        contextlib.nullcontext()
        if shard is None
        else jax.named_scope(write_mark(SHARD, str(shard)))
    )


@functools.lru_cache(maxsize=1 << 16)
def read_marks(stack: str) -> Marks:
    """Returns the marks of an equation with this (joined) name stack."""
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
    numbers = {kind: int(texts[kind]) for kind in (SHARD, STAGE, ROWS) if kind in texts}
    return Marks(
        shard=numbers.get(SHARD),
        stage=numbers.get(STAGE),
        rows_of_ipu=numbers.get(ROWS),
        outside=texts.get(OUTSIDE),
        unit=texts.get(UNIT),
        block=texts.get(BLOCK),
        each_replica=EACH_REPLICA in texts,
        composed=texts.get(COMPOSED),
        attributes=tuple(attributes.items()),
        jit_scope=texts.get(JIT_SCOPE),
        backward="transpose(" in stack,
    )


@functools.lru_cache(maxsize=1 << 16)
def derivative_pass(stack: str) -> Literal["forward", "backward"] | None:
    """Returns the pass ("forward" or "backward") of the outermost derivative around an equation."""
    first = _DERIVATIVE.search(stack)
    if first is None:
        return None
    return "forward" if first[1] == "jvp" else "backward"


def innermost_user_scope(stack: str) -> str:
    """Returns the innermost name of a stack that neither we nor JAX wrote there, or ""."""
    return user_scopes(stack).rpartition("/")[2]


@functools.lru_cache(maxsize=1 << 16)
def user_scopes(stack: str) -> str:
    """Returns the user's names of a stack, outermost first, as `blocks/attention`."""
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


def join_user_scopes(outer_scopes: str, inner_scopes: str) -> str:
    """Returns a body's scopes followed by those of an equation in it, without repeating them."""
    if not outer_scopes or f"{inner_scopes}/".startswith(f"{outer_scopes}/"):
        return inner_scopes
    return f"{outer_scopes}/{inner_scopes}" if inner_scopes else outer_scopes


def join_name_stacks(enclosing_stack: str, stack: str) -> str:
    """Returns the name stack of an equation in a body whose equation has another stack."""
    return f"{enclosing_stack}/{stack}" if enclosing_stack and stack else enclosing_stack or stack


_NONE = Marks()
