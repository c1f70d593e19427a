"""The rules of CONTRIBUTING.md that a machine can check, one test per rule."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import GOLDEN, ROOT, TESTS

SOURCE_FOLDERS = ("ipujax", "lowering")
ALL_FOLDERS = (*SOURCE_FOLDERS, "tests", "benchmarks", "validation", "notebooks")

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60  # without the docstring; aim at 40
# Modules and objects whose writing leaves no half of a file.
WHOLE_FILES = ("files", "_files", "folder", "archive")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


@dataclass(frozen=True)
class Rule:
    """Names that the files of a folder never mention: imported, or as `module.name` in code."""

    folder: str
    never: tuple[str, ...]
    reason: str
    but: tuple[str, ...] = ()


FILES_AND_ENVIRONMENT = ("os", "io", "pathlib", "shutil", "subprocess", "tempfile", "open")

RULES = (
    Rule("lowering", ("ipujax",), "the compiler knows nothing of what is built on it"),
    Rule(
        "lowering",
        ("jax.jit", "jax.device_put", "jax.devices", "jax.local_devices"),
        "the compiler is pure; running is the engines' work",
    ),
    Rule("lowering", FILES_AND_ENVIRONMENT, "no files or environment; settings are in Options"),
    Rule(
        "lowering/ir",
        ("lowering.passes",),
        "the program's form does not depend on who makes or reads it",
    ),
    Rule(
        "lowering/schedules",
        ("jax", "numpy"),
        "a schedule is plain data, readable without the compiler",
    ),
    Rule(
        "ipujax/report/advice",
        tuple(f"ipujax.report.{name}" for name in ("presentation", "report", "make", "pva")),
        "what would help does not depend on how it is shown",
    ),
    Rule(
        "ipujax/frontends",
        ("lowering", "ipujax.keras", "ipujax.popart", "ipujax.poptorch"),
        "a front end stands on what ipujax has, and knows no program that is built on it",
    ),
    Rule(
        "ipujax/doors/graphs",
        (
            "torch",
            "onnx",
            "keras",
            "ipujax.frontends",
            "ipujax.keras",
            "ipujax.popart",
            "ipujax.poptorch",
        ),
        "the runtime of graphs serves several libraries, and knows none",
    ),
    Rule(
        "ipujax/training",
        (
            "ipujax.doors",
            "ipujax.frontends",
            "ipujax.keras",
            "ipujax.popart",
            "ipujax.poptorch",
            "keras",
            "torch",
            "onnx",
        ),
        "training is what all front ends need",
    ),
    *(
        Rule(folder, ("lowering.machine",), "compiling does not depend on the machine model")
        for folder in ("lowering/ir", "lowering/passes", "lowering/pipelines", "lowering/schedules")
    ),
    *(
        Rule(
            f"lowering/machine/{folder}",
            ("jax", "lowering.jaxprs.jaxpr", "lowering.ir"),
            "costs are arithmetic on shapes",
        )
        for folder in ("primitives", "planner", "trace")
    ),
    *(
        Rule(
            folder,
            ("jax.extend", "jax._src"),
            "only lowering/jaxprs/jaxpr.py touches JAX's changing parts",
            but=("lowering/jaxprs/jaxpr.py",),
        )
        for folder in ALL_FOLDERS
    ),
)


def python_files(*folders: str) -> list[str]:
    """The paths, relative to the root, of every Python file in the folders."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def parse(file: str) -> ast.Module:
    """The file's tree; what only newer Pythons than the oldest supported one read is an error."""
    return _parsed(file, (ROOT / file).read_text(encoding="utf-8"))


@functools.cache
def _parsed(file: str, source: str) -> ast.Module:
    try:
        return ast.parse(source, file, feature_version=(3, 11))
    except SyntaxError as error:
        pytest.fail(f"{file}:{error.lineno}: not Python 3.11: {error.msg}", pytrace=False)


def imported_module(node: ast.ImportFrom, file: str) -> str:
    """The full name of the module in `from module import ...`, relative ones resolved."""
    if not node.level:
        return node.module or ""
    package = Path(file).parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def dotted_name(node: ast.expr) -> str | None:
    """`a.b.c` for such an expression, `None` for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def mentioned_names(file: str) -> Iterator[tuple[int, str]]:
    """(line, name) of everything a file imports, and of what it calls or reads by dotted name.

    A name that is bound by an import is given in full: `jnp.sum` as `jax.numpy.sum`.
    """
    tree = parse(file)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = imported_module(node, file)
            yield node.lineno, module
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{module}.{alias.name}"
                yield node.lineno, f"{module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted_name(node)):
            first, _, rest = name.partition(".")
            if first in bound:
                yield node.lineno, f"{bound[first]}.{rest}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id not in bound:
                yield node.lineno, node.func.id


def violations(file: str) -> list[str]:
    """One line for each name in a file that a rule forbids there."""
    lines: set[str] = set()
    names = list(mentioned_names(file))
    for rule in RULES:
        if not file.startswith(f"{rule.folder}/") or file in rule.but:
            continue
        for line, name in names:
            if any(name == never or name.startswith(f"{never}.") for never in rule.never):
                lines.add(f"{file}:{line}: `{name}`: {rule.reason}")
    return sorted(lines)


def check(rule: Callable[[str], Iterable[str]], *folders: str) -> None:
    """Fails with every line that a rule has to say of the folders' files."""
    files = python_files(*folders)
    assert files
    found = [line for file in files for line in rule(file)]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_imports_follow_the_layers() -> None:
    check(violations, *ALL_FOLDERS)


def deep_imports(file: str) -> Iterator[str]:
    """Where a file imports something of `lowering` that its `__init__.pyi` does not list."""
    stub = parse("lowering/__init__.pyi").body
    listed = {
        alias.name for node in stub if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    for node in ast.walk(parse(file)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = imported_module(node, file)
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("lowering.") and name.removeprefix("lowering.") not in listed:
                line = getattr(node, "lineno", 0)
                yield f"{file}:{line}: `{name}` is not listed in lowering/__init__.pyi"


def test_ipujax_uses_what_the_compiler_exports() -> None:
    check(deep_imports, "ipujax")


def long_modules(file: str) -> Iterator[str]:
    """A file that is too long."""
    lines = len((ROOT / file).read_text(encoding="utf-8").splitlines())
    if lines > MAX_MODULE_LINES:
        yield f"{file}:{MAX_MODULE_LINES + 1}: the file has {lines} lines: split it by idea"


def test_modules_are_short() -> None:
    check(long_modules, *SOURCE_FOLDERS, "benchmarks", "validation")


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function from its `def` to its end, its docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def long_functions(file: str) -> Iterator[str]:
    """The functions of a file that are too long."""
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = code_lines(node)
            if lines > MAX_FUNCTION_LINES:
                yield f"{file}:{node.lineno}: `{node.name}` has {lines} lines of code"


def test_functions_are_short() -> None:
    check(long_functions, *SOURCE_FOLDERS, "benchmarks", "validation")


def unfinished_lines(file: str) -> Iterator[str]:
    """The lines of a file that say that work is left."""
    for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{file}:{number}: {line.strip()}"


def test_nothing_is_left_unfinished() -> None:
    check(unfinished_lines, *ALL_FOLDERS)


def asserts(file: str) -> Iterator[str]:
    """The asserts of a file."""
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.Assert):
            yield f"{file}:{node.lineno}: raise an error that says what, where and how to fix it"


def test_no_assert_guards_the_source() -> None:
    check(asserts, *SOURCE_FOLDERS)


def writes(file: str) -> Iterator[int]:
    """Lines on which a file is opened for writing, or written in one go."""
    for node in ast.walk(parse(file)):
        if not isinstance(node, ast.Call):
            continue
        name = (dotted_name(node.func) or "").split(".")
        function = node.func.attr if isinstance(node.func, ast.Attribute) else name[-1]
        modes = [value.value for value in ast.walk(node) if isinstance(value, ast.Constant)]
        opened = function == "open" and any(
            isinstance(mode, str) and re.fullmatch("[rwaxbt+]*[wax+][rwaxbt+]*", mode)
            for mode in modes
        )
        if (opened or function in ("write_text", "write_bytes")) and name[0] not in WHOLE_FILES:
            yield node.lineno


def careless_writes(file: str) -> Iterator[str]:
    """Where a file is written that may stay unfinished."""
    if file != "ipujax/ground/files.py":
        for line in writes(file):
            yield f"{file}:{line}: write files by ipujax/ground/files.py"


def test_files_are_written_whole() -> None:
    check(careless_writes, "ipujax")


def undescribed(file: str) -> Iterator[str]:
    """A file without a docstring."""
    if not ast.get_docstring(parse(file)):
        yield f"{file}:1: no docstring"


def test_modules_say_what_they_are() -> None:
    check(undescribed, *SOURCE_FOLDERS)


def test_every_golden_file_has_its_test() -> None:
    orphans: list[str] = []
    for golden in sorted(GOLDEN.rglob("*.txt")):
        module = (TESTS / golden.parent.relative_to(GOLDEN)).with_suffix(".py")
        name = re.match(r"\w+", golden.stem)
        known = module.exists() and any(
            isinstance(node, ast.FunctionDef) and name and node.name == name.group()
            for node in ast.walk(parse(module.relative_to(ROOT).as_posix()))
        )
        if not known:
            orphans.append(golden.relative_to(ROOT).as_posix())
    assert not orphans, f"delete these, no test reads them: {orphans}"


@pytest.mark.parametrize(
    ("file", "source", "name"),
    [
        ("lowering/a.py", "import ipujax.config", "ipujax.config"),
        ("lowering/a.py", "import os\nos.environ['A']", "os.environ"),
        ("lowering/a.py", "text = open('a').read()", "open"),
        ("lowering/a.py", "import jax as j\nj.jit(len)", "jax.jit"),
        ("lowering/ir/a.py", "from ..passes import place", "lowering.passes"),
        ("ipujax/a.py", "from jax import extend", "jax.extend"),
        ("ipujax/a.py", "import jax\njax.extend.core", "jax.extend.core"),
    ],
)
def test_the_rules_catch(
    file: str, source: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_structure.ROOT", tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(source, encoding="utf-8")
    assert any(f"`{name}`" in line for line in violations(file))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("open('name', 'w')", True),
        ("path.open(mode='ab')", True),
        ("open('name', 'r+b')", True),
        ("Path('name').write_text('b')", True),
        ("open('name', 'rb')", False),
        ("open('name')", False),
        ("files.write_text('name', 'text')", False),
        ("archive.open('member', 'w')", False),
    ],
)
def test_what_writes_is_found(
    source: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_structure.ROOT", tmp_path)
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    assert bool(list(writes("a.py"))) == found


def test_an_editable_install_is_a_path() -> None:
    """Else setuptools installs a hook of import, which type checkers do not follow."""
    options = configparser.ConfigParser()
    options.read(ROOT / "setup.cfg")
    assert options["options"]["package_dir"].strip() == "= ."
