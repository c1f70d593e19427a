"""Names of the original that are not there yet: what asking for one says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pickle
import pkgutil
import pydoc
import re
import subprocess
import sys

import pytest

import ipujax
from ipujax.errors import NotThereYetError
from ipujax.ground import NOT_YET
from tests.harness import ROOT

DOCUMENTED = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8").partition("## Not there")


@pytest.mark.parametrize("name", NOT_YET)
def test_what_is_not_there_yet_says_what_to_use(name: str):
    with pytest.raises(AttributeError, match=f"no '{name}' yet") as caught:
        getattr(ipujax, name)
    assert NOT_YET[name] in str(caught.value)
    for source in (f"import ipujax.{name}.more", f"from ipujax import {name}"):
        with pytest.raises(NotThereYetError) as missing:
            exec(source)
        assert str(missing.value) == str(caught.value)
    assert not hasattr(ipujax, name)
    assert name not in dir(ipujax)


def test_the_documentation_has_the_same_names():
    rows = re.findall(r"^\| (`.+?`) \|", DOCUMENTED[2], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(NOT_YET)


def test_no_module_of_the_package_counts_as_missing():
    names = {module.name for module in pkgutil.iter_modules(ipujax.__path__)}
    assert "loops" in names
    assert not names & set(NOT_YET)


def test_a_misspelled_name_is_an_error_of_python():
    source = "import ipujax\nipujax.lops"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=ROOT)
    assert ran.stderr.endswith(
        "AttributeError: module 'ipujax' has no attribute 'lops'. Did you mean: 'loops'?\n"
    )
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'ipujax\.lops'"):
        importlib.import_module("ipujax.lops")
    with pytest.raises(ImportError, match="cannot import name 'lops' from 'ipujax'"):
        exec("from ipujax import lops")


def test_tools_that_look_through_the_package_find_what_is_there():
    members = dict(inspect.getmembers(ipujax))
    assert members["compile"] is ipujax.compile
    assert "ipujax" in pydoc.render_doc(ipujax)
    assert doctest.DocTestFinder().find(ipujax)
    assert pickle.loads(pickle.dumps(ipujax.compile)) is ipujax.compile
    assert isinstance(pickle.loads(pickle.dumps(NotThereYetError("it"))), ImportError)
