"""Changes of files: of their bytes, and of the JSON in them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, TypeAlias

Path: TypeAlias = tuple[Any, ...]

BAIT = "file_fuzz_bait"
"""A module that no file may have imported."""


def hostile(rng: random.Random) -> Any:
    """A value that stands nowhere in a good file."""
    return rng.choice(_HOSTILE)(rng)


def change_json(document: Any, rng: random.Random) -> Any:
    """A document with one to three changes."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        document = rng.choice(_JSON_CHANGES)(document, rng)
    return document


def change_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bytes with one to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(_BYTE_CHANGES)(content, rng)
    return content


# --- values ---------------------------------------------------------------------------------------


def _nested(rng: random.Random) -> Any:
    value: Any = 0
    for _ in range(rng.choice((10, 400, 3000))):
        value = [value] if rng.random() < 0.9 else {"a": value}
    return value


_TEXTS = (
    "",
    "x",
    "\x00",
    "\ud800",
    "ä" * 50,
    "a" * 100_000,
    "../../../../etc/passwd",
    "/etc/passwd",
    "/dev/zero",
    "/dev/stdin",
    "__class__",
    "__class__.__init__.__globals__",
    "__reduce__",
    f"{BAIT}:Bait",
    BAIT,
    "this:Zen",
    "subprocess:Popen",
    "os:system",
    "builtins:eval",
    "builtins:object",
    "jax.tree_util:Partial",
    "collections:defaultdict",
    "builtins:dict",
    "builtins:tuple",
    "None",
    "object",
    "O",
    "V8",
    "S1000000000",
    "float32,float32",
    "float32",
    "bfloat16",
    "int4",
    "key<fry>",
    "float0",
    "datetime64[s]",
    "nan",
    "1e999",
    "%s%s%s%n",
    "{0.__class__}",
    "<script>alert(1)</script>",
    "\x1b[2J",
)
_NUMBERS = (-1, 0, 1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, -(2**63))
_HOSTILE: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.random() < 0.5,
    lambda rng: rng.choice(_NUMBERS),
    lambda rng: rng.choice(_NUMBERS),
    lambda rng: 10 ** rng.choice((20, 30, 300)),
    lambda rng: rng.choice((0.5, -0.0, 1e308, float("nan"), float("inf"), 1e-320)),
    lambda rng: rng.choice(_TEXTS),
    lambda rng: rng.choice(_TEXTS),
    lambda rng: [],
    lambda rng: {},
    lambda rng: [rng.choice(_NUMBERS)],
    lambda rng: [0] * rng.choice((3, 1000, 100_000)),
    lambda rng: [[]] * rng.choice((3, 1000, 100_000)),
    lambda rng: {rng.choice(_TEXTS): rng.choice(_NUMBERS)},
    lambda rng: {"class": rng.choice(_TEXTS)},
    lambda rng: {"member": [rng.choice(_TEXTS), rng.choice(_TEXTS)]},
    lambda rng: [rng.choice(_TEXTS), {"class": rng.choice(_TEXTS)}, [None]],
    lambda rng: {rng.choice(("dict", "list", "tuple", "number", "dtype")): rng.choice(_TEXTS)},
    _nested,
)


# --- JSON -----------------------------------------------------------------------------------------


def _paths(document: Any, start: Path = ()) -> list[Path]:
    """The places of all values; of long lists, those of a few."""
    paths, left = [start], [(document, start)]
    while left:
        value, path = left.pop()
        if isinstance(value, dict):
            keys: list[Any] = list(value)
        elif isinstance(value, list):
            count = len(value)
            keys = list(range(count)) if count < 40 else [*range(20), *range(count - 20, count)]
        else:
            continue
        paths += [(*path, key) for key in keys]
        left += [(value[key], (*path, key)) for key in keys]
    return paths


def _pick(document: Any, rng: random.Random) -> Path:
    """A place: each depth is about as likely as another."""
    paths = _paths(document)
    depth = rng.choice(sorted({len(path) for path in paths}))
    return rng.choice([path for path in paths if len(path) == depth])


def _get(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def _put(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    _get(document, path[:-1])[path[-1]] = value
    return document


def _replace(document: Any, rng: random.Random) -> Any:
    return _put(document, _pick(document, rng), hostile(rng))


def _drop(document: Any, rng: random.Random) -> Any:
    path = _pick(document, rng)
    if path:
        del _get(document, path[:-1])[path[-1]]
    return document


def _double(document: Any, rng: random.Random) -> Any:
    path = _pick(document, rng)
    above = _get(document, path[:-1]) if path else None
    if isinstance(above, list):
        above.insert(path[-1], copy.deepcopy(above[path[-1]]))
    elif isinstance(above, dict):
        above[f"{path[-1]}x"] = copy.deepcopy(above[path[-1]])
    return document


def _swap(document: Any, rng: random.Random) -> Any:
    one, other = _pick(document, rng), _pick(document, rng)
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # one of them is inside of the other
        return document
    first, second = _get(document, one), _get(document, other)
    return _put(_put(document, one, second), other, first)


def _copy(document: Any, rng: random.Random) -> Any:
    value = copy.deepcopy(_get(document, _pick(document, rng)))
    return _put(document, _pick(document, rng), value)


def _rename(document: Any, rng: random.Random) -> Any:
    path = _pick(document, rng)
    above = _get(document, path[:-1]) if path else None
    if isinstance(above, dict):
        above[rng.choice(_TEXTS)] = above.pop(path[-1])
    return document


def _add(document: Any, rng: random.Random) -> Any:
    value = _get(document, _pick(document, rng))
    if isinstance(value, dict):
        value[rng.choice(_TEXTS)] = hostile(rng)
    elif isinstance(value, list):
        value.insert(rng.randint(0, len(value)), hostile(rng))
    return document


def _nudge(document: Any, rng: random.Random) -> Any:
    """A number somewhere, a little or far beside what it was."""
    paths = [path for path in _paths(document) if type(_get(document, path)) in (int, float)]
    if not paths:
        return _replace(document, rng)
    path = rng.choice(paths)
    value = _get(document, path)
    others = (value + 1, value - 1, -value, value * 2, value * 1000, value / 2, value + 0.5)
    return _put(document, path, rng.choice(others))


_JSON_CHANGES = (_replace, _replace, _replace, _drop, _double, _swap, _copy, _rename, _add, _nudge)


# --- bytes ----------------------------------------------------------------------------------------


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randint(0, len(content))]


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if content else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set(content: bytes, rng: random.Random) -> bytes:
    """Some bytes, as a number of so many would be, all zeros, all ones or other."""
    changed, size = bytearray(content), rng.choice((1, 2, 4, 8, 16))
    if len(changed) > size:
        start = rng.randrange(len(changed) - size)
        values = (b"\0" * size, b"\xff" * size, rng.randbytes(size), b"\x7f" * size)
        changed[start : start + size] = rng.choice(values)
    return bytes(changed)


def _remove(content: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(content))
    return content[:start] + content[start + rng.choice((1, 4, 64, 4096)) :]


def _insert(content: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(content))
    return content[:start] + rng.randbytes(rng.choice((1, 4, 64, 4096))) + content[start:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(content))
    return content[: start + rng.choice((1, 16, 512))] + content[start:]


def exchange(content: bytes, rng: random.Random) -> bytes:
    """Two words, or two pages, in each other's place."""
    size = rng.choice((8, 8, 64, 512, 4096))
    count = len(content) // size
    if count < 2:
        return content
    one, other = sorted(rng.sample(range(count), 2))
    a, b = slice(one * size, one * size + size), slice(other * size, other * size + size)
    changed = bytearray(content)
    changed[a], changed[b] = content[b], content[a]
    return bytes(changed)


_BYTE_CHANGES = (_cut, _flip, _flip, _set, _set, _remove, _insert, _repeat, exchange)
