"""Sphinx builds the documentation site from the Markdown files of the repository: `make docs`.

The source directory is the repository itself, so that the links between documents, code and examples are the
same on the site, in an editor and in a browser of the repository. Pages carry no directives: the navigation
is added here.
"""

import gc
import re
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
NAVIGATION: Final = {
    "Tutorials": [f"docs/tutorials/first-{name}" for name in ("gateway", "task", "approval", "wasm-task")],
    "Help": ["docs/troubleshooting", "docs/explanation/concepts"],
    "Servers and clients": [
        f"docs/how-to/{name}"
        for name in ("servers", "clients", "import-and-export", "packages", "catalog", "search", "skills")
    ],
    "Policy and limits": [
        f"docs/how-to/{name}"
        for name in ("approvals", "least-privilege", "rate-limits", "team-keys", "gitops")
    ],
    "Models and programs": [
        f"docs/how-to/{name}"
        for name in (
            "chat",
            "responses",
            "chat-upstreams",
            "passthrough",
            "workloads",
            "running-tasks",
            "grpc",
        )
    ],
    "Operation": ["docs/how-to/production", "docs/how-to/*"],
    "Migration": ["docs/how-to/migrate-*"],
    "Explanation": ["docs/explanation/*", "ARCHITECTURE", "SECURITY", "docs/adr/README"],
    "Reference": ["docs/reference/*", "deploy/README", "sdk/README", "examples/README"],
    "Project": ["README", "CONTRIBUTING", "tests/README", "bench/README", "CHANGELOG"],
}
"""Captions of the sidebar, each with its pages in order. A page is listed once: a pattern leaves out those
that another entry names more exactly."""
PICTURE: Final = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">'
    r'\s*<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)
"""A picture for light and dark schemes, as browsers of repositories show it."""
SCREENSHOT: Final = re.compile(
    r"^!\[(?P<alt>[^]]*)\]\((?P<light>(?P<stem>[^)]+)-light\.png)\)$", re.MULTILINE
)
"""A screenshot of the console. Each has one of the dark scheme next to it."""

# A site is a few large trees: the garbage collector looks through them 7,000 times, a third of the build.
gc.set_threshold(1_000_000)

project = "Toolgate"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx_copybutton"]
include_patterns = ["*.md", "docs/**.md", "[a-z]*/README.md"]
# Sphinx looks for pages in every other directory: environments and packages take it two seconds.
exclude_patterns = [".*", "**/__pycache__", "bench/*/*", "build", "console", "requirements"]
exclude_patterns += ["docs/examples", "docs/screenshots"]
html_theme = "furo"
html_title = f"Toolgate {version}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#1c5d99", "color-brand-content": "#1c5d99"},
    "dark_css_variables": {"color-brand-primary": "#79b8f2", "color-brand-content": "#79b8f2"},
}
html_show_sphinx = False
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def list_pages(patterns: Sequence[str], trees: Mapping[str, Sequence[str]]) -> list[str]:
    """The pages of one caption. The longest pattern of all captions that matches a page has it."""
    known = sorted((one for each in trees.values() for one in each), key=len, reverse=True)
    found = []
    for pattern in patterns:
        pages = sorted(str(path.relative_to(ROOT))[: -len(".md")] for path in ROOT.glob(f"{pattern}.md"))
        found += [page for page in pages if next(one for one in known if fnmatch(page, one)) == pattern]
    return found


def add_navigation(_app: object, name: str, source: list[str]) -> None:
    """Add the table of contents to the index, and that of the decisions to their index."""
    trees = {root_doc: NAVIGATION, "docs/adr/README": {"Decisions": ["docs/adr/0*"]}}.get(name, {})
    for title, patterns in trees.items():
        lines = "\n".join(f"/{page}" for page in list_pages(patterns, trees))
        source[0] += f"\n\n```{{toctree}}\n:caption: {title}\n:hidden:\n\n{lines}\n```\n"


def copy_pictures(_app: object, _name: str, source: list[str]) -> None:
    """Replace pictures by one for each scheme: Sphinx copies images, and the theme has a class for either."""
    both = r"![\g<alt>](\g<light>){.only-light}![\g<alt>](%s){.only-dark}"
    source[0] = PICTURE.sub(both % r"\g<dark>", source[0])
    source[0] = SCREENSHOT.sub(both % r"\g<stem>-dark.png", source[0])


def setup(app: Any) -> None:
    app.add_config_value("navigation", NAVIGATION, "env")  # a change has all pages read again
    app.connect("source-read", add_navigation)
    app.connect("source-read", copy_pictures)
