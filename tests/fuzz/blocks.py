"""Blocks: some statements, chosen by weight from everything that may be written at a point."""

from __future__ import annotations

from tests.fuzz.contractions import CONTRACTIONS
from tests.fuzz.operations import OPERATIONS, Writer
from tests.fuzz.values import Scope, Value

Table = list[tuple[float, Writer]]
TABLE: Table = [*OPERATIONS, *CONTRACTIONS]
BODIES: Table = []  # what has bodies of its own; filled by the modules that write them


def fill(scope: Scope, least: int, most: int) -> None:
    """Writes some statements, as long as the program may grow."""
    for _ in range(scope.chance.randint(least, most)):
        if scope.draft.size <= 0:
            return
        scope.draft.size -= 1
        deep = BODIES if scope.context.depth > 0 else []
        table = [*TABLE, *deep]
        (writer,) = scope.chance.choices([w for _, w in table], [weight for weight, _ in table])
        writer(scope)


def last(scope: Scope) -> Value:
    """A value for a body to return: one of its own if it has any."""
    own = [value for value in scope.own if value.dtype != "key" and value.size > 0]
    if own:
        return own[-1] if scope.chance.random() < 0.6 else scope.chance.choice(own)
    return scope.number()


def returned(scope: Scope, types: list[Value]) -> str:
    """A tuple of values of these types, made of what the block has."""
    names: list[str] = []
    for wanted in types:
        # Now and then something that the body did not make: its own parameters, in another order
        # perhaps, or what it closes over.
        among = scope.values if scope.chance.random() < 0.2 else scope.own
        alike = [v for v in among if (v.shape, v.dtype) == (wanted.shape, wanted.dtype)]
        if alike and (wanted.dtype == "key" or scope.chance.random() < 0.6):
            chosen = alike[-1]
            if chosen.weak:
                chosen = scope.fit(chosen, wanted.shape, wanted.dtype)
            names.append(chosen.name)
        elif wanted.dtype == "key":
            names.append(f"jax.random.split({wanted.name})[0]")
        else:
            names.append(scope.fit(last(scope), wanted.shape, wanted.dtype).name)
    return f"({', '.join(names)},)"
