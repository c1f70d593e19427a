from __future__ import annotations

import re
import subprocess
import sys
import tomllib
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
PACKAGE = (ROOT / "PACKAGE.md").read_text(encoding="utf-8")
OFTEN_RUN = ("README", "PACKAGE")
EXAMPLES = [
    pytest.param(
        *block, id=f"{page}-{number}", marks=[pytest.mark.exhaustive] * (page not in OFTEN_RUN)
    )
    for page, text in {"README": README, "PACKAGE": PACKAGE, **PAGES}.items()
    for number, block in enumerate(BLOCKS.findall(text))
    if page not in ("custom_operations", "pipelines_for_jax_users")  # they have tests of their own
]
PROGRAM = re.compile(rf"^```(python|text)\n({INSIDE})^```", re.DOTALL | re.MULTILINE)
# A whole script before and after, and the text that the page says it prints.
DIFFS = re.compile(
    rf"^```diff\n({INSIDE})^```\n{INSIDE}^```\n({INSIDE})^```", re.DOTALL | re.MULTILINE
)
PORTED = dict(zip(("poptorch", "popart"), DIFFS.findall(PAGES["migration"]), strict=True))
LIBRARIES_OF_JAX_USERS = ("equinox", "flax", "haiku")

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


def script_of_diff(diff: str, side: str) -> str:
    """The script before (`-`) or after (`+`) a change."""
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in (" ", side))


def without_configuration(script: str) -> str:
    """The script without its line that makes devices, which `run_with_devices` makes."""
    (line,) = [line for line in script.splitlines(keepends=True) if "jax_num_cpu_devices" in line]
    return script.replace(line, "")


def test_a_flax_script_becomes_a_pipeline_in_few_lines() -> None:
    page = PAGES["pipelines_for_jax_users"]
    ((diff, printed),) = DIFFS.findall(page)
    assert len(re.findall(r"^\+.+", diff, re.MULTILINE)) == 5  # at most 8 were asked for
    assert "## In short: a flax script in five changed lines\n" in page
    assert printed.count("loss") == 5


@pytest.mark.exhaustive
def test_the_losses_of_the_flax_script_are_those_of_its_pipeline(
    run_with_devices: RunWithDevices,
) -> None:
    pytest.importorskip("flax")
    ((diff, printed),) = DIFFS.findall(PAGES["pipelines_for_jax_users"])
    assert run_with_devices(1, script_of_diff(diff, "-")) == printed
    after = without_configuration(script_of_diff(diff, "+"))
    devices = "print(len({d for leaf in jax.tree.leaves(params) for d in leaf.devices()}))\n"
    assert run_with_devices(4, after + devices) == f"{printed}4\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize("library", PORTED)
def test_ported_scripts_print_the_same_before_and_after(
    library: str, tmp_path: Path, run_with_devices: RunWithDevices
) -> None:
    pytest.importorskip("torch" if library == "poptorch" else "onnx")
    diff, printed = PORTED[library]
    assert run_with_devices(1, script_of_diff(diff, "+")) == printed
    original = tmp_path / "original.py"
    original.write_text(script_of_diff(diff, "-"), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", f"ipujax.{library}", original],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.stdout == printed, run.stderr


@pytest.mark.exhaustive
def test_the_page_for_jax_users_is_one_program(run_with_devices: RunWithDevices) -> None:
    for library in LIBRARIES_OF_JAX_USERS:
        pytest.importorskip(library)
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


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_links_are_called_by_titles_and_not_by_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\[[^\] ]+\.(?:md|py|ipynb|json)\]\(", text) == []


@pytest.mark.parametrize("page", ["README", "PACKAGE", "index"])
def test_headlines_have_the_figures_of_the_validation(page: str) -> None:
    text = {"README": README, "PACKAGE": PACKAGE, **PAGES}[page]
    found = re.search(
        r"(\d+) can\s+be expressed\. The median error is ([\d.]+ %), and nine in ten are within "
        r"(\d+ %)",
        PAGES["validation"],
    )
    assert found
    headline = (
        r"Over {} published numbers.*?median\s+error\s+is {}, and nine in\s+ten are\s+within {}"
    )
    assert re.search(headline.format(*found.groups()), text, re.DOTALL)


def test_the_text_of_the_package_leads_nowhere() -> None:
    """A package index has none of the files that a relative link would lead to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["readme"] == "PACKAGE.md"
    assert [target for target, _ in TARGET.findall(PACKAGE) if ":" not in target] == []


def test_extras_of_the_install_page_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].keys() - {"docs", "lint", "test"}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGES["install"], re.MULTILINE)) == extras
    assert all(f"`{extra}`" in PACKAGE for extra in extras)


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation
    released = re.search(r"^date-released: (.+)$", citation, re.MULTILINE)
    assert released
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{project['version']}] - {released[1]}" in changelog


def test_make_test_runs_the_command_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\n.venv/bin/python -m pytest -n logical --dist loadfile\n" in README
    assert "BIN := $(VENV)/bin\n" in makefile
    assert "\n\t$(BIN)/python -m pytest -n logical --dist loadfile\n" in makefile
