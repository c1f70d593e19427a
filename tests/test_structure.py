"""The rules of CONTRIBUTING.md that a machine can check, one test per rule."""

from __future__ import annotations

import ast
import configparser
import functools
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import ipujax
from tests.harness import GOLDEN, ROOT, TESTS, free_memory

SOURCE_FOLDERS = ("ipujax", "lowering")
ALL_FOLDERS = (*SOURCE_FOLDERS, "tests", "benchmarks", "validation", "notebooks")

MAX_MODULE_LINES = 480  # aim at 400
MAX_FUNCTION_LINES = 67  # without the docstring; aim at 40
MOST_IMPORTS_OF_INTERNALS = 0.1  # of the imports of ours in tests
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
    Rule(
        "lowering",
        ("jax.device_put", "jax.devices", "jax.local_devices"),
        "the compiler is pure; running is the engines' work",
    ),
    Rule(
        "lowering",
        ("jax.jit",),
        "the compiler is pure; it traces with `trace_once`, and runs nothing",
        but=("lowering/jaxprs/typed_jax.py",),
    ),
    Rule("lowering", FILES_AND_ENVIRONMENT, "no files or environment; settings are in Options"),
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
    *(
        Rule(folder, ("torch", "onnx", "keras"), "what several front ends share knows no library")
        for folder in (
            *(f"ipujax/doors/{name}" for name in ("graphs", "kernels", "models")),
            "ipujax/training",
        )
    ),
    *(
        Rule(
            f"lowering/machine/{folder}",
            ("jax", "lowering.jaxprs", "lowering.ir"),
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

COMPILER = (
    "lowering.ground", "lowering.schedules", "lowering.marks", "lowering.jaxprs", "lowering.ops",
    "lowering.ir", "lowering.keeping", "lowering.pipelines", "lowering.passes", "lowering.fusion",
    "lowering.machine", "lowering",
)  # fmt: skip
RUNTIME = (
    "ipujax.ground", "ipujax.system", "ipujax.host", "ipujax.distribution", "ipujax.operators",
    "ipujax.optimizers", "ipujax.planner", "ipujax.pipelines", "ipujax.report", "ipujax.engine",
    "ipujax.driver", "ipujax.checkpoints", "ipujax.data", "ipujax.training",
)  # fmt: skip
FRONT_ENDS = (
    "ipujax.doors.models", "ipujax.doors.graphs", "ipujax.doors.kernels", "ipujax.doors.torch",
    "ipujax.doors.onnx", "ipujax.doors.keras", "ipujax.keras", "ipujax.strategies",
    "ipujax.doors.estimators", "ipujax.frontends", "ipujax.standin", "ipujax.popart",
    "ipujax.poplar", "ipujax.tiles", "ipujax.tessellate", "ipujax.poptorch",
    "ipujax.popdist", "ipujax.horovod", "ipujax.distributed",
)  # fmt: skip
ROOMS = (*COMPILER, *RUNTIME, *FRONT_ENDS, "ipujax.cli", "ipujax", "ipujax.demo")
"""The rooms, lowest first: a room imports the faces of those before it, and of no other.

`ipujax` and `lowering` are the modules at the roots. Of the compiler, rooms of ipujax import the
face of `lowering` alone, and front ends nothing.
"""


def python_files(*folders: str) -> list[str]:
    """The paths, relative to the root, of every Python file in the folders."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def stubs() -> list[str]:
    """The paths, relative to the root, of the stubs that list the names of faces and modules."""
    found = (path for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*.pyi"))
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


@pytest.fixture(scope="module", autouse=True)
def drop_trees() -> Iterator[None]:
    """The trees of all files take 400 MB."""
    yield
    _parsed.cache_clear()
    free_memory()


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


@dataclass(frozen=True)
class Import:
    """`from module import name`, or `import module` if the name is empty."""

    line: int
    module: str
    name: str = ""

    @property
    def text(self) -> str:
        return f"{self.module}.{self.name}".removesuffix(".")


def imports_of_ours(file: str) -> Iterator[Import]:
    """Every import of a module of ours, for type checkers only or by `import_module`, too."""
    for node in ast.walk(parse(file)):
        imports: list[Import] = []
        if isinstance(node, ast.Import):
            imports = [Import(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = imported_module(node, file)
            imports = [Import(node.lineno, module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            values = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
            imports = [Import(node.lineno, str(value)) for value in values]
        yield from (each for each in imports if each.module.split(".")[0] in SOURCE_FOLDERS)


def room_of(name: str) -> str:
    """The room that a module, or a name in one, is in."""
    return max((room for room in ROOMS if f"{name}.".startswith(f"{room}.")), key=len)


def room_of_file(file: str) -> str:
    return room_of(file.removesuffix(".pyi").removesuffix(".py").replace("/", "."))


@functools.cache
def names_in_face(room: str) -> Mapping[str, str]:
    """The names of a room's face: the module that each is imported from, none if made there."""
    file = f"{room.replace('.', '/')}/__init__.py"
    file += "i" * (ROOT / f"{file}i").exists()
    names: dict[str, str] = {}
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.ImportFrom):
            module = imported_module(node, file)
            names |= {alias.name: module for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = ""
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = ""
    return names


def wrong_import(own_room: str, wanted: Import) -> str:
    """Why a room may not import this; empty if it may."""
    room, module = room_of(wanted.text), wanted.module
    if room in COMPILER and own_room not in COMPILER:
        if own_room in FRONT_ENDS:
            return "front ends ask the rooms of ipujax, not the compiler"
        room = "lowering"
    if room == own_room:
        reexported = names_in_face(room).get(wanted.name, "") not in ("", room)
        is_face = module == room and room not in SOURCE_FOLDERS
        return "inside a room, import the module itself" if is_face and reexported else ""
    if own_room not in ROOMS[ROOMS.index(room) :]:
        return f"`{room}` is not below `{own_room}` in ROOMS"
    if room == "ipujax" or wanted.text == room:
        return ""
    if module != room and not is_public_module(own_room, module):
        return f"past the face of `{room}`"
    name = wanted.name if module == room else module.rpartition(".")[2]
    return "" if name in names_in_face(room) else f"the face of `{room}` does not list `{name}`"


def is_public_module(own_room: str, module: str) -> bool:
    """Whether the root names here what is in a module of a room, such as `ipujax.ground.errors`."""
    return own_room == "ipujax" and module.rpartition(".")[0] in ROOMS


def wrong_imports(file: str) -> Iterator[str]:
    """Where a file imports from another room upwards, or past its face."""
    for wanted in imports_of_ours(file):
        if reason := wrong_import(room_of_file(file), wanted):
            yield f"{file}:{wanted.line}: `{wanted.text}`: {reason}"


def test_rooms_import_faces_of_rooms_below() -> None:
    check(wrong_imports, *SOURCE_FOLDERS)
    assert not [line for stub in stubs() for line in wrong_imports(stub)]


def test_every_folder_is_a_room_in_the_table() -> None:
    faces = [path for folder in SOURCE_FOLDERS for path in (ROOT / folder).glob("*/__init__.py")]
    faces += (ROOT / "ipujax/doors").glob("*/__init__.py")
    folders = [path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in faces]
    assert sorted([*folders, *SOURCE_FOLDERS]) == sorted([*ROOMS, "ipujax.doors"])


@functools.cache
def names_used_elsewhere() -> frozenset[str]:
    """The dotted names that files mention of rooms other than their own, and their beginnings."""
    names: set[str] = set()
    for file in [*stubs(), *python_files(*SOURCE_FOLDERS, "tests", "benchmarks", "validation")]:
        own_room = room_of_file(file) if file.split("/")[0] in SOURCE_FOLDERS else ""
        for _, name in mentioned_names(file):
            if name.split(".")[0] in SOURCE_FOLDERS and room_of(name) != own_room:
                names.add(name)
                parts = name.split(".")
                names.update(".".join(parts[:n]) for n in range(2, len(parts)))
    return frozenset(names)


def unused_names(room: str) -> list[str]:
    """The names in a room's face that are not public and that no other room uses."""
    is_public = room.removeprefix("ipujax.") in ipujax.__all__
    public = dir(importlib.import_module(room)) if is_public else []
    return [
        name
        for name, source in names_in_face(room).items()
        if source and not name.startswith("_") and name not in public
        if f"{room}.{name}" not in names_used_elsewhere()
    ]


FACES = [room for room in ROOMS if room not in ("ipujax", "ipujax.demo")]


@pytest.mark.parametrize("room", FACES)
def test_a_face_lists_what_others_use(room: str) -> None:
    assert unused_names(room) == []


@pytest.mark.parametrize("room", FACES)
def test_a_lazy_face_hides_no_module(room: str) -> None:
    """Once such a module is imported, it takes the place of the name."""
    folder = ROOT / room.replace(".", "/")
    if (folder / "__init__.pyi").exists():
        modules = {path.stem for path in folder.iterdir()}
        names = names_in_face(room).items()
        assert not [name for name, source in names if source != room and name in modules]


def is_package(module: str) -> bool:
    return (ROOT / module.replace(".", "/") / "__init__.py").exists()


def is_internal(wanted: Import) -> bool:
    """Whether an import is of a name that neither a face nor a public module lists."""
    folders = wanted.module.split(".")
    if len(folders) > 1 and (ROOT / folders[0] / f"{folders[1]}.py").exists():
        return folders[0] != "ipujax"
    if not is_package(wanted.module):
        return True
    is_root = wanted.module == "ipujax" and (ROOT / "ipujax" / f"{wanted.name}.py").exists()
    if not wanted.name or is_root or is_package(wanted.text):
        return False
    names = {*names_in_face(wanted.module), *names_in_all(wanted.module)}
    return wanted.name not in names


@functools.cache
def names_in_all(package: str) -> frozenset[str]:
    """The strings of the `__all__` that a package's `__init__` spells out."""
    tree = parse(f"{package.replace('.', '/')}/__init__.py")
    lists = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    texts = (node for names in lists for node in ast.walk(names) if isinstance(node, ast.Constant))
    return frozenset(str(node.value) for node in texts)


def test_tests_import_what_others_may_use() -> None:
    """A test of an internal stops whoever changes it, though nothing that a user sees changes."""
    imports = [(file, wanted) for file in python_files("tests") for wanted in imports_of_ours(file)]
    internals = [
        f"{file}:{wanted.line}: {wanted.text}" for file, wanted in imports if is_internal(wanted)
    ]
    share = len(internals) / len(imports)
    assert share <= MOST_IMPORTS_OF_INTERNALS, "\n".join([f"{share:.1%} of imports:", *internals])


@pytest.mark.parametrize(
    ("wanted", "is_one"),
    [
        (Import(1, "ipujax", "config"), False),
        (Import(1, "ipujax.config", "IPUConfig"), False),
        (Import(1, "ipujax.poptorch", "DataLoader"), False),
        (Import(1, "ipujax.host", "Queue"), False),
        (Import(1, "lowering.machine.kernels", "Item"), False),
        (Import(1, "ipujax.host", "queues"), True),
        (Import(1, "ipujax.host.queues", "Queue"), True),
        (Import(1, "lowering.compiler", "lower"), True),
    ],
)
def test_internals_are_found(wanted: Import, is_one: bool) -> None:
    assert is_internal(wanted) == is_one


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
        ("lowering/a.py", "import os\nos.environ['A']", "os.environ"),
        ("lowering/a.py", "text = open('a').read()", "open"),
        ("lowering/a.py", "import jax as j\nj.jit(len)", "jax.jit"),
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
    ("file", "source", "reason"),
    [
        ("lowering/ir/a.py", "import ipujax.config", "not below"),
        ("lowering/ir/a.py", "from ..passes import place", "not below"),
        ("lowering/passes/a.py", "from lowering.ir.program import Program", "past the face"),
        ("ipujax/host/a.py", "if TYPE_CHECKING:\n  from ipujax.engine import Run", "not below"),
        ("ipujax/host/a.py", "import_module('ipujax.system.devices')", "past the face"),
        ("ipujax/host/a.py", "from ipujax.system import nothing", "does not list"),
        ("ipujax/host/a.py", "from ipujax import config", "not below"),
        ("ipujax/host/a.py", "from lowering.ops import draws", "past the face"),
        ("ipujax/host/a.py", "from ipujax.host import Queue", "inside a room"),
        ("ipujax/keras/a.py", "from lowering import ops", "front ends"),
        ("ipujax/a.py", "from ipujax.operators.nn.ctc_loss import ctc_loss", "past the face"),
        ("ipujax/a.py", "from ipujax.operators import ctc_loss", ""),
        ("ipujax/host/a.py", "from ipujax import system\nfrom lowering import ops", ""),
        ("lowering/passes/a.py", "from lowering import ir", ""),
    ],
)
def test_the_order_of_rooms_catches(file: str, source: str, reason: str, monkeypatch) -> None:
    faces = {room: names_in_face(room) for room in FACES}
    monkeypatch.setattr("tests.test_structure.names_in_face", faces.__getitem__)
    monkeypatch.setattr("tests.test_structure.parse", lambda _: ast.parse(source))
    lines = list(wrong_imports(file))
    assert reason in lines[0] if reason else not lines


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
