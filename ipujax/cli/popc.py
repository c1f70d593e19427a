"""popc: compiles a file of codelets for the host, checks it, and lists its vertex types."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ipujax import poplar
from ipujax.cli.output_errors import handle_output_errors
from ipujax.ground import terminal_style as style

_EXAMPLES = (
    ("codelets.cpp", "check a file, and list its vertex types and their fields"),
    ("codelets.cpp -DSIZE=4", "with a flag for the compiler"),
)


@handle_output_errors
def main(argv: Sequence[str] | None = None, prog: str = "popc") -> int:
    """Compiles files of codelets and prints their vertex types; returns the exit code."""
    arguments, flags = build_parser(prog).parse_known_args(argv)
    graph = poplar.Graph(poplar.IPUModel().createDevice().getTarget())
    try:
        graph.addCodelets(arguments.files, compileFlags=" ".join(flags))
    except (poplar.poplar_error, NotImplementedError) as error:
        return style.print_error(prog, str(error))
    for line in graph.codelets.descriptions():
        print(line)
    return 0


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `popc`."""
    parser = style.build_parser(prog, "Compiles codelets, and lists their vertex types.", _EXAMPLES)
    parser.add_argument("files", nargs="+", metavar="FILE", help="codelets in C++")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
