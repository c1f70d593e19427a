"""Lines of notebooks are those of their cells."""

from __future__ import annotations

import pytest

from ipujax.ground import shorten_call_path
from lowering.ground import (
    file_of_cell,
    is_in_installed_package,
    name_source_line,
    parse_source_line,
)
from tests.conftest import RunWithDevices

NOTEBOOK = '''
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("import ipujax as ipu, jax", store_history=True)
shell.run_cell("""
def layer(x):
    return x @ x
""", store_history=True)
shell.run_cell("""
@ipu.compile
def model(x):
    with ipu.scopes.ipu_shard(1):
        return layer(x)

x = jax.ShapeDtypeStruct((8, 8), "float32")
try:
    model.lower(x)
except ipu.errors.ShardError as error:
    print(str(error).splitlines()[1])
(operation,) = ipu.compile(lambda x: layer(x)).lower(x).report().operations[:1]
print(operation.origin)
print(operation.call_path)
sources = ipu.compile(lambda x: layer(x)).lower(x).report().sources
print([(one.file, one.line, one.text.splitlines()[1]) for one in sources])
""", store_history=True)
'''


def test_a_line_of_a_file_is_the_files() -> None:
    assert name_source_line("models/bert.py", 7) == "models/bert.py:7"


def test_a_line_of_a_notebook_is_its_cells(run_with_devices: RunWithDevices) -> None:
    pytest.importorskip("IPython", reason="the extra `notebooks` is not installed")
    assert run_with_devices(1, NOTEBOOK).splitlines() == [
        "  where: cell 2, line 2 (layer)",
        "cell 2, line 2 (layer)",
        "('cell 3, line 11 (<lambda>)', 'cell 2, line 2 (layer)')",
        "[('cell 2', 1, '    return x @ x'), ('cell 3', 1, 'def model(x):')]",
    ]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("models/bert.py:7 (Block.__call__)", ("models/bert.py", 7)),
        ("C:\\models (old)\\bert.py:12", ("C:\\models (old)\\bert.py", 12)),
        ("cell 12, line 7 (model.<locals>.<lambda>)", ("cell 12", 7)),
        ("an unknown line", None),
        ("", None),
    ],
)
def test_the_place_is_found_in_a_line(line: str, place: tuple[str, int] | None) -> None:
    assert parse_source_line(line) == place


def test_files_of_installed_packages_are_told() -> None:
    assert is_in_installed_package("/usr/lib/python3/dist-packages/flax/linen/linear.py")
    assert not is_in_installed_package("/project/packages/linear.py")
    assert file_of_cell("bert.py") == "bert.py"


def test_call_paths_name_each_cell_once() -> None:
    path = ["cell 3, line 5 (model)", "cell 2, line 3 (a)", "cell 2, line 4 (b)", "bert.py:7 (c)"]
    assert shorten_call_path(path) == "cell 3, line 5 > cell 2, line 3 > :4 > bert.py:7"
