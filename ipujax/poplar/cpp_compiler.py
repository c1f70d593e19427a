"""The host's C++ compiler: codelets as shared libraries, cached by their contents."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path

import jax

from ipujax.driver import native_code
from ipujax.ground import ForeignFolderError, files
from ipujax.poplar.cpp_source import Token
from ipujax.poplar.exceptions import graph_program_compilation_error
from ipujax.poplar.user_lines import user_line

INCLUDE = Path(__file__).parent / "include"
# No exceptions, as on the chip; short vectors are read through pointers to their elements. Programs
# whose codelets are in the file of their host code tell the two apart by __POPC__.
FLAGS = (
    "-std=c++17 -O2 -ftree-vectorize -fPIC -fno-strict-aliasing -fno-exceptions -ffp-contract=off "
    "-w -fdiagnostics-color=never -fvisibility=hidden -D__POPC__=1"
).split()
_ALIGNMENT_CHECKS = ("-fsanitize=alignment", "-fno-sanitize-recover=alignment")
_WIDE_ACCESS = re.compile(r"(?:float|half|u?char|u?short|u?int)[248]|reinterpret_cast|vector_size")
SHOWN_LINES = 40
_ERROR = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: .*$", re.M)
_OTHER_OUTPUT = re.compile(r"-o|--output|-[ES]$|-M")
_ASSEMBLY = {"asm", "__asm__", "__asm"}
_TARGET = re.compile(r'\btarget\s*\(\s*"(?:supervisor|worker)"\s*\)')
_BUILTIN = "__builtin_ipu_"


def preprocess(text: str, name: str, folder: Path, flags: Sequence[str]) -> str:
    """Returns a codelet's text after the preprocessor, with the glue's header below it.

    Args:
      text: the text.
      name: the text's name in the compiler's messages.
      folder: the folder of the user's headers.
      flags: the user's flags.
    """
    source = f'# 1 "{name}"\n{text}\n#include <ipujax/run_vertices.hpp>\n'
    includes = ["-iquote", str(folder), "-isystem", str(INCLUDE)]
    includes += ["-isystem", jax.ffi.include_dir()]
    preprocessed = _run_compiler(["-E", *includes, *FLAGS, *flags, "-x", "c++", "-"], source, name)
    return _TARGET.sub("unused", preprocessed)


def compile_library(
    preprocessed: str, glue: str, name: str, flags: Sequence[str], *, checks_alignment: bool
) -> Path:
    """Returns the shared library of a codelet; compiled if the cache does not have it.

    Args:
      preprocessed: the text that `preprocess` returns.
      glue: the code that is appended for the vertex types; see `write_glue`.
      name: the text's name in the compiler's messages.
      flags: the user's flags.
      checks_alignment: whether unaligned accesses are errors at run time.

    Raises:
      graph_program_compilation_error: there is no compiler, or it refuses the text.
    """
    source = f'{preprocessed}\n# 1 "glue"\n{glue}\n'
    flags = [*flags, *(_ALIGNMENT_CHECKS if checks_alignment else ())]
    key = "\n".join([_compiler_version(), *FLAGS, *flags, source])
    with _open_code_folder() as folder:
        path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}{native_code.SUFFIX}"
        if not path.exists():
            with files.replace_file_by_name(path) as new:
                # The text is preprocessed, with markers of the user's lines. The handler of the
                # alignment checks is in the glue, so that no library must be linked.
                object_file = f"{new}.o"
                command = ["-c", *FLAGS, *flags, "-x", "c++-cpp-output", "-", "-o", object_file]
                try:
                    _run_compiler(command, source, name)
                    _run_compiler(["-shared", object_file, "-o", new], "", name)
                finally:
                    Path(object_file).unlink(missing_ok=True)
        return path


def check_host_can_compile(tokens: Sequence[Token]) -> None:
    """Checks a text for assembly, and for intrinsics without a scalar form.

    Raises:
      graph_program_compilation_error: with the user's line.
    """
    for token in tokens:
        if token.text in _ASSEMBLY:
            raise graph_program_compilation_error(
                "inline assembly does not run on the host",
                where=token.source_line,
                fix="write it in C++, or keep it for the chip with #ifdef __IPU__",
            )
        if token.text.startswith(_BUILTIN) and token.text not in _scalar_builtins():
            raise graph_program_compilation_error(
                f"the intrinsic {token.text} has no scalar form here",
                where=token.source_line,
                fix=f"write it in C++; there are: {', '.join(sorted(_scalar_builtins()))}",
            )


def has_wide_accesses(tokens: Sequence[Token]) -> bool:
    """Returns whether a text may read or write several elements at once."""
    return any(_WIDE_ACCESS.fullmatch(token.text) for token in tokens)


@functools.cache
def _scalar_builtins() -> frozenset[str]:
    """Returns the intrinsics that the header defines in scalar form, for the host."""
    text = (INCLUDE / "ipudef.h").read_text()
    return frozenset(re.findall(rf"^#define ({_BUILTIN}\w+) ", text, re.M))


def split_words(text: str, description: str) -> list[str]:
    """Returns the words of a command line, split as a shell splits them.

    Args:
      text: the command line.
      description: its name in error messages.

    Raises:
      graph_program_compilation_error: a quotation without an end, or a flag by which the compiler
        writes something else than codelets.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise graph_program_compilation_error(
            f"{description}, {text!r}, cannot be read: {error}", where=user_line()
        ) from error
    for word in words:
        if _OTHER_OUTPUT.match(word):
            raise graph_program_compilation_error(
                f"{description} have {word}, and codelets go into no file of the user's",
                where=user_line(),
                fix="leave it out, and give addCodelets the text in C++",
            )
    return words


def _compiler_command() -> list[str]:
    command = split_words(os.environ.get("CXX", ""), "the words of the variable CXX") or ["c++"]
    if shutil.which(command[0]) is None:
        raise graph_program_compilation_error(
            f"there is no C++ compiler: {command[0]!r} is not found",
            where=user_line(),
            fix="install one, such as g++, or name one in the variable CXX",
        )
    return command


def _compiler_version() -> str:
    command = _compiler_command()
    return _version_of(*command)


@functools.cache
def _version_of(*command: str) -> str:
    return subprocess.run([*command, "--version"], capture_output=True, text=True).stdout


def _run_compiler(arguments: Sequence[str], source: str, name: str) -> str:
    command = [*_compiler_command(), *arguments]
    process = subprocess.run(command, input=source, capture_output=True, text=True)
    if process.returncode == 0:
        return process.stdout
    error_lines = [f"{error['file']}:{error['line']}" for error in _ERROR.finditer(process.stderr)]
    user_lines = [line for line in error_lines if not line.startswith((str(INCLUDE), "glue:"))]
    message = "\n".join(process.stderr.splitlines()[:SHOWN_LINES])
    message = message or f"{command[0]} ended with code {process.returncode} and no message"
    raise graph_program_compilation_error(
        f"the compiler refuses codelet '{name}':\n{message}",
        where=user_lines[0] if user_lines else user_line(),
        fix="mend what it says",
    )


@contextlib.contextmanager
def _open_code_folder() -> Generator[Path]:
    """Yields the folder of compiled codelets."""
    try:
        with native_code.open_code_folder() as folder:
            yield folder
    except (ForeignFolderError, OSError) as error:
        raise graph_program_compilation_error(
            f"compiled codelets cannot be kept: {error}",
            where=user_line(),
            fix="name a folder in TF_POPLAR_FLAGS=--executable_cache_path=FOLDER",
        ) from error
