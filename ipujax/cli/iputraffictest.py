"""gc-iputraffictest: models how fast IPUs exchange data with each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ipujax.cli.links import find_links
from ipujax.cli.machine_model import (
    TARGET,
    add_json_argument,
    parse_count,
    place_of_single_ipu,
    print_modelled,
)
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style
from ipujax.system import Machine, find_machine
from lowering import machine as model

_KBYTES = 4096  # of an iteration, both ways together, as in the original's printed example
_EXAMPLES = (
    ("--device0 2 --device1 3", "test two IPUs"),
    ("--all-links", "test every link"),
)


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-iputraffictest") -> int:
    """Prints the modelled rate between two IPUs, or over each link; returns the exit code."""
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    machine = find_machine()
    ipus = machine.devices[-1].ipus
    if arguments.all_links:
        pairs = [(hop.source, hop.target) for hop in find_links(machine)]
    elif arguments.device0 is None or arguments.device1 is None:
        parser.error("choose two IPUs with --device0 ID --device1 ID, or --all-links")
    else:
        source = place_of_single_ipu(machine, arguments.device0)
        target = place_of_single_ipu(machine, arguments.device1)
        pairs = [(source, target)]
        if source == target:
            parser.error("--device0 and --device1 are the same IPU")
    results = [_test_pair(machine, *pair, arguments.iterations) for pair in pairs]
    lines = [
        f"  {result['device0']} <-> {result['device1']}: {float(result['gbps']):.1f} Gbit/s both "
        f"ways together, {result['hops']} hops, {float(result['duration_sec']):.6f} s, 0 errors"
        for result in results
    ]
    data = {"tile_to_tile": results if arguments.all_links else results[0]}
    title = f"Partition: {machine.partition!r} has {len(ipus)} virtual IPUs"
    return print_modelled("gc-iputraffictest", title, data, lines, as_json=arguments.json)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-iputraffictest`."""
    parser = style.build_parser(prog, "Models data transfers between IPUs.", _EXAMPLES)
    parser.add_argument("--device0", type=int, metavar="ID", help="first IPU of the exchange")
    parser.add_argument("--device1", type=int, metavar="ID", help="second IPU of the exchange")
    parser.add_argument("--all-links", action="store_true", help="test every link by itself")
    parser.add_argument(
        *("-i", "--iterations"),
        type=parse_count,
        default=1000,
        metavar="N",
        help=f"number of exchanges of {_KBYTES} kB (default: 1000)",
    )
    add_json_argument(parser)
    return parser


def _test_pair(machine: Machine, source: int, target: int, iterations: int) -> dict[str, str]:
    """Returns the model's answer for two places on the ladder, under the original's names."""
    num_ipus, ipus = len(machine.ipus), machine.devices[-1].ipus
    half = _KBYTES * 1024 / 2
    flows = [(source, target, half), (target, source, half)]
    cycles = model.transfers.inter_ipu_cycles(TARGET, flows, num_ipus)
    cycles += model.transfers.external_sync_cycles(TARGET, 2)
    seconds = TARGET.seconds(cycles * iterations)
    kbytes = _KBYTES * iterations
    return {
        "device0": str(ipus[source].index),
        "device1": str(ipus[target].index),
        "hops": str(len(model.transfers.find_route(source, target, num_ipus))),
        "duration_sec": str(seconds),
        "kbytes_transferred": str(kbytes),
        "gbytes_transferred": str(kbytes / 1024**2),
        "gbps": str(kbytes * 1024 * 8 / 1e9 / seconds),
        "errors": "0",
    }


if __name__ == "__main__":
    raise SystemExit(main())
