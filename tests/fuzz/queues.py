"""Programs with queues: loops that are fed, and pipelines against loops of the same stages."""

from __future__ import annotations

import random

from tests.fuzz.blocks import fill, returned
from tests.fuzz.marks import sprinkled
from tests.fuzz.source import Line, Program, Statement
from tests.fuzz.values import Context, Draft, Scope, Value

SOURCE = """\
import optax


def elements():
    for number in range(64):
        x = np.sin(np.arange(6).reshape(2, 3) + number)
        yield np.float32(x), np.int32(number % 5 + np.arange(3))


infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
queues.append(outfeed)
"""


def generate(title: str, chance: random.Random, features: frozenset[str]) -> Program:
    """A loop or a pipeline on as many IPUs as it needs: replicas would share the elements out."""
    draft = Draft(chance, features, size=12)
    return (_loop if chance.random() < 0.6 else _pipeline)(title, draft)


def _element(draft: Draft) -> list[Value]:
    return [
        Value(draft.name("e"), (2, 3), "float32", exact=False),
        Value(draft.name("e"), (3,), "int32"),
    ]


def _carry(draft: Draft) -> list[Value]:
    return [
        Value(draft.name("x"), (2, 3), "float32", exact=False),
        Value(draft.name("x"), (3,), "int32"),
    ]


_ARGUMENTS = (
    "jnp.asarray(rng.uniform(-2, 2, (2, 3)), jnp.float32)",
    "jnp.asarray(rng.integers(-5, 6, (3,)), jnp.int32)",
)


def _loop(title: str, draft: Draft) -> Program:
    """`loops.repeat` with an infeed and an outfeed; under `jax.jit` the same queues work."""
    parameters, carry, element = _carry(draft), _carry(draft), _element(draft)
    scope = Scope(draft, parameters, Context(depth=1))

    def write(inner: Scope) -> str:
        fill(inner, 2, 6)
        sent = [value for value in inner.own if value.dtype not in ("key",)][-2:]
        names = ", ".join(value.name for value in [*sent, carry[0]])
        inner.line(f"outfeed.enqueue([{names}])")
        return returned(inner, carry)

    fill(scope, 0, 2)
    body = scope.define("body", [*carry, *element], write, ordered=False, refs=False)
    count = draft.chance.choice(["3", "5", "jnp.abs(jnp.sum(x1)) % 4 + 1"])
    given = ", ".join(value.name for value in parameters)
    scope.results(
        [scope.strong(value) for value in carry],
        f"ipu.loops.repeat({count}, {body}, [{given}], infeed)",
    )
    return _program(title, draft, parameters, scope)


def _program(title: str, draft: Draft, parameters: list[Value], scope: Scope) -> Program:
    fill(scope, 0, 3)
    ipus = draft.chance.choice([1, 2, 4]) if "shards" in draft.features else 1
    body = sprinkled(scope.statements, ipus, draft.chance)
    results = [value.name for value in scope.own]
    return Program(
        title=title,
        ipus=ipus,
        constants=(Line(SOURCE),),
        parameters=tuple(value.name for value in parameters),
        arguments=_ARGUMENTS,
        body=body,
        results=tuple((f"r{number}", name) for number, name in enumerate(results)),
        precision=draft.precision,
        replicated=False,
        inspected="reports" in draft.features and draft.chance.random() < 0.2,
    )


_OPTIMIZER = "lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(optax.sgd(0.1), loss)"
_TRAINED = """\
def reference(w):
    def step(total, e0, e1):
        loss, slope = jax.value_and_grad(lambda w: {whole})(w)
        outfeed.enqueue([loss])
        return jax.tree.map(jnp.add, total, slope)

    total = ipu.loops.repeat({count}, step, [jax.tree.map(jnp.zeros_like, w)], infeed)
    return {{"r0": jax.tree.map(lambda a, b: a - 0.1 * b, w, total)}}
"""
_RUN = """\
def reference(w):
    def step(e0, e1):
        outfeed.enqueue(list({whole}))

    ipu.loops.repeat({count}, step, [], infeed)
    return {{"r0": ()}}
"""


def _pipeline(title: str, draft: Draft) -> Program:
    """A pipeline, trained or not, against a loop over its micro-batches."""
    stages, trained = draft.chance.choice([2, 2, 3]), draft.chance.random() < 0.6
    names, functions = _stages(draft, stages, trained)
    count = 2 * stages * draft.chance.choice([1, 2])
    schedule = draft.chance.choice(["Grouped", "Interleaved", "Sequential"])
    optimizer = f"optimizer_function={_OPTIMIZER}, " if trained else ""
    call = (
        f"ipu.pipelining_ops.pipeline([{', '.join(names)}], {count}, infeed_queue=infeed, "
        f"outfeed_queue=outfeed, {optimizer}variables=w, "
        f"pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.{schedule})"
    )
    whole = "e0, e1"
    for name in names[:-1]:
        whole = f"*{name}(w, {whole})"
    whole = f"{names[-1]}(w, {whole})"
    return Program(
        title=title,
        ipus=1 << (stages - 1).bit_length(),
        constants=(Line(SOURCE), *functions),
        parameters=("w",),
        arguments=(
            f"[jnp.asarray(rng.uniform(-1, 1, (2, 3)), jnp.float32) for _ in range({stages})]",
        ),
        body=(),
        results=(("r0", f"{call}[0]" if trained else call),),
        reference=(_TRAINED if trained else _RUN).format(count=count, whole=whole),
        precision=draft.precision,
        inspected="reports" in draft.features and draft.chance.random() < 0.2,
    )


def _stages(draft: Draft, count: int, trained: bool) -> tuple[list[str], list[Statement]]:
    """The stages' functions: each reads its own variable; the last gives the loss, if trained."""
    scope = Scope(draft, [], Context(depth=2, refs=False))
    names: list[str] = []
    for number in range(count):
        taken = _element(draft)
        weight = Value(f"w[{number}]", (2, 3), "float32", exact=False)
        is_loss = trained and number == count - 1

        def write(
            inner: Scope,
            weight: Value = weight,
            taken: list[Value] = taken,
            is_loss: bool = is_loss,
        ) -> str:
            used = inner.assign("jnp.sin({0}) + {1} * 0.5", weight, taken[0], exact=False)
            fill(inner, 1, 4)
            if not is_loss:
                return returned(inner, taken)
            (last,) = [v for v in inner.own if v.is_float][-1:]
            return inner.assign(
                "(jnp.mean({0}) + jnp.mean({1})).astype(jnp.float32)", used, last
            ).name

        whole = Value("w", (), "tuple")
        context = {"smooth": trained, "unbounded": not trained, "ordered": False}
        names.append(scope.define("stage", [whole, *taken], write, **context))
    return names, scope.statements
