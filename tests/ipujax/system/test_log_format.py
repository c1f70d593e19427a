"""All lines that a process logs have one format, whoever sets up logging and when."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.harness import ROOT

START = """
import logging, tempfile
import jax.numpy as jnp
from absl import logging as absl_logging
import ipujax as ipu

def attach(ipus):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    ipu.compile(lambda x: x + 1)(jnp.ones(2))
"""
ABSL = re.compile(r"I\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \w+\.py:\d+\] \S")


def lines_of(program: str) -> list[str]:
    """What a program with the start above writes on standard error."""
    run = subprocess.run(
        [sys.executable, "-c", START + program], cwd=ROOT, text=True, capture_output=True
    )
    assert run.returncode == 0, run.stderr
    return run.stderr.splitlines()


@pytest.mark.parametrize(
    "somebody_logs",
    [
        "with tempfile.TemporaryDirectory() as d: ipu.checkpoint.save(d, 1, {'a': jnp.ones(2)})",
        "absl_logging.info('hidden, but absl adds its handler')",
    ],
)
def test_lines_look_alike_before_and_after_others_log(somebody_logs: str) -> None:
    if "checkpoint" in somebody_logs:
        pytest.importorskip("orbax.checkpoint")
    lines = lines_of(f"attach(1)\n{somebody_logs}\nattach(2)")
    assert len(lines) >= 2
    assert [line for line in lines if not ABSL.match(line)] == []


def test_estimators_log_in_the_format_of_the_devices() -> None:
    lines = lines_of("""
import optax
from ipujax.ipu_estimator import IPUEstimator, IPUEstimatorSpec

absl_logging.set_verbosity("info")

def model_fn(variables, features, labels, mode):
    loss = jnp.mean((features * variables["w"] - labels) ** 2)
    return IPUEstimatorSpec(mode, loss=loss, train_op=optax.sgd(0.1))

config = ipu.ipu_run_config.RunConfig(model_dir=tempfile.mkdtemp())
estimator = IPUEstimator(model_fn, config=config, init_fn=lambda key, x: {"w": jnp.ones(())})
estimator.train(lambda: iter([(jnp.ones(2), jnp.ones(2))] * 3), steps=2)
""")
    assert any(" loss = 0.0, step = 1" in line for line in lines)
    assert [line for line in lines if not ABSL.match(line)] == []


def test_a_format_or_a_level_of_the_users_stays() -> None:
    set_up = "logging.basicConfig({})\nattach(1)"
    assert lines_of(set_up.format("format='mine %(message)s'"))[0].startswith("mine Device")
    assert lines_of(set_up.format("level=logging.INFO"))[0].startswith("INFO:ipujax:Device")
