"""poprun: `ipurun` under the name, and with the flags, of PopRun.

The flags are those of the "PopRun and PopDist user guide", PopRun features. What acts becomes an
argument of `ipurun`; for every other one that is given, a line on stderr says why it has no effect.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence

from ipujax.distribution import launch
from ipujax.ground import terminal_style as style

_NO_SERVER = "there is no V-IPU server: IPUs are virtual, and each run has a partition of its own"
_NO_MPI = "processes are not started by MPI"
_WITHOUT_EFFECT = {
    "--num-ilds": "a rack of 64 IPUs, or an instance, is an IPU-Link domain of the machine model",
    "--vipu-server-host": _NO_SERVER,
    "--vipu-server-port": _NO_SERVER,
    "--vipu-server-timeout": _NO_SERVER,
    "--vipu-partition-attempts": _NO_SERVER,
    "--vipu-cluster": _NO_SERVER,
    "--vipu-allocation": _NO_SERVER,
    "--update-partition": _NO_SERVER,
    "--reset-partition": _NO_SERVER,
    "--remove-partition": _NO_SERVER,
    "--numa-aware": "the operating system places processes; use numactl in front of the program",
    "--process-placement": "the operating system places processes",
    "--export-config": "files of flags are not written",
    "--overwrite-config": "files of flags are not written",
    "--version-format": "--version prints a line of text",
    "--host-subnet": "instances meet at the address of the first host",
    "--sync-type": "syncs are those of the machine model",
    "--offline-mode": "virtual IPUs are always there; a program that sets "
    "IPUConfig.device_connection.type to PRE_COMPILE or NEVER attaches to none",
}
"""By flag that takes a value: why it has no effect."""

_PASSED_ON = (
    "--num-replicas",
    "--ipus-per-replica",
    "--num-instances",
    "--executable-cache-path",
    "--only-output-from-instance",
)
_YES = ("1", "yes", "true", "on")
_NO = ("0", "no", "false", "off")
_LARGEST_PARTITION = 256
_EXAMPLES = (
    ("--num-instances 2 --num-replicas 4 python train.py", "two processes, two replicas each"),
    ("--vipu-partition p64 --num-replicas 64 python train.py", "64 replicas in one process"),
)


def main(argv: Sequence[str] | None = None, prog: str = "poprun") -> int:
    """Starts the instances as `ipurun` does; returns the exit status of the first that fails."""
    parser = build_poprun_parser(prog)
    options = parser.parse_args(_join_mpi_arguments(sys.argv[1:] if argv is None else argv))
    for text in (options.mpi_global_args, options.mpi_local_args):
        try:
            shlex.split(text)
        except ValueError as error:
            parser.error(f"MPI's arguments {text!r} cannot be split into words: {error}")
    if options.import_config is not None:
        parser.error("--import-config: files of flags are not read; give them as arguments")
    for flag, reason in _list_flags_without_effect(options):
        print(f"{prog}: {flag} has no effect: {reason}", file=sys.stderr)
    return launch.main(_translate(parser, options), prog)


def build_poprun_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of PopRun's flags."""
    parser = style.build_parser(prog, "Starts a program as PopRun does, with ipurun.", _EXAMPLES)
    parser.allow_abbrev = False
    add_argument = parser.add_argument
    add_argument(*("-H", "--host"), metavar="HOST,...", help="machines, also as host[0-2,4]")
    add_argument("--hostfile", metavar="FILE", help="a file with a machine in each line")
    for flag in _PASSED_ON:
        add_argument(flag, metavar="VALUE", help="as of ipurun")
    add_argument(
        "--vipu-partition", metavar="NAME", help="a partition that just holds all replicas"
    )
    add_argument(
        "--mpi-global-args", default="", metavar="ARGS", help="of these, --tag-output acts"
    )
    add_argument("--mpi-local-args", default="", metavar="ARGS", help="of these, -x acts")
    add_argument("--print-topology", type=_parse_switch, default=False, metavar="yes|no")
    add_argument(*("-v", "--verbose"), action="store_true", help="as of ipurun")
    add_argument(*("-vv", "--very-verbose"), action="store_true", dest="verbose")
    for flag in _WITHOUT_EFFECT:
        add_argument(flag, metavar="VALUE", help="no effect; a line says why")
    add_argument("--import-config", metavar="FILE", help="not read: an error")
    add_argument("program", metavar="PROGRAM", help="the program to run")
    add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return parser


def _join_mpi_arguments(argv: Sequence[str]) -> list[str]:
    """Returns the arguments with MPI's own, which begin with a dash, joined to their flag."""
    words = list(argv)
    for flag in ("--mpi-global-args", "--mpi-local-args"):
        if flag in words[:-1]:
            place = words.index(flag)
            words[place : place + 2] = [f"{flag}={words[place + 1]}"]
    return words


def _parse_switch(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return text.lower() in _YES


def _list_flags_without_effect(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for flag, reason in _WITHOUT_EFFECT.items():
        if _value_of(options, flag) is not None:
            yield flag, reason
    global_arguments, _ = _split_mpi_arguments(options.mpi_global_args)
    local_arguments, _ = _split_mpi_arguments(options.mpi_local_args)
    others = [*(word for word in global_arguments if word != "--tag-output"), *local_arguments]
    if others:
        yield shlex.join(others), _NO_MPI
    for name in _list_variables(options):
        if not _is_known_variable(name):
            yield f"-x {name}", "it is not set here"


def _translate(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Returns the arguments of `ipurun`."""
    words: list[str] = []
    hosts = _list_hosts(parser, options)
    if hosts:
        words += ["--host", ",".join(hosts)]
    for flag in _PASSED_ON:
        value = _value_of(options, flag)
        if value is not None:
            words += [flag, value]
    variables = [*filter(_is_known_variable, _list_variables(options))]
    if options.vipu_partition:
        variables += _describe_partition(parser, options)
    words += [word for variable in variables for word in ("-x", variable)]
    words += ["--tag-output"] * ("--tag-output" in _split_mpi_arguments(options.mpi_global_args)[0])
    words += ["--print-topology"] * options.print_topology + ["--verbose"] * options.verbose
    return [*words, options.program, *options.arguments]


def _list_hosts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    if options.host and options.hostfile:
        parser.error("give --host or --hostfile, not both")
    if options.hostfile:
        try:
            lines = pathlib.Path(options.hostfile).read_text("utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            parser.error(f"--hostfile {options.hostfile} cannot be read: {error}")
        return lines
    if options.host is None:
        return []
    # Commas inside of brackets separate numbers, not hosts.
    names = re.split(r",(?![^\[]*\])", options.host)
    hosts = [host for name in names for host in _expand_brackets(name)]
    if not hosts:
        parser.error(f"--host {options.host} names no host")
    return hosts


def _expand_brackets(name: str) -> list[str]:
    """Returns the hosts of a name such as `host[0-2,4]`; others are names as they are."""
    match = re.fullmatch(r"([^\[]*)\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\](.*)", name)
    if match is None:
        return [name]
    hosts: list[str] = []
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        hosts += [f"{match[1]}{number:0{len(first)}}{match[3]}" for number in numbers]
    return hosts


def _split_mpi_arguments(text: str) -> tuple[list[str], list[str]]:
    """Returns the words of MPI's arguments, and the variables that follow each `-x` of them."""
    words, variables = list[str](), list[str]()
    given = iter(shlex.split(text))
    for word in given:
        if word == "-x":
            variables.append(next(given, ""))
        else:
            words.append(word)
    return words, variables


def _list_variables(options: argparse.Namespace) -> list[str]:
    """Returns what follows each `-x` of MPI's arguments: NAME or NAME=VALUE."""
    texts = (options.mpi_global_args, options.mpi_local_args)
    return [variable for text in texts for variable in _split_mpi_arguments(text)[1]]


def _is_known_variable(variable: str) -> bool:
    return "=" in variable or variable in os.environ


def _describe_partition(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Returns the variables by which programs see a partition that just holds all replicas."""
    name = f"IPUOF_VIPU_API_PARTITION_ID={options.vipu_partition}"
    try:
        ipus = int(options.num_replicas or 1) * int(options.ipus_per_replica or 1)
    except ValueError:
        return [name]  # `ipurun` says what is wrong
    size = 1 << (ipus - 1).bit_length()
    if size > _LARGEST_PARTITION:
        parser.error(
            f"--vipu-partition {options.vipu_partition}: {ipus} IPUs are more than the "
            f"{_LARGEST_PARTITION} of the largest pod; leave the flag away, then each instance has "
            "a system of its own"
        )
    return [name, f"IPUJAX_PARTITION_SIZE={size}"]


def _value_of(options: argparse.Namespace, flag: str) -> str | None:
    return getattr(options, flag.removeprefix("--").replace("-", "_"))


if __name__ == "__main__":
    raise SystemExit(main())
