"""Sphinx builds the documentation site from the Markdown files of the repository: `make docs`.

The source directory is the repository itself, so that the links between documents, code and examples are the
same on the site, in an editor and in a browser of the repository. Pages carry no directives: the navigation
is added here.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
NAVIGATION: Final = {
    "Tutorials": ["docs/tutorials/*"],
    "How-to guides": ["docs/how-to/*"],
    "Reference": ["docs/reference/*", "deploy/README", "sdk/README", "examples/README"],
    "Explanation": ["docs/explanation/*", "ARCHITECTURE", "SECURITY", "docs/adr/README"],
    "Project": ["README", "CONTRIBUTING", "tests/README", "bench/README", "CHANGELOG"],
}
PICTURE: Final = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">'
    r'\s*<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)
"""A picture for light and dark schemes, as browsers of repositories show it."""

project = "Toolgate"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx_copybutton"]
include_patterns = ["*.md", "docs/**.md", "[a-z]*/README.md"]
exclude_patterns = ["build", "console", "docs/examples", "docs/screenshots"]
html_theme = "furo"
html_title = f"Toolgate {version}"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def add_navigation(_app: object, name: str, source: list[str]) -> None:
    """Add the table of contents to the index, and that of the decisions to their index."""
    trees = {root_doc: NAVIGATION, "docs/adr/README": {"Decisions": ["docs/adr/0*"]}}.get(name, {})
    for title, pages in trees.items():
        lines = "\n".join(f"/{page}" for page in pages)
        source[0] += f"\n\n```{{toctree}}\n:caption: {title}\n:hidden:\n:glob:\n\n{lines}\n```\n"


def copy_pictures(_app: object, _name: str, source: list[str]) -> None:
    """Replace HTML pictures by images: Sphinx copies those, and the theme has classes for either scheme."""
    both = r"![\g<alt>](\g<light>){.only-light}![\g<alt>](\g<dark>){.only-dark}"
    source[0] = PICTURE.sub(both, source[0])


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
    app.connect("source-read", copy_pictures)
