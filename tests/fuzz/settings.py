"""What stands around a program: JAX's contexts, a static argument, IPUs to spare, a cache."""

from __future__ import annotations

import dataclasses as dc
import random

from tests.fuzz.source import Program

CONTEXTS = {
    "enable_x64": ("True",),
    "threefry_partitionable": ("True", "False"),
    "default_matmul_precision": ("'bfloat16'", "'float32'", "'highest'"),
    "numpy_dtype_promotion": ("'strict'",),
    "numpy_rank_promotion": ("'raise'",),
    "default_prng_impl": ("'rbg'", "'threefry2x32'"),
}
"""Functions of JAX that change what is traced, and their arguments."""

# Equal ones of other types, which are other programs.
STATICS = ("1", "1.0", "True", "np.float32(1)", "np.int8(1)", "2", "0", "0.0", "-0.0", "False")
CALLS = 4  # of a program with a static argument


def surround(program: Program, chance: random.Random, features: frozenset[str]) -> Program:
    """The program as some caller may have it.

    Args:
      program: the program.
      chance: to choose by.
      features: of `FEATURES`, those that may be used.
    """
    changes: dict[str, object] = {}
    if "contexts" in features and chance.random() < 0.4:
        names = chance.sample(sorted(CONTEXTS), chance.choice([1, 1, 2]))
        changes["contexts"] = tuple((name, chance.choice(CONTEXTS[name])) for name in names)
    results = program.results
    if "static" in features and not program.reference and chance.random() < 0.3:
        changes["statics"] = tuple(chance.choice(STATICS) for _ in range(CALLS))
        results += (("knob", "jnp.asarray(knob)"), ("knobs", "jnp.arange(int(knob) + 2) * knob"))
    if program.replicated and not program.reference and "replicas" in features:
        changes["copies"] = chance.choice([1, 1, 2])
        if chance.random() < 0.5:
            results += (("replica", "ipu.replication_ops.replication_index() * 7"),)
    if "cache" in features and chance.random() < 0.06:
        changes["cached"] = True
    return dc.replace(program, results=results, **changes)  # pyright: ignore[reportArgumentType]
