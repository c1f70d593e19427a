from __future__ import annotations

import re

import pytest

import ipujax
from tests.conftest import RunWithDevices
from tests.harness import ROOT

# An example, and the text that the README says it prints.
BLOCKS = re.compile(r"^```python\n(.*?)^```.*?^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = BLOCKS.findall(README)
OPERATORS = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
ESTIMATORS = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")
SERVING = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
EXECUTABLES = (ROOT / "docs" / "executables.md").read_text(encoding="utf-8")
KERAS = (ROOT / "docs" / "keras.md").read_text(encoding="utf-8")
POPTORCH = (ROOT / "docs" / "poptorch.md").read_text(encoding="utf-8")
POPART = (ROOT / "docs" / "popart.md").read_text(encoding="utf-8")
FRONTENDS = (ROOT / "docs" / "frontends.md").read_text(encoding="utf-8")
OPERATOR_ROWS = re.findall(r"^\| `(\w+)` \| (.+) \|$", OPERATORS, re.MULTILINE)
MIGRATION = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
ATTRIBUTES = sorted(set(re.findall(r"^\| `[^`]+` \| `([\w.]+)` \|", MIGRATION, re.MULTILINE)))
MODULES = re.findall(r"^\| `([\w.]+)` \|", README, re.MULTILINE)
HARDWARE = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## (.+)$", HARDWARE, re.MULTILINE)
VARIABLE = re.compile(r'"((?:TF|POPLAR|POPLIBS|IPUJAX)_[A-Z_]+)"')
CITATION = re.compile(r"docs/hardware\.md(?:, (" + "|".join(HEADINGS) + r")\b)?")
PLACES = ("lowering", "ipujax", "benchmarks", "validation", "tests/lowering")


def _skip_without_extras(source: str) -> None:
    for extra, users in {"keras": "keras", "onnx": "onnx|popart", "torch": "torch"}.items():
        if re.search(rf"import ({users})\b|from {extra} import", source):
            pytest.importorskip(extra, reason=f"the extra `{extra}` is not installed")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize(
    ("source", "printed"),
    EXAMPLES,
    ids=["four_ipus", "training", "keras", "poptorch", "popart", "pipeline", "schedule", "report"],
)
def test_examples_print_what_the_readme_says(
    source: str, printed: str, devices: int, run_with_devices: RunWithDevices
) -> None:
    _skip_without_extras(source)
    assert run_with_devices(devices, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "printed"), BLOCKS.findall(OPERATORS), ids=["rnn", "embedding", "random", "formats"]
)
def test_examples_print_what_the_operators_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    assert run_with_devices(1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "printed"), BLOCKS.findall(SERVING), ids=["server"])
def test_the_example_prints_what_the_serving_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    assert run_with_devices(1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "printed"), BLOCKS.findall(ESTIMATORS), ids=["regression"])
def test_the_example_prints_what_the_estimators_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    assert run_with_devices(1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "printed"), BLOCKS.findall(EXECUTABLES), ids=["plain", "queues"]
)
def test_examples_print_what_the_executables_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    pytest.importorskip("flatbuffers", reason="the extra `export` is not installed")
    assert run_with_devices(1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "printed"), BLOCKS.findall(FRONTENDS), ids=["keras", "torch", "onnx", "stages"]
)
def test_examples_print_what_the_frontends_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    _skip_without_extras(source)
    assert run_with_devices(1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "printed"), BLOCKS.findall(POPTORCH), ids=["wrappers", "blocks"]
)
def test_examples_print_what_the_poptorch_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    _skip_without_extras(source)
    assert run_with_devices(1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "printed"), BLOCKS.findall(POPART), ids=["session"])
def test_the_example_prints_what_the_popart_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    _skip_without_extras(source)
    assert run_with_devices(1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "printed"), BLOCKS.findall(KERAS), ids=["scope", "pipeline"])
def test_examples_print_what_the_keras_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    pytest.importorskip("keras", reason="the extra `keras` is not installed")
    assert run_with_devices(1, source) == printed


@pytest.mark.parametrize(("module", "names"), OPERATOR_ROWS, ids=[row[0] for row in OPERATOR_ROWS])
def test_the_operators_page_lists_what_each_module_has(module: str, names: str) -> None:
    listed = set(re.findall(r"`(\w+)`", names))
    assert listed
    assert listed <= set(dir(getattr(ipujax, module)))


@pytest.mark.parametrize("module", MODULES)
def test_modules_of_the_table_come_with_the_package(module: str) -> None:
    found: object = ipujax
    for name in module.split("."):
        found = getattr(found, name)
    assert found.__doc__


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_migration_names_attributes_that_exist(attribute: str) -> None:
    assert ipujax.config.IPUConfig().get_attribute_metadata(attribute).name == attribute


def test_migration_lists_the_variables_of_the_environment() -> None:
    sources = (file.read_text(encoding="utf-8") for file in (ROOT / "ipujax").rglob("*.py"))
    read = {name for text in sources for name in VARIABLE.findall(text)}
    assert "IPUJAX_RUNTIME_DIR" in read
    assert read == set(re.findall(r"^\| `([A-Z_]+)` \|", MIGRATION, re.MULTILINE))


@pytest.mark.parametrize("place", PLACES)
def test_cited_sections_of_the_hardware_page_exist(place: str) -> None:
    for file in sorted((ROOT / place).rglob("*.py")):
        source = re.sub(r"\s+(?:# )?", " ", file.read_text(encoding="utf-8"))
        for found in CITATION.finditer(source):
            context = source[found.start() : found.end() + 40]
            assert found.group(1), f"{file.relative_to(ROOT)}: no such section: {context!r}"


def test_links_within_the_hardware_page_lead_to_sections() -> None:
    anchors = {heading.lower().replace(" ", "-") for heading in HEADINGS}
    assert set(re.findall(r"\]\(#([\w-]+)\)", HARDWARE)) <= anchors


def test_make_test_runs_the_command_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\n.venv/bin/python -m pytest -n logical --dist loadfile\n" in README
    assert "BIN := $(VENV)/bin\n" in makefile
    assert "\n\t$(BIN)/python -m pytest -n logical --dist loadfile\n" in makefile
