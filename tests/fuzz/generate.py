"""Program number i of a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.fuzz import control_flow, effects, queues, refs, transforms
from tests.fuzz.blocks import fill
from tests.fuzz.marks import outside, sprinkled
from tests.fuzz.operations import CONSTANTS
from tests.fuzz.settings import surround
from tests.fuzz.source import Line, Program, printed
from tests.fuzz.values import FEATURES, FLOATS, SHAPES, Context, Draft, Scope, Value, type_of

# Bodies and effects are in the tables of `blocks` once these are imported.
WRITERS = (control_flow, effects, refs, transforms)


def generate(
    seed: int, index: int, without: Iterable[str] = (), size: int | None = None
) -> Program:
    """The program; it depends on nothing but these.

    Args:
      seed: which sequence of programs.
      index: which of them.
      without: features to leave out, of `FEATURES`.
      size: how many statements at most; some between 3 and 18 if None.
    """
    chance = random.Random(f"{seed} {index}")
    features = frozenset(FEATURES) - frozenset(without)
    title = f"program {index} of seed {seed}"
    if "queues" in features and chance.random() < 0.08:
        program = queues.generate(title, chance, features)
    else:
        program = _function(title, chance, features, size)
    return surround(program, random.Random(f"around {seed} {index}"), features)


def _function(
    title: str, chance: random.Random, features: frozenset[str], size: int | None
) -> Program:
    draft = Draft(chance, features, size=size or chance.choice([3, 5, 7, 9, 12, 18]))
    parameters, arguments = _parameters(draft)
    depth = chance.choice([0, 1, 1, 2, 2, 3])
    scope = Scope(draft, [*_constants(draft), *parameters], Context(depth=depth))
    if "refs" in features:
        arguments += refs.outer(scope, [value.name for value in parameters])
        parameters += [value for value in scope.refs if value.name.startswith("x")]
    fill(scope, draft.size // 2, draft.size)
    results = _results(scope, parameters)
    ipus = chance.choice([1, 2, 2, 4])
    body = tuple(scope.statements)
    if ipus > 1 and "shards" in features:
        body = sprinkled(body, ipus, chance)
    if "outside" in features and chance.random() < 0.1:
        body = outside(body, chance)
    calls = "callback(" in printed(body) and "replicated-callbacks" not in features
    return Program(
        title=title,
        ipus=ipus,
        constants=tuple(draft.constants),
        parameters=tuple(value.name for value in parameters),
        arguments=arguments,
        body=body,
        results=results,
        donated=_donated(draft, arguments),
        precision=draft.precision,
        replicated="replicas" in features and not calls,
        inspected="reports" in features and chance.random() < 0.15,
    )


def _donated(draft: Draft, arguments: tuple[str, ...]) -> tuple[int, ...]:
    """Some of the arguments that are JAX's own arrays."""
    if "donation" not in draft.features or draft.chance.random() < 0.85:
        return ()
    return tuple(n for n, text in enumerate(arguments) if text.startswith("jnp."))


def _parameters(draft: Draft) -> tuple[list[Value], tuple[str, ...]]:
    parameters: list[Value] = []
    arguments: list[str] = []
    for number in range(draft.chance.randint(1, 4)):
        shape = draft.chance.choice(SHAPES)
        kind = draft.chance.choice(
            ["float32"] * 4 + ["int32"] * 3 + [*FLOATS, "int8", "uint32", "bool", "key", "weak"]
        )
        value = Value(f"x{number}", shape, kind, exact=kind not in FLOATS)
        if kind in FLOATS:
            text = f"jnp.asarray(rng.uniform(-2, 2, {shape}), jnp.{kind})"
        elif kind == "key":
            if "random" not in draft.features:
                continue
            value, text = Value(value.name, (), "key"), "jax.random.key(rng.integers(100))"
        elif kind == "weak":
            value = Value(value.name, (), "float32", weak=True, exact=False)
            text = "float(rng.uniform(-2, 2))"
        elif kind == "bool":
            text = f"jnp.asarray(rng.integers(0, 2, {shape}), bool)"
        else:
            low = 0 if kind.startswith("u") else -5
            text = f"jnp.asarray(rng.integers({low}, 6, {shape}), jnp.{kind})"
        if draft.chance.random() < 0.15 and kind in ("float32", "int32"):
            text = text.replace("jnp.asarray", "np.asarray")
        parameters.append(value)
        draft.dtypes.add(value.dtype)
        arguments.append(text)
    return parameters, tuple(arguments)


def _constants(draft: Draft) -> list[Value]:
    """Arrays that the function closes over."""
    values: list[Value] = []
    if "constants" not in draft.features:
        return values
    for _ in range(draft.chance.randint(0, 2)):
        text = draft.chance.choice(CONSTANTS)
        shape, dtype, weak = type_of(text, ())
        name = draft.name("k")
        if draft.chance.random() < 0.3 and dtype != "bfloat16":  # which NumPy makes float32 of
            draft.constants.append(Line(f"{name} = np.asarray({text})"))
            weak = False
        else:
            draft.constants.append(Line(f"{name} = {text}"))
        draft.dtypes.add(dtype)
        values.append(Value(name, shape, dtype, weak))
    return values


def _results(scope: Scope, parameters: list[Value]) -> tuple[tuple[str, str], ...]:
    """Most of what the body made, arguments, literals and duplicates."""
    chance = scope.chance
    chosen = [value.name for value in scope.own if chance.random() < 0.6]
    chosen = chosen or [scope.number().name]
    chosen += [f"{ref.name}[...]" for ref in scope.refs]
    given = [value.name for value in parameters if value not in scope.refs]
    if given and chance.random() < 0.3:
        chosen.append(chance.choice(given))
    if chance.random() < 0.2:
        chosen.append(chance.choice(["1", "2.5", "np.float32(3)", "np.arange(3)", "None", "()"]))
    if chance.random() < 0.2:
        chosen.append(chosen[0])
    if chance.random() < 0.3 and "structures" in scope.draft.features and len(chosen) > 1:
        chosen[:2] = [f"Pair({chosen[0]}, ({chosen[1]},))"]
    return tuple((f"r{number}", text) for number, text in enumerate(chosen))
