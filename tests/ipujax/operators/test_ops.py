"""`ipu.ops`: every operator's module under one name, and nothing else."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import ipujax as ipu

# The sections of the original's chapter on operators, in its order.
CHAPTER = [
    "custom_ops",
    "functional_ops",
    "image_ops",
    "internal_ops",
    "math_ops",
    "pipelining_ops",
    "nn_ops",
    "normalization_ops",
    "rnn_ops",
    "all_to_all_op",
    "cross_replica_ops",
    "embedding_ops",
    "reduce_scatter_op",
    "rand_ops",
    "replication_ops",
    "slicing_ops",
    "statistics_ops",
    "summary_ops",
]


def test_the_operators_and_nothing_else() -> None:
    assert sorted(ipu.ops.__all__) == sorted(CHAPTER)
    modules = {name for name in vars(ipu.ops) if hasattr(getattr(ipu.ops, name), "__file__")}
    assert modules == set(CHAPTER)


@pytest.mark.parametrize("name", CHAPTER)
def test_one_module_under_two_names(name: str) -> None:
    module = getattr(ipu, name)
    assert getattr(ipu.ops, name) is module
    assert importlib.import_module(f"ipujax.ops.{name}") is module


def test_imports_as_programs_write_them() -> None:
    code = (
        "from ipujax.ops.slicing_ops import sequence_slice\n"
        "from ipujax.ops import normalization_ops\n"
        "import ipujax as ipu\n"
        "print(sequence_slice is ipu.slicing_ops.sequence_slice)\n"
        "print(normalization_ops.group_norm is ipu.ops.normalization_ops.group_norm)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "True"]


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, ipujax; print('jax' in sys.modules, 'ipujax.ops' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
