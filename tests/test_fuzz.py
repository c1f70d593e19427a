"""The fuzzer: a fixed set of its programs, and that it sees what is broken on purpose."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import ipujax as ipu
from ipujax.driver.call_arguments import Static
from lowering import compiler
from tests.fuzz.__main__ import main
from tests.fuzz.generate import generate
from tests.fuzz.run import check
from tests.fuzz.settings import CONTEXTS
from tests.fuzz.source import Program
from tests.fuzz.values import FEATURES
from tests.harness import ROOT

PER_BLOCK = 25
# An arithmetic program without effects, which the plants below break.
PLAIN = [word for each in sorted({*FEATURES} - {"shards"}) for word in ("--without", each)]


def fuzz(*arguments: str) -> int:
    return main([*arguments, "--shrink", "0"])


def test_few_programs_from_the_command_line() -> None:
    command = "-m tests.fuzz --seed 12 --count 4 --size 3"
    ended = subprocess.run(
        [sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.splitlines() == ["2 programs", "2 programs"]  # on one device, and on four


@pytest.mark.sampled(0, 4)
@pytest.mark.parametrize("block", range(24))
def test_many_programs(block: int) -> None:
    for index in range(PER_BLOCK * block, PER_BLOCK * (block + 1)):
        program = generate(12, index)
        failure = check(program)
        assert failure is None, f"{program.title}: {failure}\n{program.script()}"
    jax.clear_caches()


def test_programs_depend_on_seed_and_number_alone() -> None:
    assert generate(3, 5).script() == generate(3, 5).script()
    assert len({generate(seed, index).script() for seed in (3, 4) for index in (5, 6)}) == 4


def test_a_result_that_is_off_by_a_bit_is_reported(monkeypatch, capsys):
    compile_well = ipu.compile

    def compile_badly(fn: Any, **options: Any) -> Any:
        def run(*args: Any) -> Any:
            results = compile_well(fn, **options)(*args)
            leaves, structure = jax.tree.flatten(results)
            for number, leaf in enumerate(leaves):
                if leaf.dtype == jnp.int32:
                    leaves[number] = leaf ^ 1
                    break
            return jax.tree.unflatten(structure, leaves)

        return run

    monkeypatch.setattr(ipu, "compile", compile_badly)
    assert fuzz("--count", "20", "--size", "4", *PLAIN) == 1
    said = capsys.readouterr().out
    found = re.search(r"^FAILED: program (\d+) of seed 0, engine fused: difference$", said, re.M)
    assert found
    number = int(found.group(1))
    assert f"again: python -m tests.fuzz --seed 0 --program {number} --size 4 --devices 1" in said
    assert "def program(" in said
    assert f"{number + 1} programs" in said.splitlines()  # it stops at the first failure


@pytest.mark.exhaustive
def test_a_broken_pass_is_found_and_the_program_made_smaller(monkeypatch, capsys):
    """`a + b` becomes `a - b`."""
    drop_dead = compiler.drop_dead

    def broken(closed: Any) -> Any:
        closed = drop_dead(closed)
        eqns = [
            eqn.replace(primitive=lax.sub_p) if eqn.primitive is lax.add_p else eqn
            for eqn in closed.jaxpr.eqns
        ]
        return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))

    monkeypatch.setattr(compiler, "drop_dead", broken)
    assert main(["--count", "20", "--size", "4", "--shrink", "5", *PLAIN]) == 1
    said = capsys.readouterr().out
    assert " + " in said.partition("def program(")[2]


def test_a_crash_is_reported(monkeypatch, capsys):
    def compile_nothing(fn: Any, **options: Any) -> Any:
        raise ValueError("no compiler today")

    monkeypatch.setattr(ipu, "compile", compile_nothing)
    assert fuzz("--count", "3", "--size", "4", *PLAIN) == 1
    said = capsys.readouterr().out
    assert "FAILED: program 0 of seed 0, engine fused: ValueError" in said
    assert "no compiler today" in said


def test_what_stands_around_a_program_varies() -> None:
    programs = [generate(5, index, size=3) for index in range(60)]
    names = {name for program in programs for name, _ in program.contexts}
    assert names == set(CONTEXTS)
    assert {program.copies for program in programs} == {1, 2}
    assert any(program.cached for program in programs)
    statics = [program for program in programs if program.statics]
    assert any(len({*program.statics}) > 2 for program in statics)
    assert any("replication_index" in program.text() for program in programs)


def test_a_static_argument_of_another_type_is_told_apart(monkeypatch) -> None:
    """A key of equal values alone is found."""
    monkeypatch.setattr(Static, "hash_key", lambda self, *call: self.split_arguments(*call)[0])
    programs = (generate(5, index, size=3) for index in range(60))
    found = [check(program, ("replay",)) for program in programs if _mixes_ones(program)]
    assert any(failure is not None and "knob" in failure.message for failure in found)


def _mixes_ones(program: Program) -> bool:
    """Whether a program is called with equal static arguments of several types."""
    return len({*program.statics} & {"1", "1.0", "True", "np.int8(1)"}) > 1
