"""How Sphinx builds the site: `make docs`. The reference is written from the public names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
os.environ.setdefault("KERAS_BACKEND", "jax")

from sphinx.application import Sphinx  # noqa: E402

import ipujax  # noqa: E402
from ipujax.names import public_names  # noqa: E402

project = "ipujax"
author = "the authors of ipujax"
release = version = ipujax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
default_role = "code"
suppress_warnings = ["ref.python"]  # annotations such as `type`, which are attributes of ours, too

html_theme = "sphinx_book_theme"
html_title = "ipujax"
html_theme_options = {"show_toc_level": 2, "home_page_in_toc": True, "navbar_persistent": []}

nb_execution_mode = "off"  # the notebooks carry their outputs
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

PAGE = """\
# `{name}`

```{{eval-rst}}
.. automodule:: {module}
   :exclude-members: {elsewhere}
```
"""


def public_modules() -> Iterator[ModuleType]:
    """All that are listed in `ipujax/__init__.pyi`, and those that they list."""
    waiting = [getattr(ipujax, name) for name in sorted(public_names())]
    while waiting:
        module = waiting.pop(0)
        if isinstance(module, ModuleType) and module.__name__.startswith("ipujax."):
            yield module
            waiting += [getattr(module, name) for name in module.__all__]


def write_reference(folder: Path) -> None:
    """A page for each public module; what several of them have is on the first one's page."""
    folder.mkdir(exist_ok=True)
    told: dict[int, str] = {}
    for module in dict.fromkeys(public_modules()):
        name = module.__name__.removeprefix("ipujax.")
        members = {each: getattr(module, each) for each in module.__all__}
        elsewhere = [
            each
            for each, value in members.items()
            if isinstance(value, ModuleType) or told.setdefault(id(value), name) != name
        ]
        page = PAGE.format(name=name, module=module.__name__, elsewhere=", ".join(elsewhere))
        for each in elsewhere:
            owner = told.get(id(members[each]))
            page += f"\n`{each}`: see [`{owner}`]({owner}.md).\n" if owner else ""
        write(folder / f"{name}.md", page)


def write(path: Path, text: str) -> None:
    """What has not changed keeps its time, so that Sphinx does not build it again."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def copy_notebooks(folder: Path) -> None:
    """Sphinx reads what is below its own folder."""
    folder.mkdir(exist_ok=True)
    for notebook in sorted((DOCS.parent / "notebooks").glob("*.ipynb")):
        write(folder / notebook.name, notebook.read_text("utf-8"))


write_reference(DOCS / "api")
copy_notebooks(DOCS / "notebooks")


def setup(app: Sphinx) -> None:
    """Links to notebooks lead to the copies, and links of notebooks back."""

    def led_to(app: Sphinx, page: str, source: list[str]) -> None:
        text = source[0].replace("](../notebooks/", "](notebooks/")
        source[0] = text.replace("](../docs/", "](../")

    app.connect("source-read", led_to)
