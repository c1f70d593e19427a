"""What mypy and pyright say of a user's script: they report mistakes, and nothing else."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# A line that ends with `# mistake` has one, and no other line has any.
SCRIPT = """
import jax
import jax.numpy as jnp
import numpy as np

import ipujax as ipu
from ipujax import pipelining_ops

config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.auto_select_ipu = 2  # mistake
config.auto_select_ipus = "two"  # mistake
config.ipu_model.versoin = "ipu2"  # mistake
config.configure_ipu_system()
config.configure_system()  # mistake


@ipu.compile
def step(params: jax.Array, x: jax.Array) -> jax.Array:
    return params * x


@ipu.compile(engine="fused", static_argnums=(1,))
def power(x: jax.Array, n: int) -> jax.Array:
    return x**n


class Model:
    @ipu.compile
    def double(self, x: jax.Array) -> jax.Array:
        return x + x


three = jnp.ones(3)
params: jax.Array = step(three, three)
total = float(step(three, x=three).sum())
doubled: jax.Array = Model().double(three)
wrong: str = step(three, three)  # mistake
step(three)  # mistake
step(three, y=three)  # mistake
power(three, "two")  # mistake
step(three, three).shap  # mistake
step.lowr(three, three)  # mistake
ipu.compile(step, engin="fused")  # mistake

lowered = step.lower(jax.ShapeDtypeStruct((3,), np.float32), three)
lowered.as_txt()  # mistake
report = lowered.report()
report.cycle  # mistake
executable = lowered.compile()
executable.sav("step")  # mistake

infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(lambda: iter([np.ones(3, np.float32)]))
ipu.ipu_infeed_queue.IPUInfeedQueue(lambda: iter([1]), prefetch=2)  # mistake
ipu.loops.repeat(3, lambda x: x, [three])
ipu.loops.repeet(3, lambda x: x, [three])  # mistake
ipu.scopes.pipeline_stage("0")  # mistake
pipelining_ops.PipelineSchedule.Groupt  # mistake
pipelining_ops.pipeline([], gradient_accumulation_cnt=3)  # mistake
grad_fn = pipelining_ops.value_and_grad(lambda w: w.sum(), micro_batches=4, schedule="1F1B")
pipelining_ops.value_and_grad(lambda w: w.sum(), micro_batch=4)  # mistake
"""
MISTAKES = {
    number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# mistake")
}


@pytest.mark.parametrize(
    "checker",
    ["pyright", pytest.param("mypy", marks=pytest.mark.exhaustive)],  # a minute of a core
)
def test_type_checkers_report_the_mistakes_of_a_user_and_nothing_else(
    checker: str, tmp_path: Path
) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed; it is in the extra `lint`")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    reported = CHECKERS[checker](script)
    assert reported == MISTAKES


def _run_mypy(script: Path) -> set[int]:
    """Returns the lines that mypy reports."""
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(script.parent / "cache")]
    return _run(command, script, r"script\.py:(\d+): error")


def _run_pyright(script: Path) -> set[int]:
    """Returns the lines that pyright reports with its usual settings."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    return _run(command, script, r"script\.py:(\d+):\d+ - error")


def _run(command: list[str], script: Path, pattern: str) -> set[int]:
    done = subprocess.run(
        [*command, script], check=False, capture_output=True, text=True, cwd=script.parent
    )
    return {int(number) for number in re.findall(pattern, done.stdout)}


CHECKERS: dict[str, Callable[[Path], set[int]]] = {"mypy": _run_mypy, "pyright": _run_pyright}
