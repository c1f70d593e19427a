"""ipurun: runs one program as several processes, here or on several machines."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from ipujax.distribution import descendants
from ipujax.distribution.hosts import (
    HostError,
    build_ssh_command,
    format_environment_line,
    probe_hosts,
    select_forwarded_variables,
)
from ipujax.distribution.messages import KEY_VARIABLE, make_program_key
from ipujax.distribution.probe import find_free_port
from ipujax.distribution.supervise import Ending, Instances, Interrupted
from ipujax.ground import SPREADS, Instance
from ipujax.ground import terminal_style as style

_LOOPBACK = "127.0.0.1"
_FLAGS = "TF_POPLAR_FLAGS"
_EXAMPLES = (
    ("--num-instances 2 --num-replicas 4 python train.py", "two processes, two replicas each"),
    ("-H host1,host2 --num-replicas 8 python train.py", "two machines, over ssh"),
)


def main(argv: Sequence[str] | None = None, prog: str = "ipurun") -> int:
    """Starts the instances, and waits for them; returns the exit status of the first that fails."""
    parser = build_launch_parser(prog)
    options = parser.parse_args(argv)
    hosts: list[str] = options.host
    count = options.num_instances or max(len(hosts), 1)
    replicas = options.num_replicas or (count if options.spread == "replicas" else 1)
    _check_launch_options(parser, options, count, replicas)
    descendants.adopt_orphans()
    try:
        meeting = _choose_coordinator(prog, hosts, dict(options.x))
    except HostError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    ipus = options.ipus_per_replica or (count if options.spread == "ipus" else 1)
    shared_fields = (count, replicas, ipus, meeting, options.spread)
    instances = [Instance(index, *shared_fields) for index in range(count)]
    host_of_instance = [hosts[i * len(hosts) // count] if hosts else "" for i in range(count)]
    if options.print_topology:
        print("\n".join(_describe_topology(prog, instances, host_of_instance)), flush=True)
    commands = [
        _build_instance_command(i, host, options)
        for i, host in zip(instances, host_of_instance, strict=True)
    ]
    if options.verbose:
        for command in commands:
            print(f"{prog}: {shlex.join(command)}", file=sys.stderr)
    try:
        with Instances(
            commands,
            _build_standard_inputs(host_of_instance, options),
            _make_output_printer(options),
        ) as running:
            ending = running.wait_for_first_failure()
    except Interrupted as interrupted:
        print(f"{prog}: ended by {interrupted}", file=sys.stderr)
        return 128 + interrupted.number
    if ending is None:
        return 0
    print(_describe_ending(prog, ending, host_of_instance[ending.index]), file=sys.stderr)
    return ending.status


def build_launch_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `ipurun`."""
    parser = style.build_parser(
        prog, "Starts a program in several processes, as PopRun does.", _EXAMPLES
    )
    add_argument = parser.add_argument
    add_argument(
        "--num-instances",
        type=_parse_positive_int,
        metavar="N",
        help="number of processes (default: one per host)",
    )
    add_argument(
        "--num-replicas",
        type=_parse_positive_int,
        metavar="N",
        help="number of replicas in all processes (default: one per process)",
    )
    add_argument(
        "--ipus-per-replica",
        type=_parse_positive_int,
        metavar="N",
        help="number of virtual IPUs in each replica",
    )
    add_argument(
        "--spread",
        choices=SPREADS,
        default="replicas",
        help="divide the replicas among the processes, or the IPUs of each replica",
    )
    add_argument(
        *("-H", "--host"),
        type=_parse_host_names,
        default=[],
        metavar="HOST,...",
        help="machines to start processes on, over ssh; each gets equally many",
    )
    add_argument(
        "-x",
        type=_parse_variable,
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set an environment variable in all processes",
    )
    add_argument("--executable-cache-path", metavar="DIR", help="cache compiled programs in DIR")
    add_argument(
        "--only-output-from-instance",
        type=int,
        metavar="N",
        help="print the output of process N only",
    )
    add_argument(
        "--tag-output",
        action="store_true",
        help="begin each line of output with the number of its process",
    )
    add_argument(
        "--print-topology", action="store_true", help="print which process runs which replicas"
    )
    add_argument(
        "-v", "--verbose", action="store_true", help="print the commands that start the processes"
    )
    add_argument("program", metavar="PROGRAM", help="the program to run")
    add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return parser


def _parse_positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def _parse_host_names(text: str) -> list[str]:
    names = text.split(",")
    if not all(names) or any(name.startswith("-") for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of host names")
    return names


def _parse_variable(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name!r} is not set here: give NAME=VALUE")
    return name, value if is_given else os.environ[name]


def _check_launch_options(
    parser: argparse.ArgumentParser, options: argparse.Namespace, count: int, replicas: int
) -> None:
    visible_instance = options.only_output_from_instance
    if options.spread == "replicas" and replicas % count:
        parser.error(f"{replicas} replicas cannot be dealt to {count} instances evenly")
    if visible_instance is not None and not 0 <= visible_instance < count:
        parser.error(f"there is no instance {visible_instance}: they are 0 to {count - 1}")


def _choose_coordinator(prog: str, hosts: Sequence[str], variables: Mapping[str, str]) -> str:
    """Returns the address at which instances connect: a free port on the first's machine.

    Raises:
      HostError: a machine on which no instance can run.
    """
    if not hosts:
        return f"{_LOOPBACK}:{find_free_port()}"
    findings_of_host = probe_hosts(hosts, {**select_forwarded_variables(), **variables})
    for host, findings in findings_of_host.items():
        if findings.is_hidden and len(findings_of_host) > 1:
            print(
                f"{prog}: {host} calls itself {findings.name}, which leads to its loopback device: "
                "computing on CPUs, it is not reached by others until /etc/hosts there, or DNS, "
                "has it lead to the machine's address",
                file=sys.stderr,
            )
    return f"{hosts[0].rpartition('@')[2]}:{findings_of_host[hosts[0]].port}"


def _build_instance_command(
    instance: Instance, host: str, options: argparse.Namespace
) -> list[str]:
    """Returns the command that starts an instance, without secrets."""
    follower = [
        sys.executable,
        "-m",
        "ipujax.distribution.follow",
        *(f"{name}={value}" for name, value in instance.environment_variables().items()),
        "--",
        options.program,
        *options.arguments,
    ]
    return build_ssh_command(host, follower) if host else follower


def _build_standard_inputs(
    host_of_instance: Sequence[str], options: argparse.Namespace
) -> list[str]:
    """Returns the standard input of each instance, which holds its environment variables."""
    variables: dict[str, str] = {**dict(options.x), KEY_VARIABLE: make_program_key()}
    if options.executable_cache_path:
        other_flags = variables.get(_FLAGS, os.environ.get(_FLAGS, ""))
        flag = f"--executable_cache_path={shlex.quote(options.executable_cache_path)}"
        variables[_FLAGS] = f"{other_flags} {flag}".strip()
    variables_json = json.dumps(variables)
    # A remote shell reads one line, to start Python, and the follower reads the next one.
    remote_variables = {**select_forwarded_variables(), **variables}
    remote_greeting = f"{format_environment_line(remote_variables)}\n{variables_json}"
    return [remote_greeting if host else variables_json for host in host_of_instance]


def _describe_topology(
    prog: str, instances: Sequence[Instance], host_of_instance: Sequence[str]
) -> list[str]:
    count = len(instances)
    lines = [style.format_title(prog, f"{count} instance{'s' * (count > 1)}")]
    for instance, host in zip(instances, host_of_instance, strict=True):
        replicas = instance.describe_local_replicas()
        lines.append(f"  instance {instance.index} on {host or 'this machine'}: {replicas}")
    return lines


def _make_output_printer(options: argparse.Namespace):
    visible_instance = options.only_output_from_instance

    def print_instance_line(index: int, stream: str, line: bytes) -> None:
        if visible_instance is not None and index != visible_instance:
            return
        out = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
        out.write(f"[{index}] ".encode() * options.tag_output + line)
        out.flush()

    return print_instance_line


def _describe_ending(prog: str, ending: Ending, host: str) -> str:
    location = f" on {host}" if host else ""
    lines = [f"{prog}: instance {ending.index}{location} ended with exit status {ending.status}"]
    if ending.last_lines:
        lines[0] += "; its last lines:"
    return "\n".join([*lines, *(f"  {line}" for line in ending.last_lines)])


if __name__ == "__main__":
    raise SystemExit(main())
