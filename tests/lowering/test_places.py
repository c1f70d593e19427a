"""Lines of notebooks are those of their cells."""

from __future__ import annotations

import pytest

from ipujax.report.words import called
from lowering.places import line_of_file
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
""", store_history=True)
'''


def test_a_line_of_a_file_is_the_files() -> None:
    assert line_of_file("models/bert.py", 7) == "models/bert.py:7"


def test_a_line_of_a_notebook_is_its_cells(run_with_devices: RunWithDevices) -> None:
    pytest.importorskip("IPython", reason="the extra `notebooks` is not installed")
    assert run_with_devices(1, NOTEBOOK).splitlines() == [
        "  where: cell 2, line 2 (layer)",
        "cell 2, line 2 (layer)",
        "('cell 3, line 11 (<lambda>)', 'cell 2, line 2 (layer)')",
    ]


def test_call_paths_name_each_cell_once() -> None:
    path = ["cell 3, line 5 (model)", "cell 2, line 3 (a)", "cell 2, line 4 (b)", "bert.py:7 (c)"]
    assert called(path) == "cell 3, line 5 > cell 2, line 3 > :4 > bert.py:7"
