"""popc: compiles a file of codelets for the host, checks it, and lists its vertex types."""

from __future__ import annotations

import argparse
import shlex
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
    flags += [f"-I{folder}" for folder in arguments.include]
    flags += [f"-D{definition}" for definition in arguments.define]
    if arguments.output is not None:
        text = " ".join(arguments.files)
        return style.print_error(
            prog, f"no file is written: leave out -o, and give graph.addCodelets the text, {text}"
        )
    graph = poplar.Graph(poplar.IPUModel().createDevice().getTarget())
    try:
        graph.addCodelets(arguments.files, compileFlags=shlex.join(flags))
    except (poplar.poplar_error, NotImplementedError) as error:
        return style.print_error(prog, str(error))
    if not graph.codelets.names():
        return style.print_error(prog, "no class there derives from Vertex and has a compute")
    for line in graph.codelets.descriptions():
        print(line)
    return 0


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Builds the parser of the arguments of `popc`."""
    parser = style.build_parser(prog, "Compiles codelets, and lists their vertex types.", _EXAMPLES)
    parser.add_argument("files", nargs="+", metavar="FILE", help="codelets in C++")
    parser.add_argument(
        "-I",
        dest="include",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder with headers",
    )
    parser.add_argument(
        "-D",
        dest="define",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a name for the preprocessor",
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="refused: no file is written")
    parser.add_argument(
        "--target",
        metavar="CHIPS",
        help="accepted, and changes nothing: codelets are compiled for this host",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
