"""Adapters of frameworks that are not installed: they are imported, and name the command."""

import subprocess
import sys
import textwrap

import pytest

NEEDS = {
    "claude_agent_sdk": (
        "claude_agent_sdk",
        "StenoSessionStore(None)",
        "'stenod[claude-agent-sdk]'",
    ),
    "agent_framework": (
        "agent_framework",
        "StenoHistoryProvider(None)",
        "'stenod[agent-framework]'",
    ),
    "google_adk": ("google.adk", "StenoSessionService(None)", "'stenod[google-adk]'"),
    "kimi": ("kimi_cli", "SimpleCompaction().prepare([])", "kimi-cli==1.52.0"),
    "langgraph": ("langgraph", "StenoSaver(None)", "'stenod[langgraph]'"),
    "llama_index": ("llama_index", "StenoChatStore(None)", "'stenod[llama-index]'"),
    "openai_agents": (
        "agents",
        "StenoSession('talk', None, {'limit': 1})",
        "'stenod[openai-agents]'",
    ),
    "pydantic_ai": ("pydantic_ai", "StenoConversationStore(None)", "'stenod[pydantic-ai]'"),
    "strands": ("strands", "StenoSessionRepository(None)", "'stenod[strands-agents]'"),
}
"""An adapter: the package of its framework, a call that needs it, and what installs it."""


@pytest.mark.parametrize("adapter", NEEDS)
def test_an_adapter_without_its_framework_names_the_command(adapter: str) -> None:
    package, call, installed = NEEDS[adapter]
    program = f"""
        import sys
        sys.modules[{package!r}] = None
        from steno.adapters.{adapter} import {call.partition("(")[0]}
        print("imported")
        {call}
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout == "imported\n"
    assert "ModuleNotFoundError" in ran.stderr
    assert f"pip install {installed}`" in ran.stderr
