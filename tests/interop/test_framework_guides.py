"""The examples in the guide pages of the frameworks' adapters run as they are printed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.documents import Block, blocks
from support.project import PROJECT

pytestmark = pytest.mark.interop

PAGES = {
    "claude-agent-sdk.md": "claude_agent_sdk",
    "openai-agents.md": "agents",
    "pydantic-ai.md": "pydantic_ai",
    "langgraph.md": "langgraph",
    "google-adk.md": "google.adk",
    "strands-agents.md": "strands",
    "llama-index.md": "llama_index",
    "agent-framework.md": "agent_framework",
}


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package around it is missing.
        return False


def examples(page: str) -> list[Block]:
    found = blocks(PROJECT / "client" / "guide" / page)
    return [
        block
        for block in found
        if "steno.adapters" in block.code and "asks a model" not in (block.marker or "")
    ]


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_a_guide_page_runs(root: Path, page: str) -> None:
    if not is_installed(PAGES[page]):
        pytest.skip(f"{PAGES[page]} is not installed: .ci/run has the commands")
    (example,) = examples(page)
    environment = {**os.environ, "STENO_HOME": str(root)}
    ran = subprocess.run(
        [sys.executable, "-c", example.code],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "Hello" in ran.stdout
