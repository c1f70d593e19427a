from __future__ import annotations

import re
from pathlib import Path

import pytest

import ipujax
from tests.conftest import RunWithDevices
from tests.harness import ROOT

# An example, and the text that the page says it prints.
INSIDE = r"(?:(?!^```).)*"
BLOCKS = re.compile(
    rf"^```python\n({INSIDE})^```\n{INSIDE}^```text\n({INSIDE})^```", re.DOTALL | re.MULTILINE
)
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/*.md"))}
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = [
    pytest.param(*block, id=f"{page}-{number}", marks=[pytest.mark.exhaustive] * (page != "README"))
    for page, text in {"README": README, **PAGES}.items()
    for number, block in enumerate(BLOCKS.findall(text))
    if page not in ("custom_operations", "pipelines_for_jax_users")  # they have tests of their own
]
PROGRAM = re.compile(rf"^```(python|text)\n({INSIDE})^```", re.DOTALL | re.MULTILINE)

OPERATOR_ROWS = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGES["operators"], re.MULTILINE)
MIGRATION = PAGES["migration"]
ATTRIBUTES = sorted(set(re.findall(r"^\| `[^`]+` \| `([\w.]+)` \|", MIGRATION, re.MULTILINE)))
MODULES = re.findall(r"^\| `([\w.]+)` \|", PAGES["modules"], re.MULTILINE)
HARDWARE = PAGES["hardware"]
HEADINGS = re.findall(r"^## (.+)$", HARDWARE, re.MULTILINE)
VARIABLE = re.compile(r'"((?:TF|POPLAR|POPLIBS|IPUJAX)_[A-Z_]+)"')
CITATION = re.compile(r"docs/hardware\.md(?:, (" + "|".join(HEADINGS) + r")\b)?")
PLACES = ("lowering", "ipujax", "benchmarks", "validation", "tests/lowering")
EXTRAS = {
    "keras": "keras",
    "onnx": "onnx|popart",
    "torch": "torch|poptorch",
    "flatbuffers": "serve|save",
}


def _skip_without_extras(source: str) -> None:
    for package, use in EXTRAS.items():
        if re.search(use, source):
            pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.mark.parametrize(("source", "printed"), EXAMPLES)
def test_examples_print_what_their_page_says(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    _skip_without_extras(source)
    assert run_with_devices(8 if "ipu.meshes" in source else 1, source) == printed


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "printed"), BLOCKS.findall(PAGES["tour"])[:3])
def test_examples_print_the_same_on_four_devices(
    source: str, printed: str, run_with_devices: RunWithDevices
) -> None:
    assert run_with_devices(4, source) == printed


@pytest.mark.exhaustive
def test_the_page_for_jax_users_is_one_program(run_with_devices: RunWithDevices) -> None:
    blocks = PROGRAM.findall(PAGES["pipelines_for_jax_users"])
    source, printed = (
        "".join(text for language, text in blocks if language == wanted)
        for wanted in ("python", "text")
    )
    assert run_with_devices(8, source, timeout=900.0) == printed


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


TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "notebooks/README.md")),
    *sorted(ROOT.glob("docs/*.md")),
]
TARGET = re.compile(r'(?:\]\(|src="|srcset=")([^)"\s#]*)(?:#([^)"\s]*))?[)"]')


def anchors_of(text: str) -> set[str]:
    """As code hosts make them of headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_pages_can_be_read_where_the_code_is(path: Path) -> None:
    """What they link to is there, and nothing is written for Sphinx alone."""
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"^`{3,}\{.*|^:::.*|\{\w+\}`", text, re.MULTILINE)
    for target, anchor in TARGET.findall(re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)):
        if ":" in target:
            continue
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), target
        if anchor:
            assert anchor in anchors_of(found.read_text(encoding="utf-8")), (target, anchor)


def test_make_test_runs_the_command_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\n.venv/bin/python -m pytest -n logical --dist loadfile\n" in README
    assert "BIN := $(VENV)/bin\n" in makefile
    assert "\n\t$(BIN)/python -m pytest -n logical --dist loadfile\n" in makefile
