"""The HTML page of a report: what is in the file, and what is not."""

from __future__ import annotations

import base64
import gzip
import html as escapes
import json
import random
import re
from typing import Any

import pytest

from ipujax.report.presentation import bundle, html
from tests.harness import ROOT

FOLDER = ROOT / "ipujax" / "report" / "presentation"
MODULES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js"))
FIRST = ("page/main.js", "playground/engine.js", "playground/main.js")
MAX_LINES = 400
STEPS = 100_000

_TOP_LEVEL = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var) "
    r"(?:\[([^\]]*)\]|\{([^}]*)\}|(\w+))",
    re.MULTILINE,
)
_ANY_IMPORT = re.compile(r"^import\b.*$", re.MULTILINE)
_PLAIN_IMPORT = re.compile(r'^import \{(\w+(?:, \w+)*)\} from "(\.\.?/[\w./]+\.js)";$')


def document(name: str = "train", **sections: Any) -> dict[str, Any]:
    """As little as the bundler reads of a document."""
    return {"schema": 2, "name": name, **sections}


def compared_document(name: str = "train") -> dict[str, Any]:
    """As little as two documents need to be compared."""
    node = {
        **{"kind": [1], "name": [0], "origin": [0], "ipu": [-1], "count": [1]},
        **{"cycles": [0], "operation": [-1], "children": [[]]},
    }
    numbers = {"cycles": 0, "elements": 0, "replication_factor": 1}
    lists: dict[str, Any] = {"operations": [], "costs": [], "sources": []}
    return document(name, strings=["", "sequence"], program=node, **numbers, **lists)


def steps(count: int) -> dict[str, Any]:
    """A section as large as that of a program of so many different steps."""
    draw = random.Random(0)
    columns = {
        key: [draw.randrange(most) for _ in range(count)]
        for key, most in (("name", 20_000), ("origin", 2000), ("cycles", 10**5))
    }
    return {"type": "block", "ipu": 0, "start": list(range(0, 50 * count, 50)), **columns}


def source(path: str) -> str:
    return (FOLDER / path).read_text("utf-8")


def modules_of(first: str) -> list[str]:
    """The modules of a script."""
    script = bundle.bundle_scripts(first)
    return [path for path in MODULES if bundle.strip_module(source(path)) in script]


def packed(page: str) -> list[Any]:
    """The documents in a page, unpacked as a browser does it."""
    found = re.findall(r'<script type="application/octet-stream" class="report">(.*?)<', page)
    return [json.loads(gzip.decompress(base64.b64decode(each))) for each in found]


def test_the_page_holds_the_document() -> None:
    report = document(strings=["", "a </script><script>alert(1)</script> ü"])
    assert packed(html.render_html_page([report])) == [report]


def test_two_documents_are_compared_on_one_page() -> None:
    page = html.render_html_page([compared_document("before"), compared_document("after")])
    assert [each["name"] for each in packed(page)] == ["before", "after"]
    assert "<title>before and after - ipujax report</title>" in page


def test_documents_may_have_labels() -> None:
    page = html.render_html_page(
        [compared_document(), compared_document()], ["a/<b>.json", 'the "new" one']
    )
    labels = re.findall(r'class="report" data-label="([^"]*)">', page)
    assert [escapes.unescape(label) for label in labels] == ["a/<b>.json", 'the "new" one']
    title = "<title>a/&lt;b&gt;.json and the &quot;new&quot; one - ipujax report</title>"
    assert title in page


def test_every_document_has_a_label_or_none_has() -> None:
    with pytest.raises(ValueError, match="2 documents have 1 labels"):
        html.render_html_page([document(), document()], ["before.json"])


@pytest.mark.parametrize("count", [0, 3])
def test_other_numbers_of_documents_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"was given {count}"):
        html.render_html_page([document()] * count)


def test_texts_of_the_user_are_no_markup() -> None:
    page = html.render_html_page([document("</title><script>alert(1)</script>{{script}}")])
    assert "<script>alert" not in page
    assert page.count("</script>") == 2  # the document and the modules
    assert page.count("</title>") == 1
    assert page.count("async function loadReports") == 1


def test_a_page_of_a_document_is_always_the_same() -> None:
    assert html.render_html_page([document()]) == html.render_html_page([document()])


def test_a_frame_is_sandboxed_and_holds_the_page() -> None:
    frame = html.render_notebook_iframe([document('a "quoted" name')])
    match = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"]*resize:vertical[^"]*" '
        r'srcdoc="([^"]*)"></iframe>',
        frame,
    )
    assert match
    assert escapes.unescape(match[1]) == html.render_html_page([document('a "quoted" name')])


def test_nothing_comes_from_a_network() -> None:
    page = html.render_html_page([document()])
    assert "default-src 'none'" in page
    for forbidden in ("http:", "https:", "//cdn", "url(", "@import", "fetch(", "XMLHttpRequest"):
        assert forbidden not in page, forbidden
    assert not re.search(r"<(?:link|img|script)[^>]*\b(?:src|href)=", page)


def test_large_programs_make_files_of_bearable_size() -> None:
    page = html.render_html_page(
        [document(steps={"count": STEPS, "root": 0, "nodes": [steps(STEPS)]})]
    )
    assert len(page) < 20e6


@pytest.mark.parametrize("first", FIRST)
def test_modules_come_after_those_that_they_import(first: str) -> None:
    script = bundle.bundle_scripts(first)
    assert not _ANY_IMPORT.findall(script)
    assert not re.findall(r"^export\b", script, re.MULTILINE)
    modules = modules_of(first)
    places = {path: script.index(bundle.strip_module(source(path))) for path in modules}
    for path in modules:
        for line in _ANY_IMPORT.findall(source(path)):
            match = _PLAIN_IMPORT.match(line)
            assert match, f"{path}: {line}"
            assert places[bundle._resolve_import_path(path, match[2])] < places[path]


@pytest.mark.parametrize("first", FIRST)
def test_no_text_spans_lines_whose_indentation_is_left_out(first: str) -> None:
    assert all(line.count("`") % 2 == 0 for line in bundle.bundle_scripts(first).splitlines())


@pytest.mark.parametrize("first", FIRST)
def test_comments_are_left_out(first: str) -> None:
    assert not re.findall(r"^\s*(?://|/\*\*| \* )", bundle.bundle_scripts(first), re.MULTILINE)


def test_every_module_is_in_a_script() -> None:
    assert {path for first in FIRST for path in modules_of(first)} == set(MODULES)


def test_imports_name_what_their_modules_export() -> None:
    for path in MODULES:
        for names, imported in bundle._IMPORT.findall(source(path)):
            exported = source(bundle._resolve_import_path(path, imported))
            for name in names.split(", "):
                pattern = rf"^export (?:async )?(?:function\*?|class|const|let) {name}\b"
                assert re.search(pattern, exported, re.MULTILINE), f"{path}: {name}"
                assert len(re.findall(rf"\b{name}\b", source(path))) > 1, f"{path}: unused {name}"


@pytest.mark.parametrize("first", FIRST)
def test_modules_share_one_scope_without_clashes(first: str) -> None:
    owners: dict[str, str] = {}
    for path in modules_of(first):
        for several, fields, one in _TOP_LEVEL.findall(source(path)):
            for name in re.findall(r"\w+", several or fields or one):
                assert name not in owners, f"{name} is in {owners[name]} and in {path}"
                owners[name] = path
    assert len(owners) > (100 if first.endswith("main.js") else 10)


@pytest.mark.parametrize("path", MODULES)
def test_modules_keep_to_the_rules(path: str) -> None:
    text = source(path)
    assert len(text.splitlines()) <= MAX_LINES
    assert text.startswith("//")
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in text
    assert "</script" not in text.lower()
    assert "import(" not in text


def test_every_colour_that_scripts_name_is_in_the_style() -> None:
    style = html.read_page_style()
    named = {
        name for path in MODULES for name in re.findall(r'themeColour\("([\w-]+)"\)', source(path))
    }
    assert {name for name in named if f"--{name}:" not in style} == set()


def test_words_mean_what_the_glossary_says() -> None:
    """The page has its own copy, since it opens where no documents are."""
    entries = re.findall(r'^  "?([\w ]+)"?: "(.*)",$', source("page/glossary.js"), re.MULTILINE)
    assert len(entries) > 15
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert not [word for word, means in entries if f"| {word} | {means} |" not in glossary]
