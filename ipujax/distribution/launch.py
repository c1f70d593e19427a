"""ipurun: one program as several processes, here or on several machines."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from ipujax.cli import style
from ipujax.distribution import descendants
from ipujax.distribution.hosts import HostError, forwarded, greeting_of, on_host, probed
from ipujax.distribution.instance import SPREADS, Instance
from ipujax.distribution.messages import KEY_VARIABLE, make_key
from ipujax.distribution.probe import free_port
from ipujax.distribution.supervise import Ending, Instances, Interrupted

_LOOPBACK = "127.0.0.1"
_FLAGS = "TF_POPLAR_FLAGS"
_EXAMPLES = (
    ("--num-instances 2 --num-replicas 4 python train.py", "two processes of two replicas"),
    ("-H host1,host2 --num-replicas 8 python train.py", "two machines, by ssh"),
)


def main(argv: Sequence[str] | None = None, prog: str = "ipurun") -> int:
    """Starts the instances, and waits for them; returns the exit status of the first that fails."""
    parser = _parser(prog)
    options = parser.parse_args(argv)
    hosts: list[str] = options.host
    count = options.num_instances or max(len(hosts), 1)
    replicas = options.num_replicas or (count if options.spread == "replicas" else 1)
    _check(parser, options, count, replicas)
    descendants.adopt()
    try:
        meeting = _coordinator(prog, hosts, dict(options.x))
    except HostError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    ipus = options.ipus_per_replica or (count if options.spread == "ipus" else 1)
    told = (count, replicas, ipus, meeting, options.spread)
    instances = [Instance(index, *told) for index in range(count)]
    places = [hosts[i * len(hosts) // count] if hosts else "" for i in range(count)]
    if options.print_topology:
        print("\n".join(_topology(prog, instances, places)), flush=True)
    commands = [_command(i, p, options) for i, p in zip(instances, places, strict=True)]
    if options.verbose:
        for command in commands:
            print(f"{prog}: {shlex.join(command)}", file=sys.stderr)
    try:
        with Instances(commands, _greetings(places, options), _shower(options)) as running:
            ending = running.wait()
    except Interrupted as interrupted:
        print(f"{prog}: ended by {interrupted}", file=sys.stderr)
        return 128 + interrupted.number
    if ending is None:
        return 0
    print(_told(prog, ending, places[ending.index]), file=sys.stderr)
    return ending.status


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = style.parser(prog, "Runs a program as several processes (PopRun).", _EXAMPLES)
    add = parser.add_argument
    add("--num-instances", type=_positive, metavar="N", help="processes; as many as hosts, or 1")
    add("--num-replicas", type=_positive, metavar="N", help="of all processes; one for each")
    add("--ipus-per-replica", type=_positive, metavar="N", help="virtual IPUs; one for each share")
    add("--spread", choices=SPREADS, default="replicas", help="what is dealt to the processes")
    add(
        *("-H", "--host"),
        type=_names,
        default=[],
        metavar="HOST,...",
        help="machines, by ssh; each takes as many processes",
    )
    add(
        "-x",
        type=_variable,
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable of the environment that all processes get",
    )
    add("--executable-cache-path", metavar="DIR", help="where compiled programs are kept")
    add("--only-output-from-instance", type=int, metavar="N", help="shows the output of one alone")
    add("--tag-output", action="store_true", help="begins each line with its process")
    add("--print-topology", action="store_true", help="shows what runs where")
    add("-v", "--verbose", action="store_true", help="shows the commands")
    add("program", metavar="PROGRAM", help="what is run")
    add("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 up")
    return int(text)


def _names(text: str) -> list[str]:
    names = text.split(",")
    if not all(names) or any(name.startswith("-") for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} are no names of machines")
    return names


def _variable(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name!r} is not set here: give NAME=VALUE")
    return name, value if is_given else os.environ[name]


def _check(
    parser: argparse.ArgumentParser, options: argparse.Namespace, count: int, replicas: int
) -> None:
    shown = options.only_output_from_instance
    if options.spread == "replicas" and replicas % count:
        parser.error(f"{replicas} replicas cannot be dealt to {count} instances evenly")
    if shown is not None and not 0 <= shown < count:
        parser.error(f"there is no instance {shown}: they are 0 to {count - 1}")


def _coordinator(prog: str, hosts: Sequence[str], variables: Mapping[str, str]) -> str:
    """Where the instances meet: a port that is free now, on the machine of the first.

    Raises:
      HostError: a machine on which no instance can run.
    """
    if not hosts:
        return f"{_LOOPBACK}:{free_port()}"
    found = probed(hosts, {**forwarded(), **variables})
    for host, findings in found.items():
        if findings.is_hidden and len(found) > 1:
            print(
                f"{prog}: {host} calls itself {findings.name}, which leads to its loopback device: "
                "computing on CPUs, it is not reached by others until /etc/hosts there, or DNS, "
                "has it lead to the machine's address",
                file=sys.stderr,
            )
    return f"{hosts[0].rpartition('@')[2]}:{found[hosts[0]].port}"


def _command(instance: Instance, host: str, options: argparse.Namespace) -> list[str]:
    """What starts an instance; it holds nothing that others may not read."""
    follower = [
        sys.executable,
        "-m",
        "ipujax.distribution.follow",
        *(f"{name}={value}" for name, value in instance.environment().items()),
        "--",
        options.program,
        *options.arguments,
    ]
    return on_host(host, follower) if host else follower


def _greetings(places: Sequence[str], options: argparse.Namespace) -> list[str]:
    """What each instance is told by its standard input: the variables of its environment."""
    variables: dict[str, str] = {**dict(options.x), KEY_VARIABLE: make_key()}
    if options.executable_cache_path:
        others = variables.get(_FLAGS, os.environ.get(_FLAGS, ""))
        flag = f"--executable_cache_path={shlex.quote(options.executable_cache_path)}"
        variables[_FLAGS] = f"{others} {flag}".strip()
    whole = json.dumps(variables)
    # A shell elsewhere takes a line, for Python to start with, and the follower the next one.
    elsewhere = f"{greeting_of({**forwarded(), **variables})}\n{whole}"
    return [elsewhere if place else whole for place in places]


def _topology(prog: str, instances: Sequence[Instance], places: Sequence[str]) -> list[str]:
    count = len(instances)
    lines = [style.title(prog, f"{count} instance{'s' * (count > 1)}")]
    for instance, place in zip(instances, places, strict=True):
        what = instance.describe()
        lines.append(f"  instance {instance.index} on {place or 'this machine'}: {what}")
    return lines


def _shower(options: argparse.Namespace):
    only = options.only_output_from_instance

    def show(index: int, stream: str, line: bytes) -> None:
        if only is not None and index != only:
            return
        out = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
        out.write(f"[{index}] ".encode() * options.tag_output + line)
        out.flush()

    return show


def _told(prog: str, ending: Ending, host: str) -> str:
    place = f" on {host}" if host else ""
    lines = [f"{prog}: instance {ending.index}{place} ended with exit status {ending.status}"]
    if ending.last_lines:
        lines[0] += "; its last lines:"
    return "\n".join([*lines, *(f"  {line}" for line in ending.last_lines)])


if __name__ == "__main__":
    raise SystemExit(main())
