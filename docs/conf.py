"""Configuration of Sphinx, which builds the documentation site (`make docs`).

The source folder is the root of the repository, so that links between documents, and to files of the code, are the same
on the site and in the repository.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs/site")]

from source_files import linkcode_resolve  # noqa: E402, F401

import launch.quiet_tensorflow  # noqa: E402, F401  (before autodoc imports TensorFlow)
from t2t_keras import __version__  # noqa: E402

project = "t2t_keras"
author = copyright = "The t2t_keras authors"
release = __version__
root_doc = "docs/index"

# All other folders are excluded, because runs and data may be large.
include_patterns = ["*.md", "docs/*.md", "docs/programs/*.md", "docs/notebooks/*.ipynb", "launch/**.md", ".github/*.md"]
include_patterns.append("saved_models/en_de_fr/*.md")
exclude_patterns = [
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and path.name not in ("docs", "launch", "saved_models", ".github")
]
exclude_patterns += ["README.md", "docs/_build", ".github/PULL_REQUEST_TEMPLATE.md"]

extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "source_files",
    "pictures",
    "attention_figure",
    "generated",
]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the notebooks contain the outputs of a full run
highlight_language = "bash"
smartquotes_action = "D"  # turns two dashes into a dash, and leaves quotes unchanged

default_role = "py:obj"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = False  # Keras's are long, and about Keras
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True  # fields are listed with their class
napoleon_custom_sections = [("Call arguments", "params_style")]

html_theme = "furo"
html_title = "t2t_keras"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
templates_path = ["site/templates"]
html_additional_pages = {"index": "redirect.html"}
html_copy_source = False
html_show_sphinx = False
html_domain_indices = False
