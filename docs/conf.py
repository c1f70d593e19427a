"""How Sphinx builds the site: `make docs`. The reference is written from the public names."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
os.environ.setdefault("KERAS_BACKEND", "jax")

import ipujax  # noqa: E402
from ipujax.names import public_names  # noqa: E402

project = "ipujax"
author = "the authors of ipujax"
release = version = ipujax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["notebooks/README.md", "notebooks/*.py"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

html_theme = "sphinx_book_theme"
html_title = "ipujax"
html_static_path = ["pictures"]
html_theme_options = {"show_navbar_depth": 1, "show_toc_level": 2, "home_page_in_toc": True}

nb_execution_mode = "off"  # the notebooks carry their outputs, which CI holds to the code
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# A page is for Sphinx and for whoever reads it as a file: links to files beside the documentation
# stay as they are.
suppress_warnings = ["mystnb.unknown_mime_type"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False

MODULE = """\
# `{name}`

```{{eval-rst}}
.. automodule:: {module}
```
"""
OTHERS = """\
# `ipujax`

```{eval-rst}
.. automodule:: ipujax
   :no-members:
"""


def write_reference(folder: Path) -> None:
    """A page of each public module, and one of the names at the root."""
    folder.mkdir(exist_ok=True)
    root = OTHERS
    for name, home in sorted(public_names().items()):
        if isinstance(getattr(ipujax, name), ModuleType):
            page = MODULE.format(name=name, module=f"ipujax.{name}")
            write(folder / f"{name}.md", page)
        else:
            kind = "function"
            root += f"\n.. auto{kind}:: {home}.{name}\n"
    write(folder / "ipujax.md", root + "```\n")


def write(path: Path, text: str) -> None:
    """What has not changed keeps its time, so that Sphinx does not build it again."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


write_reference(DOCS / "api")
