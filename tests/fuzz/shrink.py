"""Makes a failing program smaller, as long as it fails in the same way."""

from __future__ import annotations

import dataclasses as dc
import time
from collections.abc import Iterator

from tests.fuzz.run import Failure, check
from tests.fuzz.source import Define, Line, Marked, Program, Statement

Body = tuple[Statement, ...]


def shrunk(program: Program, failure: Failure, seconds: float) -> Program:
    """A smaller program with the same failure, as small as the time allows."""
    end = time.monotonic() + seconds

    def fails(candidate: Program) -> bool:
        crashed = failure.kind != "difference"
        found = check(candidate, (failure.engine,), compared=not crashed)
        return found is not None and (found.engine, found.kind) == (failure.engine, failure.kind)

    changed = True
    while changed:
        changed = False
        for candidate in candidates(program):
            if time.monotonic() > end:
                return program
            if fails(candidate):
                program, changed = candidate, True
                break
    return program


def candidates(program: Program) -> Iterator[Program]:
    """Programs that are a little smaller; many of them do not run."""
    plain = {"contexts": (), "statics": (), "copies": 1, "cached": False}
    for name, value in plain.items():
        if getattr(program, name) != value:
            yield dc.replace(program, **{name: value})  # pyright: ignore[reportArgumentType]
    for size in (8, 4, 2, 1):
        for start in range(0, len(program.results), size):
            rest = program.results[:start] + program.results[start + size :]
            if rest and len(rest) < len(program.results):
                yield dc.replace(program, results=rest)
    for size in (8, 4, 2):
        for start in range(0, len(program.body) - size + 1, size):
            yield dc.replace(program, body=program.body[:start] + program.body[start + size :])
    for body in _smaller(program.body):
        yield dc.replace(program, body=body)


def _smaller(body: Body) -> Iterator[Body]:
    for number, statement in reversed(list(enumerate(body))):
        before, after = body[:number], body[number + 1 :]
        yield before + after
        for less in _less(statement):
            yield (*before, *less, *after)


def _less(statement: Statement) -> Iterator[Body]:
    match statement:
        case Line():
            if statement.plain is not None and statement.plain != statement.text:
                yield (Line(statement.plain, statement.plain),)
        case Marked():
            yield statement.body
            for body in _smaller(statement.body):
                yield (dc.replace(statement, body=body),) if body else ()
        case Define():
            for body in _smaller(statement.body):
                yield (dc.replace(statement, body=body),)
