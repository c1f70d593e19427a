"""Random programs against plain `jax.jit`, from one number up to another."""

from __future__ import annotations

import json
import sys

import ipujax as ipu
from tests.fuzz.generate import generate
from tests.fuzz.run import check

ONCE = ("callbacks", "replicated-callbacks", "outside")  # what happens in one process alone
numbers = range(*map(int, sys.argv[1:]))

for number in numbers:
    program = generate(18, number, (*ONCE, "reports"))
    failure = check(program, ("replay",))
    assert failure is None, f"{program.title}: {failure}\n{program.script()}"
print(json.dumps({"index": ipu.popdist.getInstanceIndex(), "checked": len(numbers)}), flush=True)
