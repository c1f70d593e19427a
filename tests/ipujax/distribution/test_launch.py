"""ipurun: starting processes, telling them what they are, and ending them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from ipujax.errors import DistributionError
from ipujax.ground import Instance
from ipujax.ground.process_instance import read_launched_instance

RUN = (sys.executable, "-m", "ipujax.distribution.launch")
INDEX = "int(os.environ['POPDIST_INSTANCE_INDEX'])"


def launched(options: Sequence[str], script: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", f"import os, sys, time\nindex = {INDEX}\n{script}"]
    return subprocess.run(
        [*RUN, *options, *program], capture_output=True, text=True, timeout=60, check=False
    )


def test_each_instance_is_told_what_it_is() -> None:
    names = "INSTANCE_INDEX", "NUM_INSTANCES", "NUM_TOTAL_REPLICAS", "NUM_IPUS_PER_REPLICA"
    script = f"print(*(os.environ['POPDIST_' + name] for name in {names}))"
    options = ["--num-instances", "2", "--num-replicas", "4", "--ipus-per-replica", "2"]
    done = launched([*options, "--tag-output"], script)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2 4 2", "[1] 1 2 4 2"]


def test_the_first_that_fails_ends_all_and_is_named() -> None:
    script = (
        "if index == 1:\n print('it broke', file=sys.stderr)\n sys.exit(3)\n"
        "time.sleep(50)\nprint('not reached')"
    )
    started = time.monotonic()
    done = launched(["--num-instances", "3"], script)
    assert time.monotonic() - started < 30
    assert done.returncode == 3
    assert "instance 1 ended with exit status 3; its last lines:\n  it broke" in done.stderr
    assert "not reached" not in done.stdout


def test_a_signal_is_told_as_shells_tell_it() -> None:
    done = launched(["--num-instances", "2"], "os.kill(os.getpid(), 11) if index else None")
    assert done.returncode == 128 + 11


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(number: signal.Signals, tmp_path: Path) -> None:
    script = (
        f"import os, time\nopen(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w').close()\n"
        "time.sleep(50)"
    )
    command = [*RUN, "--num-instances", "2", sys.executable, "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    instances = _started(tmp_path, 2)
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    _gone(instances)


def test_a_launcher_that_is_killed_leaves_nobody(tmp_path: Path) -> None:
    script = f"open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w').close()\ntime.sleep(50)"
    command = [*RUN, "--num-instances", "2", sys.executable, "-c", f"import os, time\n{script}"]
    with subprocess.Popen(command) as process:
        instances = _started(tmp_path, 2)
        process.kill()
    _gone(instances)


@pytest.mark.parametrize("moment", range(20))
@pytest.mark.sampled(4)
def test_a_launcher_that_is_killed_while_it_starts_leaves_nobody(moment: int) -> None:
    mark = f"{9000 + moment}.{os.getpid()}"  # seconds: nobody else sleeps so long
    with subprocess.Popen([*RUN, "--num-instances", "4", "sleep", mark]) as process:
        time.sleep(0.02 * moment)
        process.kill()
    until = time.monotonic() + 10
    while [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ())]:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_hides_in_a_session_of_its_own_is_ended(tmp_path: Path) -> None:
    script = f"""
import subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w').close()
        time.sleep(50)
    os._exit(0)
while not os.listdir({str(tmp_path)!r}):
    time.sleep(0.01)
"""
    assert launched(["--num-instances", "1"], script).returncode == 0
    _gone(_started(tmp_path, 1))


def test_one_whose_follower_is_killed_is_ended(tmp_path: Path) -> None:
    script = (
        f"open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w').close()\n"
        "os.kill(os.getppid(), 9) if index else None\ntime.sleep(50)"
    )
    done = launched(["--num-instances", "2"], script)
    assert done.returncode == 128 + 9
    assert "instance 1 ended with exit status 137" in done.stderr
    _gone(_started(tmp_path, 2))


def test_ctrl_c_is_a_keyboard_interrupt_in_the_program(tmp_path: Path) -> None:
    script = f"""
try:
    open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w').close()
    time.sleep(50)
except KeyboardInterrupt:
    print('interrupted', index)
"""
    program = [sys.executable, "-c", f"import os, time\nindex = {INDEX}\n{script}"]
    with subprocess.Popen([*RUN, "--num-instances", "2", *program], stdout=subprocess.PIPE) as run:
        _started(tmp_path, 2)
        run.send_signal(signal.SIGINT)
        told, _ = run.communicate(timeout=30)
    assert sorted(told.splitlines()) == [b"interrupted 0", b"interrupted 1"]


def test_ipujax_run_is_ipurun() -> None:
    command = [sys.executable, "-m", "ipujax", "run", "--num-instances", "2", "-x", "COLOUR=red"]
    program = [sys.executable, "-c", "import os; print(os.environ['COLOUR'])"]
    done = subprocess.run([*command, *program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "red\nred\n"


def test_the_output_of_one_alone() -> None:
    options = ["--num-instances", "2", "--only-output-from-instance", "1", "--print-topology"]
    lines = launched(options, "print(index)").stdout.splitlines()
    assert lines[1].endswith("instance 0 on this machine: replica 0 of 1 IPU")
    assert lines[3:] == ["1"]


def test_a_program_that_is_not_there() -> None:
    command = [*RUN, "--num-instances", "2", "no-such-program"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127
    assert "no-such-program: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-instances", "2", "--num-replicas", "3"], "3 replicas cannot be dealt to 2"),
        (["--num-instances", "0"], "'0' is not an integer of at least 1"),
        (["--only-output-from-instance", "2"], "there is no instance 2: they are 0 to 0"),
        (["-H", "one,,two"], "'one,,two' is not a list of host names"),
        (["-x", "NOT_SET_HERE"], "'NOT_SET_HERE' is not set here"),
    ],
)
def test_what_cannot_be_dealt_is_refused(options: list[str], message: str) -> None:
    done = launched(options, "pass")
    assert done.returncode == 2
    assert message in done.stderr


def test_what_is_told_comes_back() -> None:
    instance = Instance(1, 2, 4, 2, "127.0.0.1:1234")
    assert read_launched_instance(instance.environment_variables()) == instance
    assert instance.local_replicas == 2
    assert read_launched_instance({}) is None
    with pytest.raises(DistributionError, match="POPDIST_NUM_INSTANCES is 'two'"):
        read_launched_instance({**instance.environment_variables(), "POPDIST_NUM_INSTANCES": "two"})


def _started(folder: Path, count: int) -> list[int]:
    until = time.monotonic() + 30
    while len(found := os.listdir(folder)) < count:
        assert time.monotonic() < until
        time.sleep(0.05)
    return [int(name) for name in found]


def _gone(instances: Sequence[int]) -> None:
    until = time.monotonic() + 10
    while any(_is_running(process) for process in instances):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
