"""Settings of the documentation site; ``make docs`` builds it."""

from importlib import metadata

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "ACF"
author = "The ACF authors"
copyright = "The ACF authors, Apache-2.0"
try:
    release = metadata.version("adaptive-compute-fabric")
except metadata.PackageNotFoundError:  # run from a checkout that is on the path but not installed
    release = "0.1.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "ACF"
html_show_sphinx = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autosummary_generate = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
default_role = "code"  # docstrings write names in single backticks
python_use_unqualified_type_names = True


def setup(app: Sphinx) -> None:
    """Show diagrams written for GitHub as their text."""
    app.add_lexer("mermaid", TextLexer)
