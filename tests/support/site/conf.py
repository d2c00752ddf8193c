"""The site of the documents, for Sphinx.

Every page stays where it is in the repository, in plain Markdown. So the contents of the site are
the links of its index pages: a page that an index links to stands below it, in the order of the
links. `client/guide/README.md` has the command.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

project = "steno"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "client/**.md", "daemon/**.md", "protocol/**.md"]
# Environments have Markdown of their own, and the site is built below the sources.
exclude_patterns = [".*", "build", "dist"]

html_theme = "furo"
html_title = "steno"
html_copy_source = False
html_show_copyright = False

nitpicky = True
# So a link to a heading is checked, too.
myst_heading_anchors = 4
# An example of JSON may have `...` in the place of what it leaves out.
suppress_warnings = ["misc.highlighting_failure"]

_CONTENTS: Final = {
    "For users": ["client/guide/README"],
    "For clients in other languages": ["protocol/PROTOCOL", "protocol/CHANGES"],
    "For developers": [
        "daemon/DESIGN", "daemon/reading-order", "client/DESIGN", "daemon/cluster",
        "daemon/decisions/README", "daemon/limits", "daemon/benchmarks", "daemon/stores",
    ],
}  # fmt: skip
"""The parts of the site, and the pages of each."""

_INDEXES: Final = {
    "client/guide/README", "client/guide/commands", "client/guide/reference/README",
    "client/guide/troubleshooting", "daemon/decisions/README",
}  # fmt: skip

_LINK: Final = re.compile(r"\]\(([^)#:]+)\.md\)")


def pages_below(index: str, text: str) -> list[str]:
    """The pages in the folder of an index, or below it, that its text links to, each once."""
    folder = posixpath.dirname(index)
    found = [posixpath.normpath(f"{folder}/{link}") for link in _LINK.findall(text)]
    return [page for page in dict.fromkeys(found) if page.startswith(f"{folder}/")]


def _contents(pages: list[str], caption: str = "") -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    lines = ["```{toctree}", *options, "", *(f"/{page}" for page in pages), "```"]
    return "\n".join(["", "", *lines, ""])


def _add_contents(_app: Any, page: str, source: list[str]) -> None:
    if page == root_doc:
        source[0] += "".join(_contents(pages, part) for part, pages in _CONTENTS.items())
    elif page in _INDEXES:
        source[0] += _contents(pages_below(page, source[0]))


def _write_start(app: Any, error: Exception | None) -> None:
    """Lead from the address of the site to its first page."""
    if error is None:
        start = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        (Path(app.outdir) / "index.html").write_text(start, encoding="utf-8")


def setup(app: Any) -> None:
    """Connect what the pages themselves do not say."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _write_start)
