"""Adds to the plain Markdown pages what only the site has: menus, and pictures for both themes."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent

# Pages whose lists and tables are a level of the site.
HUBS = ("index", "tutorials", "how_to", "reference", "explanation")
ENTRY = re.compile(r"^[*|].*", re.MULTILINE)
LINK = re.compile(r"\]\(([\w/]+)\.(?:md|ipynb)\)")
PICTURE = re.compile(
    r'<picture>\s*((?:<source [^>]*>\s*)+)<img src="(.+?)" alt="(.+?)">\s*</picture>'
)
SOURCE = re.compile(r'media="(.+?)" srcset="(.+?)"')
# A link to a program of the gallery, before which the site has one to its report.
PROGRAM = re.compile(r"\[[^]]+\]\(gallery/(\w+)\.py\)")
EXAMPLE = "<!-- here the site shows the example of the README -->"

TREE = """

```{{toctree}}
:hidden:
:maxdepth: 2
:glob:

{pages}
```
"""
IMAGE = """\
```{{image}} {file}
:class: {classes}
:alt: "{words}"
```

"""
PLAYGROUND = "<!-- here the site has the playground -->"
OPEN_PLAYGROUND = '<a href="live/playground.html">Open the playground</a>, or make it:'
REPORT = '<a href="live/{name}.html">Open the report</a>, or read '
INCLUDE = """\
```{include} ../README.md
:start-after: "where it waits.*"
:end-before: "## Try it"
:relative-docs: docs/
```
"""


def copy_notebooks(source: Path, folder: Path) -> None:
    """Copies the notebooks below the folder of the pages, outside of which Sphinx reads nothing."""
    folder.mkdir(exist_ok=True)
    for notebook in sorted(source.glob("*.ipynb")):
        write(folder / notebook.name, notebook.read_text("utf-8"))


def copy_changelog(source: Path, page: Path) -> None:
    """Copies the changelog beside the pages, to which its links then lead."""
    write(page, source.read_text("utf-8").replace("](docs/", "]("))


def write(path: Path, text: str) -> None:
    """Writes a file whose text has changed; others keep their time, and Sphinx their pages."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def adapt_page(page: str, text: str) -> str:
    """Returns the Markdown of a page as the site reads it."""
    # Links to notebooks lead to the copies, and links of notebooks back.
    text = text.replace("](../notebooks/", "](notebooks/").replace("](../docs/", "](../")
    text = text.replace("](../CHANGELOG.md)", "](changelog.md)")
    text = PROGRAM.sub(lambda link: REPORT.format(name=link[1]) + link[0], text)
    text = PICTURE.sub(_themed_pictures, text).replace(EXAMPLE, INCLUDE)
    text = text.replace(PLAYGROUND, OPEN_PLAYGROUND)
    if page in HUBS:
        entries = " ".join(ENTRY.findall(text))
        text += TREE.format(pages="\n".join(dict.fromkeys(LINK.findall(entries))))
    if page == "modules":
        text = re.sub(r"^\| `([\w.]+)` \|", _row_with_link, text, flags=re.MULTILINE)
        text = text.replace("The root of the package", "[The root of the package](api/ipujax.md)")
        text += TREE.format(pages="api/ipujax\napi/*")
    return text


def _themed_pictures(match: re.Match[str]) -> str:
    sources, light, words = match.groups()
    pictures = {"": light} | {media: file for media, file in SOURCE.findall(sources)}
    has_narrow = any("max-width" in media for media in pictures)
    text = ""
    for media, file in pictures.items():
        classes = "only-dark" if "dark" in media else "only-light"
        if has_narrow:
            classes += " narrow-page" if "max-width" in media else " wide-page"
        text += IMAGE.format(file=file, classes=classes, words=words)
    return text


def _row_with_link(match: re.Match[str]) -> str:
    return f"| [`{match[1]}`](api/{match[1]}.md) |"


def connect(app: Sphinx) -> None:
    """Has Sphinx pass every page through `adapt_page` when it reads it."""

    def on_read(app: Sphinx, page: str, source: list[str]) -> None:
        source[0] = adapt_page(page, source[0])

    app.connect("source-read", on_read)
