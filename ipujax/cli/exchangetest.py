"""gc-exchangetest: models the exchange between the tiles of each IPU of a device."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ipujax.cli.machine_model import (
    TARGET,
    add_device_argument,
    add_json_argument,
    find_device,
    print_modelled,
)
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style
from lowering import machine as model

_SIZES = (64, 1024, 16_384, 262_144)  # bytes that every tile sends, and receives
_EXAMPLES = (("-d 0", "test the IPU of device 0"), ("-d 24 -j", "test four, and print JSON"))


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-exchangetest") -> int:
    """Prints the modelled rate of exchanges of several sizes; returns the exit code."""
    arguments = build_parser(prog).parse_args(argv)
    _, device = find_device(arguments.device_id)
    sizes = [size for size in _SIZES if size <= TARGET.usable_bytes_per_tile // 2]
    exchanges = [_test_exchange(size) for size in sizes]
    data = {
        "ipus": [{"pcie_id": ipu.index, "exchanges": exchanges, "errors": 0} for ipu in device.ipus]
    }
    lines = [
        f"  {exchange['bytes_per_tile']:>7} bytes to and from each of {TARGET.tiles_per_ipu} "
        f"tiles: {exchange['cycles']:>6} cycles, {exchange['tbytes_per_second']:.2f} TB/s"
        for exchange in exchanges
    ]
    title = f"device {device.id}: {len(device.ipus)} IPUs, 0 errors"
    return print_modelled("gc-exchangetest", title, data, lines, as_json=arguments.json)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-exchangetest`."""
    parser = style.build_parser(prog, "Models exchanges between the tiles of an IPU.", _EXAMPLES)
    add_device_argument(parser)
    add_json_argument(parser)
    return parser


def _test_exchange(size: int) -> dict[str, int | float]:
    """Returns the model's answer for an exchange of so many bytes of each tile, with its sync."""
    cycles = TARGET.sync_cycles + model.transfers.exchange_cycles(TARGET, size)
    rate = size * TARGET.tiles_per_ipu / TARGET.seconds(cycles)
    return {"bytes_per_tile": size, "cycles": cycles, "tbytes_per_second": rate / 1e12}


if __name__ == "__main__":
    raise SystemExit(main())
