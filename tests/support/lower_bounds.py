"""The lower bounds of the extras that a user installs, as constraints for pip on stdout.

Use: python -m support.lower_bounds >bounds.txt && pip install -c bounds.txt '.[...]'
With the argument `apart` it prints those of the frameworks that exclude what others need.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from typing import Final

from support.project import PROJECT

EXTRAS: Final = (
    "claude-agent-sdk", "langgraph", "llm", "mcp", "metrics", "nats", "openai-agents",
    "pydantic-ai", "redact", "terminal", "view",
)  # fmt: skip
"""The extras whose bounds are tested together; those for developers follow `constraints.txt`."""

APART: Final = ("agent-framework", "google-adk", "llama-index", "strands-agents")
"""The extras whose bounds are tested in an environment of their own."""

_BOUND: Final = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=([0-9.]+)$")


def lower_bounds(names: Sequence[str] = EXTRAS) -> list[str]:
    """The lowest allowed version of each package that these extras name."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    found = [_BOUND.match(each) for extra in names for each in extras[extra]]
    return sorted({f"{bound[1]}=={bound[2]}" for bound in found if bound})


if __name__ == "__main__":
    chosen = APART if sys.argv[1:] == ["apart"] else EXTRAS
    sys.stdout.write("".join(f"{each}\n" for each in lower_bounds(chosen)))
