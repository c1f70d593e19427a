"""What a pipeline's training step costs, against the same step written by hand.

Four stages, 16 micro-batches, float32, SGD; a step is all micro-batches and the update.

Quick looks:

    python -m benchmarks.pipeline mlp_small                   # that model's rows of the table
    python -m benchmarks.pipeline mlp_small replay auto scan  # two contenders against the last
    python -m benchmarks.pipeline compile schedule            # the other rows
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from benchmarks.measure import Row, paired, row, seconds, table
from benchmarks.pipeline_baselines import Steps, scan, stages, unrolled
from benchmarks.pipeline_models import (
    LEARNING_RATE,
    MODELS,
    STAGES,
    Model,
    flat_parameters,
    transformer,
)
from benchmarks.pipeline_torch import MISSING, TorchSteps, available

# A member of `PipelineSchedule` for each engine; None is the default.
SCHEDULES: dict[str, str | None] = {"auto": "Grouped", "replay": None}
DONATED = (0,)  # as the baselines donate their parameters
LOOPED = 10  # updates of one call, where a pipeline loops on the device as it was meant to

CONTENDERS: dict[str, Callable[[Model], Any]] = {
    "auto": lambda model: ours(model, "auto"),
    "auto_looped": lambda model: ours(model, "auto", updates=LOOPED),
    "scan_looped": lambda model: looped(scan(model), LOOPED),
    "replay": lambda model: ours(model, "replay"),
    "scan": scan,
    "unrolled": unrolled,
    "stages": stages,
    "torch": TorchSteps,
}
TITLES = {
    "auto": "engine=auto",
    "auto_looped": "engine=auto, 10 updates a call",
    "scan_looped": "10 calls of jit of a scan",
    "replay": "engine=replay",
    "scan": "jit of a scan",
    "unrolled": "jit of the unrolled loop",
    "stages": "jitted stage calls",
    "torch": "torch 1F1B, 2 processes",
}
# The unrolled transformer is left out: it takes XLA the better part of a minute to compile.
REACH: dict[str, list[tuple[str, str, float]]] = {
    "mlp_small": [
        ("auto", "scan", 1.0),
        ("auto_looped", "scan_looped", 0.95),
        ("replay", "scan", 2.3),
        ("replay", "stages", 0.85),
        ("unrolled", "scan", float("inf")),
    ],
    "mlp_large": [
        ("auto", "scan", 0.9),
        ("auto", "torch", 0.8),
        ("replay", "scan", 1.3),
        ("replay", "stages", 0.85),
        ("unrolled", "scan", float("inf")),
    ],
    "transformer": [
        ("auto", "scan", 0.9),
        ("auto", "torch", 0.9),
        ("replay", "scan", 1.05),
    ],
}
PAIRS = {"mlp_small": (31, 5), "mlp_large": (11, 1), "transformer": (7, 1)}  # pairs, times


def rows() -> list[Row]:
    """Steps of three models, first compiles, and a large schedule."""
    found: list[Row] = []
    for name in MODELS:
        found += step_rows(name)
    return [*found, *compile_rows(), *schedule_rows()]


def step_rows(name: str) -> list[Row]:
    """One model's rows, after all contenders have been seen to compute the same."""
    wanted = REACH[name]
    if not available():
        print(MISSING, file=sys.stderr)
        wanted = [one for one in wanted if "torch" not in one]
    pairs, times = PAIRS[name]
    names = dict.fromkeys(itertools.chain.from_iterable(one[:2] for one in wanted))
    with Contest(MODELS[name](), list(names)) as steps:
        return [
            row(
                f"{name}, {TITLES[one]} / {TITLES[other]}",
                reach,
                steps[one],
                steps[other],
                pairs=pairs,
                times=times,
            )
            for one, other, reach in wanted
        ]


def compile_rows() -> list[Row]:
    """What a new function takes to its first results: tracing, compiling and one step."""
    return [_compile_row(micro_batches, pairs) for micro_batches, pairs in ((16, 3), (64, 2))]


def _compile_row(micro_batches: int, pairs: int) -> Row:
    model = transformer(micro_batches=micro_batches)

    def first(contender: str) -> float:
        jax.clear_caches()
        return seconds(CONTENDERS[contender](model))

    times: dict[str, list[float]] = {"auto": [], "scan": []}
    with Configured():
        for number in range(pairs):
            for contender in list(times)[:: 1 if number % 2 else -1]:
                times[contender].append(first(contender))
    mine, theirs = (statistics.median(column) for column in times.values())
    ratio = statistics.median(m / t for m, t in zip(*times.values(), strict=True))
    what = f"transformer, first step compiled, {micro_batches} micro-batches, engine=auto / scan"
    return Row(what, ratio, 1.2, f"{mine:.1f} s / {theirs:.1f} s")


def schedule_rows() -> list[Row]:
    """A schedule of 64 stages and 1 024 micro-batches, in seconds."""
    from ipujax import schedules

    taken = seconds(lambda: schedules.simulate(schedules.grouped(64, 1024)))
    what = "building and simulating 64 stages x 1 024 micro-batches / 1 s"
    return [Row(what, taken, 1.0, f"{taken:.2g} s")]


# --- contenders -----------------------------------------------------------------------------------


def looped(steps: Steps, times: int) -> Steps:
    """Several steps as one."""

    def step(parameters: Any) -> Any:
        steps.parameters = parameters
        losses = [steps() for _ in range(times)]
        return steps.parameters, losses

    return Steps(steps.parameters, step)


def ours(model: Model, engine: str, updates: int = 1) -> Steps:
    """A step of `pipelining_ops.pipeline`; an infeed brings the data and an outfeed the losses."""
    import ipujax as ipu
    from ipujax import pipelining_ops

    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(lambda: itertools.cycle(model.data))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    schedule = SCHEDULES[engine]
    optimizer = optax.sgd(LEARNING_RATE)

    def optimizer_function(loss: Any) -> Any:
        return pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

    def train(variables: Any, state: Any) -> Any:
        return pipelining_ops.pipeline(
            computational_stages=model.stages(),
            gradient_accumulation_count=len(model.data),
            repeat_count=updates,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function,
            device_mapping=list(range(STAGES)),
            pipeline_schedule=pipelining_ops.PipelineSchedule[schedule] if schedule else None,
            variables=variables,
            optimizer_state=state,
        )

    compiled = ipu.compile(train, engine=engine, donate_argnums=DONATED)
    state = optimizer.init(model.parameters)  # SGD's is empty and stays so

    def step(parameters: Any) -> Any:
        parameters, _ = jax.block_until_ready(compiled(parameters, state))
        return parameters, outfeed.dequeue()

    return Steps(model.parameters, step)


class Configured:
    """Four IPUs for the time of a `with`."""

    def __enter__(self) -> None:
        import ipujax as ipu

        ipu.config.reset_ipu_configuration()
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 4
        config.configure_ipu_system()

    def __exit__(self, *_: object) -> None:
        import ipujax as ipu

        ipu.config.reset_ipu_configuration()


class Contest:
    """Contenders by name for the time of a `with`, checked against one another."""

    def __init__(self, model: Model, names: list[str]):
        self._model, self._names, self._configured = model, names, Configured()
        self._steps: dict[str, Any] = {}

    def __enter__(self) -> dict[str, Any]:
        self._configured.__enter__()
        try:
            once = _outcome(self._model, scan(self._model))
            often = _outcome(self._model, CONTENDERS["scan_looped"](self._model))
            for name in self._names:
                self._steps[name] = CONTENDERS[name](self._model)
                expected = often if name.endswith("looped") else once
                _check(name, _outcome(self._model, self._steps[name]), expected)
        except BaseException:
            self.__exit__()
            raise
        return self._steps

    def __exit__(self, *_: object) -> None:
        for step in self._steps.values():
            step.close()
        self._configured.__exit__()


def _outcome(model: Model, step: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The losses of two steps, and by how much these changed the parameters."""
    losses = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(step())]) for _ in range(2)]
    before, after = flat_parameters(model.parameters), flat_parameters(step.parameters)
    return np.stack(losses), {name: after[name] - before[name] for name in before}


def _check(name: str, found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, err_msg=f"losses of {name}")
    for leaf, change in expected[1].items():
        # Changes are small against the parameters, so rounding shows in those near zero.
        np.testing.assert_allclose(
            found[1][leaf],
            change,
            rtol=1e-4,
            atol=5e-3 * np.abs(change).max(),
            err_msg=f"update of {leaf} by {name}",
        )


# --- quick looks ----------------------------------------------------------------------------------

OTHERS: dict[str, Callable[[], list[Row]]] = {"compile": compile_rows, "schedule": schedule_rows}


def main(names: list[str]) -> int:
    """Measures what is named: models, with or without contenders, and other rows."""
    unknown = [name for name in names if name not in {*MODELS, *CONTENDERS, *OTHERS}]
    if unknown or not names:
        known = "; ".join(", ".join(group) for group in (MODELS, CONTENDERS, OTHERS))
        print(f"name models, contenders or other rows, of: {known}; not {unknown}")
        return 2
    contenders = [name for name in names if name in CONTENDERS]
    found: list[Row] = []
    for name in names:
        if name in OTHERS:
            found += OTHERS[name]()
        elif name in MODELS and not contenders:
            found += step_rows(name)
        elif name in MODELS:
            _compare(name, contenders if len(contenders) > 1 else [*contenders, "scan"])
    if found:
        print(table(found))
    return 0


def _compare(name: str, contenders: list[str]) -> None:
    *compared, baseline = contenders
    pairs, times = PAIRS[name]
    with Contest(MODELS[name](), list(dict.fromkeys(contenders))) as steps:
        for one in compared:
            ratio, mine, theirs = paired(steps[one], steps[baseline], pairs=pairs, times=times)
            figures = f"{1e3 * mine:.2f} ms / {1e3 * theirs:.2f} ms"
            print(f"{name}, {one} / {baseline}: {ratio:.2f}  {figures}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
