"""gc-links: lists the links between the IPUs of the virtual machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from ipujax.cli.machine_model import TARGET, add_json_argument, print_modelled
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import format_boxed_table
from ipujax.ground import terminal_style as style
from ipujax.system import Machine, find_machine
from lowering import machine as model

_EXAMPLES = (("", "list the links between IPUs"), ("-j", "print JSON, for other programs"))
_COLUMNS = ("From", "To", "Kind", "GB/s each way", "Status")


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-links") -> int:
    """Prints each pair of IPUs that links, or gateways, join; returns the exit code."""
    arguments = build_parser(prog).parse_args(argv)
    machine = find_machine()
    ipus = machine.devices[-1].ipus
    hops = list(find_links(machine))
    passed = [hop for hop in hops if _leads_both_ways(hop, len(ipus))]
    overall = "passed" if len(passed) == len(hops) else "failed"
    rows = [
        (
            *(str(ipus[hop.source].index), str(ipus[hop.target].index), hop.kind),
            f"{_gigabytes_per_second(hop, len(ipus)):g}",
            "passed" if hop in passed else "failed",
        )
        for hop in hops
    ]
    keys = ("from pcie id", "to pcie id", "kind", "gbytes_per_second_each_way", "status")
    data = {
        "ipu to ipu": [dict(zip(keys, row, strict=True)) for row in rows],
        "num ipus": str(len(ipus)),
        "overall result": overall,
        "training fails": str(len(hops) - len(passed)),
    }
    title = f"Partition: {machine.partition!r}: {len(hops)} links of {len(ipus)} IPUs {overall}"
    table = format_boxed_table(_COLUMNS, [rows] if rows else [])
    return print_modelled("gc-links", title, data, table, as_json=arguments.json)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-links`."""
    parser = style.build_parser(prog, "Shows the links between virtual IPUs.", _EXAMPLES)
    add_json_argument(parser)
    return parser


def find_links(machine: Machine) -> Iterator[model.transfers.Hop]:
    """Yields one hop for each pair of IPUs that data passes without another IPU between."""
    num_ipus = len(machine.ipus)
    for source in range(num_ipus):
        for target in range(source + 1, num_ipus):
            route = model.transfers.find_route(source, target, num_ipus)
            if len(route) == 1:
                yield route[0]


def _leads_both_ways(hop: model.transfers.Hop, num_ipus: int) -> bool:
    """Returns whether the way back is the same link, as the model's routes go."""
    back = model.transfers.find_route(hop.target, hop.source, num_ipus)
    return back == (model.transfers.Hop(hop.target, hop.source, hop.kind),)


def _gigabytes_per_second(hop: model.transfers.Hop, num_ipus: int) -> float:
    per_cycle = model.transfers.link_bytes_per_cycle(TARGET, hop.kind, num_ipus)
    return per_cycle * TARGET.clock_hz / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
