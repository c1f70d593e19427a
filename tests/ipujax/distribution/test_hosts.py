"""Instances on other machines: what is run by ssh, what goes along, what is told of a failure.

`ssh` is a stand-in that runs the command on this machine, with a bare environment as sshd does, or
in a network namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(__file__).parent / "programs"
RUN = (sys.executable, "-m", "ipujax.distribution.launch")
FIND_HOST = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1; shift
"""


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    """A folder whose `ssh` runs commands here; a machine `lost` cannot be reached."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "ssh"
    script.write_text(
        f"{FIND_HOST}"
        'if [ "$host" = lost ]; then echo "ssh: no route to lost" >&2; exit 255; fi\n'
        f'exec env -i HOME="$HOME" HOST="$host" {shutil.which("sh")} -c "$*"\n'
    )
    script.chmod(0o755)
    return folder


def launched(ssh: Path, arguments: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    path = f"{ssh}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(
        [*RUN, *arguments], cwd=ssh, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.exhaustive
def test_the_environment_goes_along(ssh: Path) -> None:
    script = "import os; print(*(os.environ.get(n) for n in ('HOST', 'JAX_X', 'OTHER', 'GIVEN')))"
    options = ["-H", "a,me@b", "-x", "GIVEN=it's", "--tag-output"]
    done = launched(ssh, [*options, sys.executable, "-c", script], JAX_X="1 2", OTHER="no")
    assert sorted(done.stdout.splitlines()) == ["[0] a 1 2 None it's", "[1] me@b 1 2 None it's"]


@pytest.mark.exhaustive
def test_a_failure_names_the_machine(ssh: Path) -> None:
    script = (
        "import os, sys, time\nif os.environ['HOST'] == 'b': sys.exit('it broke')\ntime.sleep(50)"
    )
    done = launched(ssh, ["-H", "a,b", sys.executable, "-c", script])
    assert done.returncode == 1
    assert "instance 1 on b ended with exit status 1; its last lines:\n  it broke" in done.stderr


def test_a_machine_that_cannot_be_reached(ssh: Path) -> None:
    done = launched(ssh, ["-H", "a,lost", "true"])
    assert done.returncode == 1
    assert done.stderr.strip() == "ipurun: lost cannot take part: ssh: no route to lost"


def test_a_machine_without_ipujax(ssh: Path, tmp_path: Path) -> None:
    (tmp_path / "ipujax").mkdir()
    (tmp_path / "ipujax" / "__init__.py").write_text("raise ImportError('no ipujax here')")
    done = launched(ssh, ["-x", f"PYTHONPATH={tmp_path}", "-H", "a,b", "true"])
    assert done.returncode == 1
    assert "ipurun: a cannot take part: " in done.stderr
    assert "ImportError: no ipujax here" in done.stderr


@pytest.fixture
def networks(tmp_path: Path) -> Iterator[Path]:
    """Two networks with an address each, joined, and an `ssh` that leads there by address."""
    ip = shutil.which("ip")
    if ip is None or os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    names = [f"ipujax{os.getpid()}{letter}" for letter in "ab"]
    made = [subprocess.run([ip, "netns", "add", name], check=False).returncode for name in names]
    folder = tmp_path / "bin"
    folder.mkdir()
    hosts = tmp_path / "hosts"
    try:
        if any(made):
            pytest.skip("no network namespaces here")
        join = [ip, "-n", names[0], "link", "add", "v0", "type", "veth", "peer", "v0", "netns"]
        subprocess.run([*join, names[1]], check=True)
        for number, name in enumerate(names, 1):
            for what in ("addr add 10.77.0.{} dev v0", "link set v0 up", "link set lo up"):
                command = what.format(f"{number}/24").split()
                subprocess.run([ip, "-n", name, *command], check=True)
            Path(f"{hosts}{number}").write_text(f"10.77.0.{number} {os.uname().nodename}\n")
        script = folder / "ssh"
        script.write_text(
            f"{FIND_HOST}number=${{host##*.}}\n"
            f"if [ $number = 1 ]; then name={names[0]}; else name={names[1]}; fi\n"
            f'own="mount --bind {hosts}$number /etc/hosts"\n'
            f'exec {ip} netns exec $name unshare -m sh -c "$own; $*"\n'
        )
        script.chmod(0o755)
        yield folder
    finally:
        for name in names:
            subprocess.run([ip, "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.exhaustive
def test_two_machines_of_which_each_has_its_own_address(networks: Path) -> None:
    program = [sys.executable, str(PROGRAMS / "loop.py")]
    options = ["-H", "10.77.0.1,10.77.0.2", "--num-replicas", "4", "--print-topology"]
    done = launched(networks, [*options, *program])
    assert done.returncode == 0, done.stderr
    first, *_, one, other = done.stdout.splitlines()
    assert first == "ipurun | 2 instances"
    assert one.startswith('{"index":')
    assert other.startswith('{"index":')
