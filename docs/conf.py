"""How Sphinx builds the site: `make docs`.

The pages are plain Markdown and can be read without the site. `site_sources.py` adds what only the
site has while Sphinx reads them; `site_reference.py` writes the reference; `site_names.py` names
what the theme's pages leave without a name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]
os.environ.setdefault("KERAS_BACKEND", "jax")

import site_names  # noqa: E402
import site_reference  # noqa: E402
import site_sources  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import ipujax  # noqa: E402

project = "ipujax"
author = "ipujax developers"
release = version = ipujax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
default_role = "code"
suppress_warnings = ["ref.python"]  # annotations such as `type`, which are attributes of ours, too

html_theme = "sphinx_book_theme"
html_title = "ipujax"
html_theme_options = {"show_toc_level": 2, "home_page_in_toc": True, "navbar_persistent": []}
html_context = {"default_mode": "auto"}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["extra"]  # the reports of the gallery
toc_object_entries_show_parents = "hide"

nb_execution_mode = "off"  # the notebooks carry their outputs
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

site_reference.write_pages(DOCS / "api")
site_sources.copy_notebooks(DOCS.parent / "notebooks", DOCS / "notebooks")
site_sources.copy_changelog(DOCS.parent / "CHANGELOG.md", DOCS / "changelog.md")
subprocess.run(
    [sys.executable, DOCS / "site_gallery.py", DOCS / "extra" / "live"],
    env={**os.environ, "PYTHONPATH": str(DOCS.parent), "POPLAR_LOG_LEVEL": "WARN"},
    check=True,
)


def setup(app: Sphinx) -> None:
    """Connects the modules to Sphinx."""
    site_names.connect(app)
    site_sources.connect(app)
    site_reference.connect(app)
