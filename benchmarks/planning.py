"""Plans on measured costs: how they rank cuts, and how good the chosen one is, by a clock.

A cut is timed by its stages: each runs as one compiled function, forward and backward, alone on a
JAX device, and the schedule says what that makes of an update. Devices that share the cores of a
machine would show how many cores there are, and not how good a cut is.

A clock does not rank cuts that are nearly as fast the same way twice. The stages are therefore
timed in two halves, and the row says how well one half agrees with the other.
"""

from __future__ import annotations

import dataclasses as dc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import Row, print_rows, rows_of_process
from benchmarks.measure import seconds as seconds_of_call

CUTS, STAGES, MICRO_BATCHES = 40, 4, 8
ROUNDS, RUNS = 24, 4  # runs in a row in each round, as micro-batches come one after another
SCHEDULE = "one_f_one_b"


def rows() -> list[Row]:
    """Measured in a process of its own."""
    return rows_of_process("benchmarks.planning", devices=1)


def _measure() -> list[Row]:
    found: list[Row] = []
    for name, function, arguments in (
        ("GPT-like", gpt_loss, gpt_arguments()),
        ("uneven layers", uneven_loss, uneven_arguments()),
    ):
        ranking = rank_cuts(function, arguments)
        note = (
            f"tau {ranking.tau:.3f}, of two halves of the rounds {ranking.repeated_tau:.3f}, "
            f"{ranking.segments} segments"
        )
        what = f"{name}: pairs of {CUTS} cuts that a plan ranks wrongly / all (tau 0.85: 0.075)"
        found.append(Row(what, (1 - ranking.tau) / 2, 0.075, note))
        what = f"{name}: update with the plan's cut / with the best of {CUTS} timed"
        best, chosen = (f"{1e3 * seconds:.3g} ms" for seconds in (ranking.best, ranking.chosen))
        found.append(Row(what, ranking.chosen / ranking.best, 1.03, f"{chosen} / {best}"))
    return found


@dc.dataclass(frozen=True)
class Ranking:
    """How a plan's costs rank random cuts.

    Attributes:
      tau: Kendall's coefficient of the predicted and the timed seconds of the cuts.
      repeated_tau: the same of two timings of the cuts, of every other round each.
      best: seconds of an update with the best cut that was timed.
      chosen: the same with the plan's cut.
      segments: those of the model.
    """

    tau: float
    repeated_tau: float
    best: float
    chosen: float
    segments: int


def rank_cuts(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Ranking:
    """Times random cuts of a loss function, and compares with what its measured costs say."""
    from scipy.stats import kendalltau

    from ipujax import planning
    from ipujax.pipelines.plan_function import segment_call

    model = segment_call(function, arguments, MICRO_BATCHES)
    costs = model.compute_costs(are_measured=True)
    plan = planning.search(
        costs, ipus=STAGES, micro_batches=MICRO_BATCHES, schedules=(SCHEDULE,), recompute=(False,)
    )
    random, cuts = np.random.default_rng(0), [plan.cut_points]
    while len(cuts) < CUTS + 1:
        starts = random.choice(np.arange(1, len(costs)), STAGES - 1, replace=False)
        cut = tuple(sorted(starts.tolist()))
        cuts += [cut] * (cut not in cuts)
    halves = _time_stages(model, _list_stages(cuts, len(costs)))
    timed = {stage: _seconds_of_stage(np.min([h[stage] for h in halves], 0)) for stage in halves[0]}
    backward = np.add(costs.backward, costs.weight or 0.0)
    predicted = {
        (first, end): (sum(costs.forward[first:end]), float(backward[first:end].sum()))
        for first, end in timed
    }
    seconds_of_halves = (
        {stage: _seconds_of_stage(seconds) for stage, seconds in half.items()} for half in halves
    )
    by_clock, by_plan, *by_halves = (
        [_seconds_of_cut(seconds, cut, len(costs)) for cut in cuts]
        for seconds in (timed, predicted, *seconds_of_halves)
    )
    tau: Any = kendalltau(by_plan[1:], by_clock[1:])[0]
    repeated: Any = kendalltau(*(seconds[1:] for seconds in by_halves))[0]
    return Ranking(float(tau), float(repeated), min(by_clock), by_clock[0], len(costs))


Stage = tuple[int, int]


def _list_stages(cuts: Sequence[Sequence[int]], segments: int) -> list[Stage]:
    pairs = (itertools.pairwise((0, *cut, segments)) for cut in cuts)
    return list(dict.fromkeys(itertools.chain.from_iterable(pairs)))


def _seconds_of_cut(
    seconds: dict[Stage, tuple[float, float]], cut: Sequence[int], segments: int
) -> float:
    """Returns what an update takes if stages take these seconds, forward and backward."""
    from ipujax import schedules

    stages = [seconds[stage] for stage in itertools.pairwise((0, *cut, segments))]
    schedule = schedules.build(
        schedules.one_f_one_b, stages=len(stages), micro_batches=MICRO_BATCHES, training=True
    )
    tasks = {
        schedules.Phase.FORWARD: [forward for forward, _ in stages],
        schedules.Phase.BACKWARD: [backward for _, backward in stages],
    }
    return schedules.simulate(schedule, tasks).makespan


def _time_stages(model: Any, stages: Sequence[Stage]) -> list[dict[Stage, list[float]]]:
    """Returns the seconds of whole stages, forward and with all gradients, in each half of rounds.

    Each stage is timed in every round, in an order of its own, and its fastest run counts. Before a
    round's runs in a row comes one that does not count. Stages that compute the same, such as those
    of equal layers, are timed as one.
    """
    pieces = {stage: model.take_stage(*stage) for stage in stages}
    key_of = {stage: piece.key for stage, piece in pieces.items()}
    calls: dict[Any, tuple[Callable[[], Any], ...]] = {}
    for stage, piece in pieces.items():
        if key_of[stage] not in calls:
            forward, _, with_gradients = piece.list_functions()
            calls[key_of[stage]] = _compiled(*forward), _compiled(*with_gradients)
    halves: list[dict[Any, list[float]]] = [
        {key: [float("inf")] * 2 for key in calls} for _ in range(2)
    ]
    timed, random = [*itertools.product(calls, range(2))], np.random.default_rng(1)
    for turn in range(ROUNDS):
        best = halves[turn % 2]
        for number in random.permutation(len(timed)):
            key, which = timed[number]
            call = calls[key][which]
            call()
            best[key][which] = min(best[key][which], *(seconds_of_call(call) for _ in range(RUNS)))
    return [{stage: half[key] for stage, key in key_of.items()} for half in halves]


def _seconds_of_stage(best: Sequence[float]) -> tuple[float, float]:
    """Returns the seconds forward and backward of a stage's two functions."""
    forward, with_gradients = best
    return forward, max(with_gradients - forward, 0.0)


def _compiled(function: Callable[..., Any], avals: Sequence[Any]) -> Callable[[], Any]:
    values = [jnp.ones(aval.shape, aval.dtype) for aval in avals]
    compiled = jax.jit(function).lower(*values).compile()
    return lambda: jax.block_until_ready(compiled(*values))


# --- models ---------------------------------------------------------------------------------------

_WIDTH, _TOKENS, _BATCH, _LAYERS, _WORDS = 256, 64, 1, 2, 1024
_WIDTHS = (512, 1024, 256, 768, 128, 1536, 384, 384, 1024, 512, 64, 1280, 640, 256, 896, 1152)


def _shape(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def gpt_arguments() -> tuple[Any, ...]:
    """Parameters of a small GPT, and a batch."""
    layer = {
        "qkv": _shape(_WIDTH, 3 * _WIDTH), "o": _shape(_WIDTH, _WIDTH),
        "up": _shape(_WIDTH, 4 * _WIDTH), "down": _shape(4 * _WIDTH, _WIDTH),
    }  # fmt: skip
    parameters = {
        "words": _shape(_WORDS, _WIDTH), "head": _shape(_WIDTH, _WORDS), "layers": [layer] * _LAYERS
    }  # fmt: skip
    tokens = _shape(MICRO_BATCHES * _BATCH, _TOKENS, dtype=jnp.int32)
    return parameters, (tokens, tokens)


def gpt_loss(parameters: Any, batch: Any) -> Any:
    """Cross entropy of the next token."""
    tokens, targets = batch
    x = parameters["words"][tokens]
    for layer in parameters["layers"]:
        x = x + _attention(_normalized(x), layer)
        x = x + jax.nn.gelu(_normalized(x) @ layer["up"]) @ layer["down"]
    scores = jax.nn.log_softmax(_normalized(x) @ parameters["head"])
    return -jnp.mean(jnp.take_along_axis(scores, targets[..., None], -1))


def _normalized(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _attention(x: Any, layer: Any) -> Any:
    q, k, v = jnp.split(x @ layer["qkv"], 3, -1)
    scores = q @ k.swapaxes(1, 2) / _WIDTH**0.5
    scores = jnp.where(jnp.tri(_TOKENS, dtype=bool), scores, -1e9)
    return jax.nn.softmax(scores) @ v @ layer["o"]


def uneven_arguments() -> tuple[Any, ...]:
    """Layers of widths that differ, and a batch."""
    pairs = itertools.pairwise((256, *_WIDTHS))
    return [_shape(*pair) for pair in pairs], _shape(MICRO_BATCHES * 32, 256)


def uneven_loss(parameters: Any, x: Any) -> Any:
    """Layers with a tanh each."""
    for w in parameters:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


if __name__ == "__main__":
    print_rows(_measure())
