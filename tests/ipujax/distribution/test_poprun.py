"""poprun: PopRun's flags, which act or say why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipujax.distribution import launch, poprun

POPRUN = (sys.executable, "-m", "ipujax.distribution.poprun")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of `ipurun` that calls of poprun lead to."""
    calls: list[list[str]] = []

    def record(argv: list[str], prog: str) -> int:
        assert prog == "poprun"
        launch.build_launch_parser(prog).parse_args(argv)
        calls.append(argv)
        return 0

    monkeypatch.setattr(launch, "main", record)
    return calls


def test_a_command_line_of_graphcore_starts_processes() -> None:
    """As graphcore/examples has them for a pod, but with two replicas on this machine."""
    flags = [
        *("-vv", "--num-instances=2", "--num-replicas=2", "--ipus-per-replica=4"),
        *("--numa-aware=yes", "--num-ilds=1", "--update-partition=yes", "--vipu-partition=p8"),
        *("--vipu-server-host=localhost", "--vipu-server-timeout=3600", "--print-topology=yes"),
        "--mpi-global-args=--tag-output --allow-run-as-root --mca oob_tcp_if_include 10.5.0.0/16",
        "--mpi-local-args=-x NOT_SET_HERE -x COLOUR=red",
    ]
    script = (
        "import os; print(*(os.environ[name] for name in ('COLOUR', 'IPUJAX_PARTITION_SIZE', "
        "'IPUOF_VIPU_API_PARTITION_ID', 'POPDIST_NUM_TOTAL_REPLICAS')))"
    )
    done = subprocess.run(
        [*POPRUN, *flags, sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "  instance 0 on this machine: replica 0 of 4 IPUs",
        "  instance 1 on this machine: replica 1 of 4 IPUs",
        "[0] red 8 p8 2",
        "[1] red 8 p8 2",
        "poprun | 2 instances",
    ]
    told = [line.split(" has no effect: ") for line in done.stderr.splitlines()]
    reasons = {line[0].removeprefix("poprun: "): line[1] for line in told if len(line) == 2}
    assert reasons.keys() == {
        *("--numa-aware", "--num-ilds", "--update-partition", "--vipu-server-host"),
        *("--vipu-server-timeout", "-x NOT_SET_HERE"),
        "--allow-run-as-root --mca oob_tcp_if_include 10.5.0.0/16",
    }
    assert all(reasons.values())


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        (["--host=host[0-2,4],other"], ["--host", "host0,host1,host2,host4,other"]),
        (["-H", "node[08-10]x"], ["--host", "node08x,node09x,node10x"]),
        (["--executable-cache-path", "a b"], ["--executable-cache-path", "a b"]),
        (["--only-output-from-instance=1"], ["--only-output-from-instance", "1"]),
        (["--mpi-global-args", "--tag-output"], ["--tag-output"]),
        (["--print-topology", "0"], []),
        (["--print-topology=on", "-v"], ["--print-topology", "--verbose"]),
        (
            ["--num-replicas=12", "--ipus-per-replica=4", "--vipu-partition=p"],
            [
                *("--num-replicas", "12", "--ipus-per-replica", "4"),
                *("-x", "IPUOF_VIPU_API_PARTITION_ID=p", "-x", "IPUJAX_PARTITION_SIZE=64"),
            ],
        ),
    ],
)
def test_flags_become_those_of_ipurun(
    flags: list[str], arguments: list[str], launched: list[list[str]]
) -> None:
    assert poprun.main([*flags, "program", "--num-replicas", "8", "-x"]) == 0
    assert launched == [[*arguments, "program", "--num-replicas", "8", "-x"]]


def test_hosts_of_a_file(tmp_path: Path, launched: list[list[str]]) -> None:
    (tmp_path / "hosts").write_text("one\ntwo\n")
    assert poprun.main(["--hostfile", str(tmp_path / "hosts"), "program"]) == 0
    assert launched == [["--host", "one,two", "program"]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--import-config", "f"], "files of flags are not read"),
        (["--print-topology", "maybe"], "neither yes nor no"),
        (["--hostfile", "/nowhere/hosts"], "cannot be read"),
        (["--hostfile", "f", "--host", "a"], "not both"),
        (["--host", "a[3-2]"], "names no host"),
        (["--num-replicas=512", "--vipu-partition=p"], "512 IPUs are more than the 256"),
        (["--nothing"], "unrecognized arguments: --nothing"),
        (["--num-replicas=x", "--vipu-partition=p"], "not an integer of at least 1"),
    ],
)
def test_wrong_flags(
    flags: list[str], message: str, launched: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        poprun.main([*flags, "program"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not launched


def test_every_flag_of_popruns_guide_is_known() -> None:
    """Those of the "PopRun and PopDist user guide", PopRun features."""
    guide = """
    host num-replicas ipus-per-replica num-instances num-ilds vipu-server-host vipu-server-port
    vipu-server-timeout vipu-partition vipu-partition-attempts update-partition reset-partition
    remove-partition vipu-cluster vipu-allocation executable-cache-path mpi-global-args
    mpi-local-args numa-aware print-topology only-output-from-instance offline-mode verbose
    import-config export-config overwrite-config version version-format help
    """
    known = poprun.build_poprun_parser("poprun").format_help()
    assert all(f"--{flag}" in known for flag in guide.split())


def test_arguments_of_mpi_that_are_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        poprun.main(["--mpi-local-args=-x 'NAME", "train.py"])
    assert "MPI's arguments \"-x 'NAME\" cannot be split into words" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["a[-2]", "a[1-2-3]", "a[1,]"])
def test_brackets_that_number_nothing_are_names(host: str, launched: list[list[str]]) -> None:
    assert poprun.main(["--host", host, "train.py"]) == 0
    assert launched[0][:2] == ["--host", host]
