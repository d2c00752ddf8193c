"""`python -m tools.render_diagrams`: the pictures of the guide's diagrams, by Graphviz.

A diagram `client/guide/pictures/NAME.dot` states what is connected; the look is the same for all
and is here. The picture has a ground of its own, and follows its reader's choice of light or dark.
"""

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Final

from support.project import PROJECT

COMMAND: Final = "PYTHONPATH=tests python -m tools.render_diagrams"

FOLDER: Final = PROJECT / "client" / "guide" / "pictures"

_ATTRIBUTES: Final = (
    "-Gfontname=Helvetica", "-Gfontsize=11", "-Gbgcolor=transparent", "-Gpad=0.2",
    "-Nfontname=Helvetica", "-Nfontsize=11", "-Nshape=box", "-Nstyle=rounded", "-Nheight=0.4",
    "-Efontname=Helvetica", "-Efontsize=10", "-Earrowsize=0.7",
)  # fmt: skip

_STYLE: Final = """\
<style>
  svg { --ground: #ffffff; --ink: #1f2328; --line: #656d76; --area: #f6f8fa; --edge: #d0d7de;
    --client: #ddf4ff; --file: #fff8c5; --accent: #0969da; --box: #ffffff; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #0d1117; --ink: #e6edf3; --line: #8d96a0; --area: #161b22; --edge: #30363d;
      --client: #0c2d6b; --file: #4b2900; --accent: #58a6ff; --box: #21262d; }
  }
  .ground { fill: var(--ground); stroke: var(--edge); }
  text { fill: var(--ink); font-family: Helvetica, Arial, sans-serif; }
  .cluster path, .cluster polygon { fill: var(--area); stroke: var(--edge); }
  .cluster text { font-weight: bold; }
  .node path, .node polygon { fill: var(--box); stroke: var(--line); }
  .node polyline { fill: none; stroke: var(--line); }
  .client path { fill: var(--client); }
  .file polygon { fill: var(--file); }
  .other path, .other polygon { stroke-dasharray: 4 3; }
  .edge path { stroke: var(--line); fill: none; }
  .edge polygon { fill: var(--line); stroke: var(--line); }
  .ack path { stroke: var(--accent); stroke-dasharray: 5 3; }
  .ack polygon { fill: var(--accent); stroke: var(--accent); }
  .ack text { fill: var(--accent); }
</style>
"""
"""Colours by the class of a node or edge: client, file, other, ack."""


def diagrams() -> list[Path]:
    """The sources of the diagrams."""
    return sorted(FOLDER.glob("*.dot"))


def seal(source: Path) -> str:
    """The line of a picture that names its source and the source's contents."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    return f"<!-- {source.name} {digest}, rendered by: {COMMAND} -->"


def rendered(source: Path) -> str:
    """The picture of a diagram."""
    ran = subprocess.run(
        ["dot", "-Tsvg", *_ATTRIBUTES, source], capture_output=True, text=True, check=True
    )
    drawing = ran.stdout[ran.stdout.index("<svg") :]
    box = re.search(r'viewBox="([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+)"', drawing)
    assert box is not None
    left, top, width, height = map(float, box.groups())
    ground = (
        f'<rect class="ground" x="{left + 1:.1f}" y="{top + 1:.1f}" width="{width - 2:.1f}"'
        f' height="{height - 2:.1f}" rx="8"/>\n'
    )
    # The style decides the colours; an attribute of dot would be in its place where no style is.
    plain = re.sub(r' (?:fill|stroke|font-family)="[^"]*"', "", drawing)
    bare = re.sub(r"<!--.*?-->\n|<title>.*?</title>\n", "", plain, flags=re.DOTALL)
    return f"{seal(source)}\n" + re.sub(
        r"(<svg[^>]*>\n)", lambda tag: tag[1] + _STYLE + ground, bare, count=1
    )


def main() -> None:
    """Render every diagram."""
    for source in diagrams():
        source.with_suffix(".svg").write_text(rendered(source), encoding="utf-8")


if __name__ == "__main__":
    main()
