"""gc-memorytest: lists the memory of the tiles of a device, as the model has it."""

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

_EXAMPLES = (("-d 0", "test the IPU of device 0"), ("-d 30 -j", "test all, and print JSON"))


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "gc-memorytest") -> int:
    """Prints what a test of all memory would do; returns the exit code."""
    arguments = build_parser(prog).parse_args(argv)
    _, device = find_device(arguments.device_id)
    tiles = len(device.ipus) * TARGET.tiles_per_ipu
    seconds = 2 * TARGET.seconds(TARGET.bytes_per_tile / model.COPY_BYTES_PER_CYCLE)
    data = {
        "ipus": len(device.ipus),
        "tiles_tested": tiles,
        "bytes_per_tile": TARGET.bytes_per_tile,
        "bytes_for_instructions": TARGET.code_bytes_per_tile,
        "bytes_reserved": TARGET.reserved_bytes,
        "bytes_tested": tiles * TARGET.bytes_per_tile,
        "failing_tiles": [],
        "duration_seconds": seconds,
    }
    lines = [
        f"  {tiles} tiles of {TARGET.bytes_per_tile} bytes: {data['bytes_tested']} bytes",
        f"  of each tile, instructions are fetched from {TARGET.code_bytes_per_tile} bytes, and "
        f"the loader keeps {TARGET.reserved_bytes}",
        f"  all tiles write and read theirs in {seconds * 1e6:.1f} us",
        "  failing tiles: none",
    ]
    title = f"device {device.id}: {len(device.ipus)} IPUs, 0 tiles fail"
    return print_modelled("gc-memorytest", title, data, lines, as_json=arguments.json)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `gc-memorytest`."""
    parser = style.build_parser(prog, "Models a test of the memory of an IPU's tiles.", _EXAMPLES)
    add_device_argument(parser)
    add_json_argument(parser)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
