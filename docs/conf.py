"""What Sphinx is told: `python -m sphinx -W -n --keep-going -b html docs build/site` makes the site of these pages.

Pages are Markdown (MyST) that reads well without Sphinx, too.  `_site/` writes three parts when a build begins: the reference, from
docstrings, the gallery, from examples/, and pages of the project's files, such as CHANGELOG.md.  No code of a page runs in a build;
tests/test_documentation.py runs the code of the guides.
No network is needed: references to other projects become links where their inventories can be had, and are plain names elsewhere.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
from _site import gallery, inventories, links, pictures, reference
from _site import project as project_files

project = "tracejit"
author = "tracejit contributors"
copyright = author
release = version = version_of("tracejit")

extensions = ["myst_parser", "sphinx.ext.intersphinx"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_site"]
intersphinx_mapping = inventories.reachable()

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nitpicky = True

toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "pydata_sphinx_theme"
html_title = "tracejit"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_depth": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_version_warning_banner": False,
}
html_sidebars = {"index": []}


def write_pages(app: Sphinx) -> None:
    """Write the pages that are made of docstrings and examples."""
    reference.write(Path(app.srcdir) / "reference")
    gallery.write(Path(app.srcdir).parent / "examples", Path(app.srcdir) / "gallery", pictures.draw)
    project_files.write(Path(app.srcdir).parent, Path(app.srcdir))


def setup(app: Sphinx) -> None:
    """Register what is done beside Sphinx's own work."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", project_files.lead_to_pages)
    links.setup(app)
