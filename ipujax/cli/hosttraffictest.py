"""gc-hosttraffictest: models how fast the host and the IPUs of a device exchange data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ipujax.cli.machine_model import (
    TARGET,
    add_device_argument,
    add_json_argument,
    find_device,
    parse_count,
    print_modelled,
)
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style
from lowering import machine as model

_TILES, _BYTES_PER_TILE = 32, 4096  # of one exchange of an IPU
_WAYS = {"host_from_tile": "host <- tile", "host_to_tile": "host -> tile"}
_EXAMPLES = (("-d 0 -j", "test the IPU of device 0, and print JSON"),)


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-hosttraffictest") -> int:
    """Prints the modelled rate of each direction; returns the exit code."""
    arguments = build_parser(prog).parse_args(argv)
    _, device = find_device(arguments.device_id)
    bytes_per_ipu = _TILES * _BYTES_PER_TILE
    cycles = model.transfers.HostLink(target=TARGET).host_transfer_cycles([bytes_per_ipu])
    seconds = TARGET.seconds(cycles * arguments.iterations)
    moved = bytes_per_ipu * arguments.iterations * len(device.ipus)
    rate = moved * 8 / 1e9 / seconds
    results = {
        name: {
            "description": description,
            "duration_seconds": str(seconds),
            "tile_data_transferred_bytes": str(moved),
            "tile_transfer_speed_gbps": str(rate),
        }
        for name, description in _WAYS.items()
    }
    configuration = {
        "number_of_ipus": str(len(device.ipus)),
        "tiles_per_ipu": str(_TILES),
        "bytes_per_tile": str(_BYTES_PER_TILE),
        "iterations": str(arguments.iterations),
    }
    lines = [f"  {words}: {rate:.1f} Gbit/s, {seconds:.6f} s" for words in _WAYS.values()]
    title = f"device {device.id}: {len(device.ipus)} IPUs, each with a connection of its own"
    data = {"configuration": configuration, "repeat_0": results}
    return print_modelled("gc-hosttraffictest", title, data, lines, as_json=arguments.json)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-hosttraffictest`."""
    parser = style.build_parser(prog, "Models transfers between the host and IPUs.", _EXAMPLES)
    add_device_argument(parser)
    parser.add_argument(
        *("-i", "--iterations"),
        type=parse_count,
        default=100_000,
        metavar="N",
        help="number of exchanges (default: 100000)",
    )
    add_json_argument(parser)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
